import { pause } from '../../runtime/async/retry.ts';
import { isAppError } from '../../runtime/errors.ts';
import { listLeftovers, sweep } from '../../lake/clean.ts';
import { assertOwner } from '../lake-owner.ts';
import { underMaintenanceLock } from './maintenance-lock.ts';
import type { MaintenanceDependencies } from './maintenance-options.ts';
import type { MaintenanceTask } from './maintenance-task.ts';

/** Removes, or puts aside, what a crash has left behind; false when another holds the maintenance lock. */
async function sweepLeftovers(dependencies: MaintenanceDependencies, putAside: boolean): Promise<boolean> {
  const { table, writer, paths, crashPoint, logger } = dependencies;
  const swept = await underMaintenanceLock(dependencies, async () => {
    const leftovers = await listLeftovers(table);
    await table.refresh();
    assertOwner(table.lake(), writer);
    return sweep(table, leftovers, crashPoint, putAside ? paths.orphans : undefined);
  });
  if (swept !== undefined && swept > 0)
    logger[putAside ? 'error' : 'info'](
      { swept, ...(putAside ? { putAside: paths.orphans } : {}) },
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

/** Creates the gate; failures of the sweep are those of `task`. No turn waits once the signal is aborted. */
export function createSweepGate(
  dependencies: MaintenanceDependencies,
  task: MaintenanceTask,
  signal: AbortSignal,
): SweepGate {
  return createGate(
    async (putAside) => {
      let swept = false;
      const error = await task.run(async () => {
        swept = await sweepLeftovers(dependencies, putAside);
      });
      // A damaged intent, say, stops what it would rewrite, and not the flushes.
      if (isAppError(error, 'fenced')) throw error;
      return swept;
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
