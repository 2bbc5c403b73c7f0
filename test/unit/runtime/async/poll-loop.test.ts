import { expect, test } from 'vitest';
import { startPollLoop } from '../../../../src/runtime/async/poll-loop.ts';
import { within } from '../../../helpers/wait.ts';

const hourMs = 3_600_000;
const ignore = (): void => undefined;

/** A promise, and what resolves it. */
function createGate(): { readonly opened: Promise<void>; open(): void } {
  let open = ignore;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

test('A loop runs its task at once and again after the pause, until it is stopped', async () => {
  const third = createGate();
  let runs = 0;
  const loop = startPollLoop(
    () => {
      runs += 1;
      if (runs === 3) third.open();
    },
    { everyMs: 1, onError: ignore },
  );
  expect(runs).toBe(1);
  await within('the third run', third.opened);
  await loop.stop();
  const atStop = runs;
  await new Promise((resolve) => setImmediate(resolve));
  expect(runs).toBe(atStop);
});

test('A loop that pauses first, and is stopped meanwhile, never runs its task', async () => {
  let runs = 0;
  const loop = startPollLoop(() => void (runs += 1), { everyMs: hourMs, onError: ignore, pausesFirst: true });
  await within('the loop has stopped', loop.stop());
  expect(runs).toBe(0);
});

test('A stop waits for the current run, whose signal it aborts, and no other begins', async () => {
  const steps: string[] = [];
  const finish = createGate();
  const loop = startPollLoop(
    async (signal) => {
      steps.push('begun');
      await finish.opened;
      steps.push(`ended, ${signal.aborted ? 'aborted' : 'wanted'}`);
    },
    { everyMs: 0, onError: ignore },
  );
  const stopped = loop.stop().then(() => void steps.push('stopped'));
  finish.open();
  await within('the loop has stopped', stopped);
  expect(steps).toEqual(['begun', 'ended, aborted', 'stopped']);
});

test('An error of a run is handed on, and the next run follows', async () => {
  const errors: unknown[] = [];
  const again = createGate();
  let runs = 0;
  const loop = startPollLoop(
    async () => {
      runs += 1;
      if (runs === 1) throw new Error('once');
      again.open();
    },
    { everyMs: 1, onError: (error) => void errors.push(error) },
  );
  await within('the second run', again.opened);
  await loop.stop();
  expect(errors).toEqual([new Error('once')]);
});

test('A loop that is woken runs its task at once, also when that was during a run, and never twice at the same time', async () => {
  const gates = [createGate(), createGate(), createGate()];
  const begun = [createGate(), createGate(), createGate()];
  let runs = 0;
  let underWay = 0;
  let most = 0;
  const loop = startPollLoop(
    async () => {
      const run = runs;
      runs += 1;
      underWay += 1;
      most = Math.max(most, underWay);
      begun[run]?.open();
      await gates[run]?.opened;
      underWay -= 1;
    },
    { everyMs: () => hourMs, onError: ignore },
  );
  loop.wake();
  gates[0]?.open();
  await within('the run after the current one begins', begun[1]?.opened ?? Promise.reject(new Error('no gate')));
  gates[1]?.open();
  // the pause of an hour has begun
  await new Promise((resolve) => setImmediate(resolve));
  loop.wake();
  await within('the run after the pause', begun[2]?.opened ?? Promise.reject(new Error('no gate')));
  gates[2]?.open();
  await loop.stop();
  expect({ runs, most }).toEqual({ runs: 3, most: 1 });
});
