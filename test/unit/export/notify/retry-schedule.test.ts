import { expect, onTestFinished, test } from 'vitest';
import { createRetryLoops } from '../../../../src/export/notify/retry-schedule.ts';
import { waitFor } from '../../../helpers/wait.ts';

/** Loops over a clock that the test sets. The first delay after a failure is a second, all others a minute. */
function openLoops() {
  const aborter = new AbortController();
  const clock = { now: 0, nowMs: () => clock.now };
  const errors: unknown[] = [];
  const options = { timeoutMs: 1000, retryScheduleMs: [1000, 60_000] };
  const loops = createRetryLoops(clock, options, aborter.signal, (key, error) => errors.push([key, error]));
  onTestFinished(async () => {
    aborter.abort();
    await loops.ended();
  });
  const times: number[] = [];
  const waitForStep = (count: number): Promise<void> =>
    waitFor(`step ${count} begins`, () => {
      loops.wakeDue();
      return times.length === count;
    });
  return { loops, aborter, clock, errors, times, waitForStep };
}

test('A step is repeated at the time that it returns, until it returns undefined', async () => {
  const { loops, clock, times, waitForStep } = openLoops();
  loops.start('a', () => {
    times.push(clock.now);
    return Promise.resolve(times.length < 3 ? clock.now + 5000 : undefined);
  });
  for (const count of [1, 2, 3]) {
    await waitForStep(count);
    clock.now += 5000;
  }
  await loops.ended();
  expect(times).toEqual([0, 5000, 10_000]);
});

test('A loop that is started again during its step runs another step at once', async () => {
  const { loops, times, waitForStep } = openLoops();
  const releases: (() => void)[] = [];
  const step = async (): Promise<undefined> => {
    times.push(0);
    await new Promise<void>((resolve) => releases.push(resolve));
    return undefined;
  };
  loops.start('a', step);
  loops.start('a', step);
  await waitForStep(1);
  releases.pop()?.();
  await waitForStep(2);
  releases.pop()?.();
  await loops.ended();
  expect(times).toHaveLength(2);
});

test('A failed step is reported, and repeated after the delay of its failures', async () => {
  const { loops, clock, errors, times, waitForStep } = openLoops();
  const failure = new Error('full');
  loops.start(7, () => {
    times.push(clock.now);
    return times.length < 3 ? Promise.reject(failure) : Promise.resolve(undefined);
  });
  await waitForStep(1);
  clock.now = 1000;
  await waitForStep(2);
  clock.now = 61_000;
  await waitForStep(3);
  await loops.ended();
  expect(errors).toEqual([
    [7, failure],
    [7, failure],
  ]);
});

test('A waiting loop ends when the signal aborts, and no new loop begins', async () => {
  const { loops, aborter, times, waitForStep } = openLoops();
  const step = (): Promise<number> => Promise.resolve(times.push(0) * 60_000);
  loops.start('a', step);
  await waitForStep(1);
  aborter.abort();
  await loops.ended();
  loops.start('b', step);
  expect(times).toHaveLength(1);
});
