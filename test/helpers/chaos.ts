import { randomInt } from 'node:crypto';

/** The long form of the chaos tests, which `make chaos` runs; `make test` runs the short one. */
export const isLongRun = process.env['TRIBUTARY_CHAOS'] === 'long';

/** Leaves a test that costs much, and whose promise cheaper tests show in part, to the long form. */
export function inLongForm(skip: (note: string) => void): void {
  if (!isLongRun) skip('in the long form');
}

/** The figure of a chaos test: that of its own variable (`TRIBUTARY_TEST_KILLS`), or the short or long form's. */
export function chaosFigure(variable: string, figures: { readonly short: number; readonly long: number }): number {
  const named = process.env[variable];
  return named === undefined || named === '' ? figures[isLongRun ? 'long' : 'short'] : Number(named);
}

/** The seed of this run: `TRIBUTARY_TEST_SEED`, or a random one, which the test has to print. */
export function chaosSeed(): number {
  return Number(process.env['TRIBUTARY_TEST_SEED'] || randomInt(1_000_000_000));
}
