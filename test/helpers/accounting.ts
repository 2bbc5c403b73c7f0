import { expect } from 'vitest';
import path from 'node:path';
import { checkLake } from '../../src/lake/check.ts';
import type { Totals } from '../../src/lake/log/lake-state.ts';
import { readTotals } from './lake.ts';
import { assertExactlyOnce, reconcileLake, type Ledger, type Reconciliation } from './ledger.ts';
import { readPaymentTotals } from './revenue.ts';
import { type TestService } from './service.ts';
import { waitFor } from './wait.ts';

/** Final comparison of each client's ledger with the lake, and of the lake's totals with its rows. */
export interface Accounts {
  /** In the order of the ledgers. */
  readonly results: readonly Reconciliation[];
  readonly totals: Totals;
  readonly rows: number;
}

/** Returns the totals of the newest commits of a lake's logs: events and payments together. */
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

/** Waits until the lake has committed the whole stream, by the service's status. */
export async function waitUntilWorkedOff(service: TestService, forMs = 120_000): Promise<void> {
  await waitFor(
    'the stream is worked off',
    async () => ((await service.status())['stream'] as { lagMessages?: number } | undefined)?.lagMessages === 0,
    forMs,
  );
}

/**
 * Asserts the final state, once the whole stream is committed. Every acknowledged event is in the lake exactly once and
 * complete; other rows belong to unknown events. By the totals of the log, every event of the stream is stored, failed,
 * a duplicate or erased. A reader counts as many rows as the log. `tributary lake check` finds every file unchanged.
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
