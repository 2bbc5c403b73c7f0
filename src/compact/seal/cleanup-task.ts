import { isDamage } from '../../runtime/errors.ts';
import {
  mustForget,
  sweep,
  trimLog,
  vacuum,
  type CleanOptions,
  type Leftovers,
  checkpointEvery,
  checkpointWhenDue,
} from '../../lake/cleanup.ts';
import { renewPlaces, type SettledPlaces } from '../../lake/files/deferred-replacement.ts';
import { listStaged } from '../../lake/files/staging.ts';
import { quarantinedName } from '../../lake/lake.ts';
import { assertOwner } from '../lake-owner.ts';
import { underMaintenanceLock, type TableDependencies } from './maintenance-task.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import type { Table } from '../../lake/log/table.ts';

const everyMs = 60_000;

/**
 * Creates the runs that remove files and log entries that no reader within the retention needs. The first run cleans.
 */
export function createCleanTurns(dependencies: TableDependencies, retentionMs: number) {
  const { table, leader, clock, crashPoint, paths, logger, writer } = dependencies;
  const settled: SettledPlaces = new Map();
  let nextMs = 0;
  let damage: unknown;
  /** The history before this version was removed, so the log is not listed for it again. */
  let goneBefore: number | undefined;

  async function removeOld(cleaning: CleanOptions): Promise<void> {
    assertOwner(leader.lake(), writer);
    // Before the vacuum, which removes files that this step needs.
    damage = await renewPlaces(table, { ...cleaning, stagingDir: paths.staging }, settled).then(
      (places) => void (places > 0 && logger.info({ places }, 'sealed files moved to their final paths')),
      (error: unknown) => {
        if (isDamage(error)) return error;
        throw error;
      },
    );
    await vacuum(table, cleaning);
    // Failed events are those of the stream, which the leader's log accounts for.
    await trimLog(table, table === leader ? paths.failed : undefined, cleaning);
  }

  return {
    /** Cleans if it is due, or if an erasure waits for it. Errors: those of the file system and of the lake. */
    async turn(): Promise<void> {
      const cleaning = { nowMs: clock.nowMs(), retentionMs, crashPoint };
      const { forgetBefore, forgetAtMs = 0 } = table.lake();
      if (forgetBefore !== goneBefore && cleaning.nowMs >= forgetAtMs) {
        const forget = await mustForget(table, cleaning.nowMs);
        // No time for readers, even if the clock is behind the commits.
        const now = forget === 'now' ? { ...cleaning, nowMs: Infinity, retentionMs: 0 } : cleaning;
        if (forget === 'no') goneBefore = forgetBefore;
        else await underMaintenanceLock(dependencies, () => removeOld(now));
      }
      if (performance.now() < nextMs) return;
      // The next lock holder settles what a killed command has left in staging.
      if ((await listStaged(paths.staging)).length > 0)
        await underMaintenanceLock(dependencies, () => removeOld(cleaning));
      else await removeOld(cleaning);
      nextMs = performance.now() + Math.min(everyMs, retentionMs / 2);
    },
    /** Throws the damage of a rewrite that the last run could not move: it stops neither the others nor the log. */
    assertShown(): void {
      if (damage !== undefined) throw damage;
    },
  };
}

/** Removes or quarantines what a crash left of a table; false if the maintenance lock is held. Error: `fenced`. */
export async function sweepLeftovers(
  dependencies: TableDependencies,
  leftovers: Leftovers,
  putAside: boolean,
): Promise<boolean> {
  const { dataset, table, paths, crashPoint, logger } = dependencies;
  const aside = { folder: paths.quarantine, toName: (file: string) => quarantinedName(dataset, file) };
  const swept = await underMaintenanceLock(dependencies, () =>
    sweep(table, leftovers, crashPoint, putAside ? aside : undefined),
  );
  if (swept !== undefined && swept > 0)
    logger[putAside ? 'error' : 'info'](
      { table: dataset.table, swept, ...(putAside ? { putAside: paths.quarantine } : {}) },
      'unreferenced files swept',
    );
  return swept !== undefined;
}

/** Creates the checkpoints of a table; the first run checks the log. `every`: number of commits in between. */
export function createCheckpointTurns(table: Table, crashPoint: CrashPoint, every = checkpointEvery) {
  let newest: number | undefined;
  return {
    /** Writes a checkpoint when one is due. Only then is the log's folder listed. */
    async turn(duckdb: Duckdb): Promise<void> {
      const { version } = table.state();
      const mayRest = newest !== undefined && version - newest < every && newest >= (table.lake().forgetBefore ?? 0);
      if (!mayRest) newest = await checkpointWhenDue(duckdb, table, crashPoint, every);
    },
  };
}
