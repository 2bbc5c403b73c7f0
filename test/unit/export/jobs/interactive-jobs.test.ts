import { getEventListeners } from 'node:events';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openAccessReader } from '../../../../src/access/store.ts';
import { createInteractiveJobs, type DryRunRequest } from '../../../../src/export/jobs/interactive-jobs.ts';
import type { DryRunEnd } from '../../../../src/export/jobs/worker-process.ts';
import { createClock } from '../../../../src/runtime/clock.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';

const { signal } = new AbortController();

const requestOf = (idAccount: number, event: string): DryRunRequest => ({
  look: 'preview',
  idAccount,
  request: {
    event,
    selectors: [],
    timezone: 'UTC',
    eventTime: {},
    availableAt: {},
    eventNameInvert: false,
    filters: {},
  },
});

/** Dry runs that a test ends, each identified by the name of its event. */
async function openLooks() {
  const folder = testFolder();
  const access = await openAccessReader(
    { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') },
    createLogger('silent'),
  );
  onTestFinished(() => access.close());
  const running = new Map<string, (end: DryRunEnd) => void>();
  const begun: string[] = [];
  const interactiveJobs = createInteractiveJobs(
    {
      access,
      clock: createClock(0),
      onDamage: () => undefined,
      runDataQuery: () => Promise.resolve({ kind: 'timed_out' }),
      runDryRun: ({ request }, options) =>
        new Promise((resolve) => {
          begun.push(request.event);
          running.set(request.event, resolve);
          options.signal.addEventListener('abort', () => resolve({ kind: 'aborted' }), { once: true });
        }),
    },
    {
      lakeDir: folder,
      segmentsDir: folder,
      titlesDir: folder,
      retentionMs: 0,
      limits: { maxRows: 1, maxBytes: 1, singleFileMaxBytes: 1, partMaxBytes: 1, memoryMb: 128, threads: 1 },
    },
  );
  return {
    looks: interactiveJobs,
    begun,
    run: (idAccount: number, event: string, until = signal) => interactiveJobs.run(requestOf(idAccount, event), until),
    end: (event: string) => running.get(event)?.({ kind: 'timed_out' }),
  };
}

test('Two dry runs are concurrent, one per account, so that no account blocks another', async () => {
  const { run, begun, end } = await openLooks();
  const asked = ['a', 'b', 'c'].map((event) => run(1, event));
  await waitFor('one runs', () => begun.length === 1);
  asked.push(run(2, 'x'), run(3, 'y'));
  await waitFor('two run', () => begun.length === 2);
  expect(begun).toEqual(['a', 'x']);
  end('x');
  await waitFor('a dry run of the next account begins', () => begun.length === 3);
  expect(begun).toEqual(['a', 'x', 'y']);
  for (const event of ['y', 'a', 'b', 'c']) {
    await waitFor('it runs', () => begun.includes(event));
    end(event);
  }
  expect((await Promise.all(asked)).map(({ kind }) => kind)).toEqual(Array.from({ length: 5 }, () => 'timed_out'));
});

test('A queued dry run whose caller disconnects never begins', async () => {
  const { run, begun, end } = await openLooks();
  const gone = new AbortController();
  const asked = [run(1, 'a'), run(1, 'c', gone.signal), run(1, 'd')];
  await waitFor('one runs', () => begun.length === 1);
  gone.abort();
  expect(await asked[1]).toEqual({ kind: 'aborted' });
  end('a');
  await waitFor('the last runs', () => begun.length === 2);
  end('d');
  await Promise.all(asked);
  expect(begun).toEqual(['a', 'd']);
});

test('A stop ends running and queued dry runs', async () => {
  const { looks, run, begun } = await openLooks();
  const asked = [run(1, 'a'), run(2, 'b'), run(1, 'c')];
  await waitFor('two run', () => begun.length === 2);
  await looks.stop();
  expect((await Promise.all(asked)).map(({ kind }) => kind)).toEqual(['aborted', 'aborted', 'aborted']);
});

test('Dry runs whose callers disconnect in the queue do not count for the limit of their account', async () => {
  const { run, begun, end } = await openLooks();
  const gone = new AbortController();
  const first = run(1, 'first');
  const abandoned = Array.from({ length: 7 }, (_, number) => run(1, `abandoned ${number}`, gone.signal));
  expect(await run(1, 'refused')).toEqual({ kind: 'busy' });
  gone.abort();
  await Promise.all(abandoned);
  const last = run(1, 'last');
  await waitFor('one runs', () => begun.includes('first'));
  end('first');
  await waitFor('the last one runs', () => begun.includes('last'));
  end('last');
  expect(await Promise.all([first, last])).toEqual([{ kind: 'timed_out' }, { kind: 'timed_out' }]);
});

/** Number of signals that depend on a signal, as Node tracks them. */
const dependentsOf = (source: AbortSignal): number =>
  Object.getOwnPropertySymbols(source)
    .filter(({ description = '' }) => description.startsWith('kDependant'))
    .map((symbol) => (Reflect.get(source, symbol) as ReadonlySet<unknown> | undefined)?.size ?? 0)
    .reduce((sum, size) => sum + size, 0);

test('A signal passed to many dry runs references none of them afterwards', async () => {
  const { run, begun, end } = await openLooks();
  const lasting = new AbortController();
  for (const event of ['a', 'b', 'c']) {
    const asked = run(1, event, lasting.signal);
    await waitFor('it runs', () => begun.includes(event));
    end(event);
    await asked;
  }
  expect(dependentsOf(lasting.signal)).toBe(0);
  expect(getEventListeners(lasting.signal, 'abort')).toEqual([]);
});
