import { isAppError, isDamage } from '../../runtime/errors.ts';
import {
  mustDropErasedHistory,
  sweep,
  trimLog,
  vacuum,
  type CleanOptions,
  type Leftovers,
  checkpointEvery,
  checkpointWhenDue,
  isCheckpointDue,
} from '../../lake/cleanup.ts';
import { removeFormerLists } from '../../lake/event-index/erasure-list.ts';
import { applyDueReplacements, type PublishedPaths } from '../../lake/files/deferred-replacement.ts';
import { listDueFolders, removeFormerFolders, showMergedFolders } from '../../lake/files/merged-folders.ts';
import { listStaged } from '../../lake/files/staging.ts';
import { quarantineKey } from '../../lake/lake.ts';
import { assertOwner } from '../lake-owner.ts';
import { withMaintenanceLock, type TableDependencies } from './maintenance-task.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import type { Table } from '../../lake/log/table.ts';

const intervalMs = 60_000;

/**
 * Creates the runs that remove files and log entries that no reader within the retention needs. The first run cleans.
 */
export function createCleanupTask(dependencies: TableDependencies, retentionMs: number) {
  const { table, primaryTable, clock, crashPoint, paths, logger, writer } = dependencies;
  const settled: PublishedPaths = new Map();
  let nextMs = 0;
  let fault: unknown;
  /** The history before this version was removed, so the log is not listed for it again. */
  let goneBefore: number | undefined;

  /** Returns the error of files or folders that cannot be shown: it must not keep the log from being trimmed. */
  async function noteFault(show: Promise<number>): Promise<unknown> {
    return await show.then(
      (places) => void (places > 0 && logger.info({ places }, 'sealed files moved to their final paths')),
      (error: unknown) => {
        if (isDamage(error) || isAppError(error, 'disk')) return error;
        throw error;
      },
    );
  }

  /** `isLocked`: whether the maintenance lock is held. */
  async function removeOld(cleaning: CleanOptions, isLocked: boolean): Promise<void> {
    assertOwner(primaryTable.lake(), writer);
    const replacing = { ...cleaning, stagingDir: paths.staging };
    // Before the vacuum, which removes files that this step needs.
    fault = await noteFault(applyDueReplacements(table, replacing, settled));
    if (isLocked) fault = (await noteFault(showMergedFolders(table, replacing, settled))) ?? fault;
    await removeFormerFolders(paths.staging, cleaning.retentionMs);
    await vacuum(table, cleaning);
    // Failed events are those of the stream, which the leader's log accounts for.
    await trimLog(table, table === primaryTable ? paths.failed : undefined, cleaning);
    await removeFormerLists(table);
  }

  return {
    /** Cleans if it is due, or if an erasure waits for it. Errors: those of the file system and of the lake. */
    async run(): Promise<void> {
      const cleaning = { nowMs: clock.nowMs(), retentionMs, crashPoint };
      const { forgetBefore, forgetAtMs = 0 } = table.lake();
      if (forgetBefore !== goneBefore && cleaning.nowMs >= forgetAtMs) {
        const forget = await mustDropErasedHistory(table, cleaning.nowMs);
        // No time for readers, even if the clock is behind the commits.
        const now = forget === 'now' ? { ...cleaning, nowMs: Infinity, retentionMs: 0 } : cleaning;
        if (forget === 'no') goneBefore = forgetBefore;
        else await withMaintenanceLock(dependencies, () => removeOld(now, true));
      }
      if (performance.now() < nextMs) return;
      // The next lock holder settles what a killed command has left in staging, and exchanges folders.
      const needsLock =
        (await listStaged(paths.staging)).length > 0 || (await listDueFolders(table, cleaning, settled)).length > 0;
      if (needsLock) await withMaintenanceLock(dependencies, () => removeOld(cleaning, true));
      else await removeOld(cleaning, false);
      nextMs = performance.now() + Math.min(intervalMs, retentionMs / 2);
    },
    /** Throws the fault of files that the last run could not show: it stops neither the others nor the log. */
    assertReplaced(): void {
      if (fault !== undefined) throw fault;
    },
  };
}

/** Removes or quarantines what a crash left of a table; false if the maintenance lock is held. Error: `fenced`. */
export async function sweepLeftovers(
  dependencies: TableDependencies,
  leftovers: Leftovers,
  quarantine: boolean,
): Promise<boolean> {
  const { dataset, table, paths, crashPoint, logger } = dependencies;
  const toQuarantined = (file: string): string => quarantineKey(dataset, file);
  const swept = await withMaintenanceLock(dependencies, () =>
    sweep(table, leftovers, crashPoint, quarantine ? toQuarantined : undefined),
  );
  if (swept !== undefined && swept > 0)
    logger[quarantine ? 'error' : 'info'](
      { table: dataset.table, swept, ...(quarantine ? { putAside: paths.quarantine } : {}) },
      'unreferenced files swept',
    );
  return swept !== undefined;
}

/**
 * Creates the checkpoints of a table; the first run checks the log. `every`: least number of commits in between.
 * `nowMs`: a monotonic clock.
 */
export function createCheckpointTask(
  table: Table,
  crashPoint: CrashPoint,
  every = checkpointEvery,
  nowMs = (): number => performance.now(),
) {
  let newest: number | undefined;
  let newestSinceMs = 0;
  return {
    /** Writes a checkpoint when one is due. Only then is the log's folder listed. */
    async run(duckdb: Duckdb): Promise<void> {
      const { version, files } = table.state();
      const ageMs = newest === undefined ? 0 : nowMs() - newestSinceMs;
      const commits = version - (newest ?? version);
      const isDue = isCheckpointDue({ commits, ageMs, liveFiles: files.size }, every);
      if (newest !== undefined && !isDue && newest >= (table.lake().forgetBefore ?? 0)) return;
      const found = await checkpointWhenDue(duckdb, table, crashPoint, every, ageMs);
      if (found !== newest) [newest, newestSinceMs] = [found, nowMs()];
    },
  };
}
