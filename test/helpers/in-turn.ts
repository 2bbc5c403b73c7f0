import { randomInt } from 'node:crypto';
import { isLongRun } from './chaos.ts';

/** Whether everything is asked: each night, and in the long form of the chaos tests. */
export const isWhole = isLongRun || process.env['TRIBUTARY_TEST_WHOLE'] === '1';

/** Leaves a test that costs much, and whose behaviour another test shows in part, to the runs that ask everything. */
export function inWholeRun(skip: (note: string) => void): void {
  if (!isWhole) skip('in the nightly run (TRIBUTARY_TEST_WHOLE=1)');
}

/**
 * Of cases that are alike and cost much, every so many one, from a random one on: `make test` has twelve minutes, and
 * each run of it asks others. At least one; all of them where everything is asked.
 */
export function inTurn<T>(cases: readonly T[], every: number): readonly T[] {
  if (isWhole) return cases;
  const first = randomInt(Math.max(1, Math.min(every, cases.length)));
  return cases.filter((_, index) => index % every === first);
}
