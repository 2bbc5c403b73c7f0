import { isDamage } from '../../runtime/errors.ts';
import { mustForget, trimLog, vacuum, type CleanOptions } from '../../lake/clean.ts';
import { listStaged } from '../../lake/files/staged-rewrite.ts';
import { listDueSwaps, swapDue } from '../../lake/files/swap.ts';
import { assertOwner } from '../lake-owner.ts';
import { underMaintenanceLock } from './maintenance-lock.ts';
import type { TableDependencies } from './maintenance-options.ts';

/** Removes, now and then, what nobody within the retention reads any more. */
export interface CleanTurns {
  /** Cleans when it is time to, or an erasure waits for it. Errors: the file system's, and those of the lake. */
  turn(): Promise<void>;
  /**
   * Throws the damage of a rewrite that was to take the place of a sealed file, as the last turn has met it: it keeps
   * neither the other swaps nor the log from their turn.
   */
  assertSwapped(): void;
}

const everyMs = 60_000;

/** Creates the turns; the first cleans. */
export function createCleanTurns(dependencies: TableDependencies, retentionMs: number): CleanTurns {
  const { table, leader, clock, crashPoint, paths, logger, writer } = dependencies;
  let nextMs = 0;
  let swapDamage: unknown;
  /** The history before this version was found to be gone: the log is not listed for it again. */
  let goneBefore: number | undefined;

  /** Swaps, for which the caller holds the maintenance lock, come first: they need what would be removed. */
  async function removeOld(cleaning: CleanOptions): Promise<void> {
    assertOwner(leader.lake(), writer);
    swapDamage = await swapDue(table, { ...cleaning, stagingDir: paths.staging }).then(
      (files) => void (files > 0 && logger.info({ files }, 'replaced sealed files by their rewrites')),
      (error: unknown) => {
        if (isDamage(error)) return error;
        throw error;
      },
    );
    await vacuum(table, cleaning);
    // Failed events are those of the stream: their places are looked up in the leader's log.
    await trimLog(table, table === leader ? paths.failed : undefined, cleaning);
  }

  return {
    async turn() {
      const cleaning = { nowMs: clock.nowMs(), retentionMs, crashPoint };
      const { forgetBefore, forgetAtMs = 0 } = table.lake();
      if (forgetBefore !== goneBefore && cleaning.nowMs >= forgetAtMs) {
        const forget = await mustForget(table, cleaning.nowMs);
        const now = forget === 'now' ? { ...cleaning, retentionMs: 0 } : cleaning;
        if (forget === 'no') goneBefore = forgetBefore;
        else await underMaintenanceLock(dependencies, () => removeOld(now));
      }
      if (performance.now() < nextMs) return;
      // What a killed command has left in staging is finished, or removed, by whoever takes the lock.
      const isLocking =
        listDueSwaps(table.state(), cleaning).length > 0 || (await listStaged(paths.staging)).length > 0;
      if (isLocking) await underMaintenanceLock(dependencies, () => removeOld(cleaning));
      else await removeOld(cleaning);
      nextMs = performance.now() + Math.min(everyMs, retentionMs / 2);
    },
    assertSwapped() {
      if (swapDamage !== undefined) throw swapDamage;
    },
  };
}
