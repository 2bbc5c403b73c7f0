import { randomInt } from 'node:crypto';
import { isLongRun } from './chaos.ts';

/** Whether all cases run: each night, and in the long form of the chaos tests. */
export const isWhole = isLongRun || process.env['TRIBUTARY_TEST_WHOLE'] === '1';

/** Skips an expensive test outside of complete runs; another test covers its behaviour in part. */
export function inWholeRun(skip: (note: string) => void): void {
  if (!isWhole) skip('in the nightly run (TRIBUTARY_TEST_WHOLE=1)');
}

/**
 * Selects one in `every` of similar, expensive cases, beginning with a random one, at least one: `make test` has twelve
 * minutes, and each run selects others. Returns all cases in a complete run.
 */
export function inTurn<T>(cases: readonly T[], every: number): readonly T[] {
  if (isWhole) return cases;
  const first = randomInt(Math.max(1, Math.min(every, cases.length)));
  return cases.filter((_, index) => index % every === first);
}
