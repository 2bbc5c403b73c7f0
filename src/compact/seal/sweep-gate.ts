import { pause } from '../../runtime/async/retry.ts';
import { isAppError } from '../../runtime/errors.ts';
import { listLeftovers, sweep } from '../../lake/clean.ts';
import { orphanName } from '../../lake/orphans.ts';
import { assertOwner } from '../lake-owner.ts';
import type { FollowerTables } from './follower-tables.ts';
import { underMaintenanceLock } from './maintenance-lock.ts';
import type { TableDependencies } from './maintenance-options.ts';
import type { TableTurns } from './table-turns.ts';

/** Removes, or puts aside, what a crash has left behind; false when another holds the maintenance lock. */
async function sweepLeftovers(dependencies: TableDependencies, putAside: boolean): Promise<boolean> {
  const { dataset, table, leader, writer, paths, crashPoint, logger } = dependencies;
  const swept = await underMaintenanceLock(dependencies, async () => {
    // What lies beside the tables is the leader's.
    const leftovers = await listLeftovers(table, table === leader ? [paths.root] : []);
    await table.refresh();
    assertOwner(leader.lake(), writer);
    const aside = { folder: paths.orphans, toName: (file: string) => orphanName(dataset, file) };
    return sweep(table, leftovers, crashPoint, putAside ? aside : undefined);
  });
  if (swept !== undefined && swept > 0)
    logger[putAside ? 'error' : 'info'](
      { table: dataset.table, swept, ...(putAside ? { putAside: paths.orphans } : {}) },
      'swept files that no commit names',
    );
  return swept !== undefined;
}

/**
 * Keeps turns and the sweep apart: the sweep takes every temporary for a leftover, so a checkpoint must not be under
 * way.
 */
export interface SweepGate {
  /**
   * Sweeps, unless a turn is under way: false then, and when the maintenance lock is another's. The first turn waits for
   * the first sweep, and the one after a refused sweep until that is asked for again. Errors: `fenced`.
   */
  sweep(putAside: boolean): Promise<boolean>;
  /** Runs a turn when no sweep is under way; false when one has begun at this instant, and nothing was done. */
  turn(work: () => Promise<void>): Promise<boolean>;
}

/**
 * How long a turn waits for a sweep, milliseconds: the flush loop asks within a flush age, unless the broker is away. A
 * compactor whose turns follow each other closely, and who does not live long, would never sweep otherwise.
 */
const giveWayMs = 15_000;

/** A table whose lock another holds, such as a load that takes hours, is tried again after so long, milliseconds. */
const retryEveryMs = 10_000;

/** The sweep of one table as one of its tasks; says whether it was done. Errors: `fenced`. */
async function sweepTable(table: TableTurns, putAside: boolean): Promise<boolean> {
  let swept = false;
  const error = await table.sweepTask.run(async () => {
    swept = await sweepLeftovers(table, putAside);
  });
  // A damaged intent, say, stops what it would rewrite, and not the flushes.
  if (isAppError(error, 'fenced')) throw error;
  return swept;
}

/**
 * Creates the gate of the lake's tables: those that there are when the first sweep comes, since what comes into being
 * later has no crash behind it. No turn waits once the signal is aborted.
 */
export function createSweepGate(first: TableTurns, followers: FollowerTables, signal: AbortSignal): SweepGate {
  const swept = new Set<TableTurns>();
  let waiting: readonly TableTurns[] | undefined;
  let retryAtMs = 0;

  async function sweepFollowers(putAside: boolean): Promise<boolean> {
    if (waiting === undefined) {
      await followers.look(true).catch(() => undefined);
      waiting = followers.list();
    } else if (performance.now() < retryAtMs) return waiting.length === 0;
    const left: TableTurns[] = [];
    for (const table of waiting) if (!(await sweepTable(table, putAside))) left.push(table);
    waiting = left;
    retryAtMs = performance.now() + retryEveryMs;
    return left.length === 0;
  }

  return createGate(
    async (putAside) => {
      if (!swept.has(first) && (await sweepTable(first, putAside))) swept.add(first);
      return (await sweepFollowers(putAside)) && swept.has(first);
    },
    giveWayMs,
    signal,
  );
}

/** Creates a gate around a sweep. */
export function createGate(
  sweepNow: (putAside: boolean) => Promise<boolean>,
  waitMs: number,
  signal: AbortSignal,
): SweepGate {
  let isTurning = false;
  let sweeping: Promise<unknown> | undefined;
  /** A sweep that turns wait for, aborted when it is asked for: the first one, and each that a turn has refused. */
  let awaited: AbortController | undefined = new AbortController();

  return {
    async sweep(putAside) {
      if (isTurning) {
        awaited ??= new AbortController();
        return false;
      }
      awaited?.abort();
      const running = sweepNow(putAside);
      sweeping = running.catch(() => undefined);
      return await running.finally(() => {
        sweeping = undefined;
      });
    },
    async turn(work) {
      if (awaited !== undefined) await pause(waitMs, AbortSignal.any([awaited.signal, signal]));
      awaited = undefined;
      await sweeping;
      if (sweeping !== undefined) return false;
      isTurning = true;
      try {
        await work();
      } finally {
        isTurning = false;
      }
      return true;
    },
  };
}
