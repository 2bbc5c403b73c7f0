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

/**
 * Returns a hook for `beforeEach` of a file whose tests are expensive and independent of each other: one in `every`
 * runs, beginning with a random one. Those whose title matches `always`, and all in a complete run, run too.
 */
export function oneTestIn(every: number, always?: RegExp) {
  const first = randomInt(every);
  let tests = 0;
  return ({
    skip,
    task,
  }: {
    readonly skip: (note: string) => void;
    readonly task: { readonly name: string };
  }): void => {
    const isSelected = tests % every === first || always?.test(task.name) === true;
    tests += 1;
    if (!isWhole && !isSelected) skip(`one in ${every} of this file runs, at random; all in the nightly run`);
  };
}

/**
 * Returns a hook for `beforeEach` of one of several files whose tests cover the same in part. Of these files, `make
 * test` runs a random one: that whose number `at`, from 0, is that of the run. All run in a complete run.
 */
export function oneFileIn(files: number, at: number): (context: { readonly skip: (note: string) => void }) => void {
  const drawn = Number(process.env['TRIBUTARY_TEST_TURN'] ?? at) % files;
  return ({ skip }) => {
    if (!isWhole && drawn !== at) skip(`a similar file runs instead, at random; both in the nightly run`);
  };
}
