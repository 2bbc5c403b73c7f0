import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { listLog } from '../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { chaosFigure, chaosSeed, inLongForm } from '../helpers/chaos.ts';
import {
  countStored,
  expectNothingLeftOver,
  prepareCompactProcesses,
  publishBadEvent,
  publishEvents,
  waitForAll,
  type CompactProcess,
  type Place,
} from '../helpers/compact-process.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { readTotals } from '../helpers/lake.ts';
import { startLakeReaders } from '../helpers/lake-readers.ts';
import { waitFor } from '../helpers/wait.ts';

const kills = chaosFigure('TRIBUTARY_TEST_COMPACT_KILLS', { short: 3, long: 100 });
const seed = chaosSeed();

/** Maximum life of a compactor, ms: some flushes, one or two seals, sometimes a checkpoint and a clean-up. */
const longestLifeMs = 1200;
/** Maximum backlog, events, so that reads of the lake end. */
const mostWaiting = 200;

const processes = prepareCompactProcesses();

/** Kills a compactor at a random moment of its start or work, unless it is fenced before; returns how it ended. */
async function killSometime({ child, ready, exited }: CompactProcess, random: Random): Promise<string> {
  const duringStart = random.chance(0.25);
  const lifeMs = random.integer(0, duringStart ? longestLifeMs / 2 : longestLifeMs);
  if (!duringStart) await Promise.race([ready, exited]);
  // The moment is random on purpose.
  await Promise.race([pass(lifeMs), exited]);
  child.kill('SIGKILL');
  return exited;
}

/** Sends events, one in fifty of them bad, until `stop`, which returns the number of bad ones. */
function startEvents({ folder, publisher }: Place, ids: Set<string>): { stop(): Promise<number> } {
  const stopper = new AbortController();
  const { signal } = stopper;
  let bad = 0;
  const run = async (): Promise<number> => {
    for (let message = 1; !signal.aborted; message += 1) {
      await publishEvents(publisher, ids, {});
      if (message % 10 === 0) {
        await publishBadEvent(publisher);
        bad += 1;
      }
      await waitFor(
        'a compactor takes events in',
        async () => signal.aborted || ids.size - (await countStored(folder)) < mostWaiting,
        300_000,
      );
    }
    return bad;
  };
  const running = run();
  running.catch(() => undefined);
  return {
    stop() {
      stopper.abort();
      return running;
    },
  };
}

test(
  `A compactor killed ${kills} times at any moment, alone or with a rival, loses no event, stores none twice and shows no torn commit`,
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const place = await processes.makePlace('kills');
    const { folder } = place;
    const ids = new Set<string>();
    const readers = startLakeReaders(folder);
    const events = startEvents(place, ids);
    const ends = { SIGKILL: 0, fenced: 0 };
    for (let round = 0; ends.SIGKILL < kills; round += 1) {
      // Every third round, beginning with the first, has a rival, which only the fence in the log holds off.
      const rivals = round % 3 === 0 ? [{}, { spool: 'rival', options: { withoutLock: true } }] : [{}];
      for (const end of await Promise.all(
        rivals.map((settings) => killSometime(processes.start(place, settings), random)),
      )) {
        expect(['SIGKILL', '3']).toContain(end);
        ends[end === '3' ? 'fenced' : 'SIGKILL'] += 1;
      }
    }
    const last = processes.start(place);
    const bad = await events.stop();
    await waitForAll(folder, ids);
    const paths = lakePaths(path.join(folder, 'lake'));
    const countSealed = async (): Promise<number> =>
      (await readSnapshot(paths.table)).files.filter((file) => !file.young).length;
    // Rows of old dates wait 24 times the seal age: kills in quick succession come earlier.
    await waitFor('rows are sealed', async () => (await countSealed()) > 0);
    await waitFor(
      'log entries past the retention are trimmed',
      async () => ((await listLog(paths.table)).commits[0] ?? 0) > 0,
    );
    last.child.kill('SIGTERM');
    expect(await last.exited).toBe('0');
    await readers.stop();
    await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
    expect(await readTotals(path.join(folder, 'lake'))).toEqual({
      streamed: ids.size + bad,
      stored: ids.size,
      failed: bad,
      repeats: 0,
      erased: 0,
    });
    const { version } = await readSnapshot(paths.table);
    const sealed = await countSealed();
    expect(sealed).toBeGreaterThan(0);
    recordFinding({
      promise: 'P4',
      what: 'compactor killed at random moments, alone and with rivals',
      wanted: '0 torn, doubled or vanished rows for readers of the snapshot and of the sealed files',
      figures: {
        kills: ends.SIGKILL,
        fenced: ends.fenced,
        commits: version,
        sealedFiles: sealed,
        events: ids.size,
        failedEvents: bad,
        reads: readers.reads(),
        tornRows: 0,
        doubledRows: 0,
        vanishedRows: 0,
      },
      reached: true,
      seed,
      again: `make chaos PART=compactor-kills SEED=${seed}`,
    });
  },
  60_000 + kills * 6000,
);
