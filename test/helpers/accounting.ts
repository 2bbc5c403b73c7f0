import { expect } from 'vitest';
import path from 'node:path';
import { checkLake } from '../../src/lake/check.ts';
import type { Totals } from '../../src/lake/log/lake-state.ts';
import { readTotals } from './lake.ts';
import { assertExactlyOnce, reconcileLake, type Ledger, type Reconciliation } from './ledger.ts';
import { readPaymentTotals } from './revenue.ts';
import { type TestService } from './service.ts';
import { waitFor } from './wait.ts';

/** What the books say when a run is over: each client's, against the lake, and the lake's own. */
export interface Accounts {
  /** In the order of the ledgers. */
  readonly results: readonly Reconciliation[];
  readonly totals: Totals;
  readonly rows: number;
}

/** The totals that the newest commits of a lake's logs give, of the events and of payments together. */
export async function totalsOf(dataDir: string): Promise<Totals> {
  const totals = await readTotals(path.join(dataDir, 'lake'));
  if (totals === undefined) throw new Error(`the newest commit of the lake in ${dataDir} has no totals`);
  const others = await readPaymentTotals(dataDir);
  if (others === undefined) return totals;
  expect(others.streamed, JSON.stringify(others)).toBe(others.stored + others.failed + others.repeats + others.erased);
  return {
    streamed: totals.streamed + others.streamed,
    stored: totals.stored + others.stored,
    failed: totals.failed + others.failed,
    repeats: totals.repeats + others.repeats,
    erased: totals.erased + others.erased,
  };
}

/** Waits until everything in the stream has its place in the lake, by the service's own status. */
export async function waitUntilWorkedOff(service: TestService, forMs = 120_000): Promise<void> {
  await waitFor(
    'the stream is worked off',
    async () => ((await service.status())['stream'] as { lagMessages?: number } | undefined)?.lagMessages === 0,
    forMs,
  );
}

/**
 * Balances the books, with the stream worked off: every acknowledged event is in the lake exactly once, whole, and
 * nothing else is but unknown ones; every event that was in the stream has a place by the log's own totals; the log's
 * rows are those that a reader counts; and `tributary lake check` finds every file as it was written. Throws where they
 * do not balance.
 */
export async function balanceAccounts(dataDir: string, ledgers: readonly Ledger[]): Promise<Accounts> {
  const results = await reconcileLake(dataDir, ledgers);
  for (const result of results) {
    assertExactlyOnce(result);
    expect(result.stored).toBeGreaterThanOrEqual(result.acknowledged);
    expect(result.stored).toBeLessThanOrEqual(result.acknowledged + result.unknown);
  }
  const totals = await totalsOf(dataDir);
  const { streamed, stored, failed, repeats, erased } = totals;
  expect(streamed, `not every event has its place: ${JSON.stringify(totals)}`).toBe(stored + failed + repeats + erased);
  const rows = results.reduce((sum, result) => sum + result.stored, 0);
  expect(rows, 'a reader counts other rows than the log').toBe(stored);
  const { problems } = await checkLake(path.join(dataDir, 'lake'));
  expect(problems).toEqual([]);
  return { results, totals, rows };
}
