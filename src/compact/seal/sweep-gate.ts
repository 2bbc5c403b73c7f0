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
  /** Sweeps, unless a turn is under way: false then, and as `sweepLeftovers`. Errors: `fenced`. */
  sweep(putAside: boolean): Promise<boolean>;
  /** Runs a turn when no sweep is under way; false when one has begun at this instant, and nothing was done. */
  turn(work: () => Promise<void>): Promise<boolean>;
}

/** Creates the gate; failures of the sweep are those of `task`. */
export function createSweepGate(dependencies: MaintenanceDependencies, task: MaintenanceTask): SweepGate {
  let isTurning = false;
  let sweeping: Promise<unknown> | undefined;
  return {
    async sweep(putAside) {
      if (isTurning) return false;
      let swept = false;
      const running = task.run(async () => {
        swept = await sweepLeftovers(dependencies, putAside);
      });
      sweeping = running;
      const error = await running;
      sweeping = undefined;
      // A damaged intent, say, stops what it would rewrite, and not the flushes.
      if (isAppError(error, 'fenced')) throw error;
      return swept;
    },
    async turn(work) {
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
