import { randomInt } from 'node:crypto';

/** The long form of the chaos tests, run by `make chaos`; `make test` runs the short one. */
export const isLongRun = process.env['TRIBUTARY_CHAOS'] === 'long';

/** Skips an expensive test outside of the long form; cheaper tests cover its promise in part. */
export function inLongForm(skip: (note: string) => void): void {
  if (!isLongRun) skip('in the long form');
}

/** Returns a figure of a chaos test: its environment variable (`TRIBUTARY_TEST_KILLS`), or the figure of the form. */
export function chaosFigure(variable: string, figures: { readonly short: number; readonly long: number }): number {
  const named = process.env[variable];
  return named === undefined || named === '' ? figures[isLongRun ? 'long' : 'short'] : Number(named);
}

/** Returns the seed of this run: `TRIBUTARY_TEST_SEED`, or a random one, which the test must print. */
export function chaosSeed(): number {
  return Number(process.env['TRIBUTARY_TEST_SEED'] || randomInt(1_000_000_000));
}
