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
} from '../../lake/clean.ts';
import { renewPlaces, type SettledPlaces } from '../../lake/files/places.ts';
import { listStaged } from '../../lake/files/staging.ts';
import { orphanName } from '../../lake/lake.ts';
import { assertOwner } from '../lake-owner.ts';
import { underMaintenanceLock, type TableDependencies } from './maintenance-task.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import type { Table } from '../../lake/log/table.ts';

/** Removes, now and then, what nobody within the retention reads any more. */
export interface CleanTurns {
  /** Cleans when it is time to, or an erasure waits for it. Errors: the file system's, and those of the lake. */
  turn(): Promise<void>;
  /**
   * Throws the damage of a rewrite that was to take the place of a sealed file, as the last turn has met it: it keeps
   * neither the other places nor the log from their turn.
   */
  assertShown(): void;
}

const everyMs = 60_000;

/** Creates the turns; the first cleans. */
export function createCleanTurns(dependencies: TableDependencies, retentionMs: number): CleanTurns {
  const { table, leader, clock, crashPoint, paths, logger, writer } = dependencies;
  const settled: SettledPlaces = new Map();
  let nextMs = 0;
  let damage: unknown;
  /** The history before this version was found to be gone: the log is not listed for it again. */
  let goneBefore: number | undefined;

  /** Places come first: they need what would be removed. */
  async function removeOld(cleaning: CleanOptions): Promise<void> {
    assertOwner(leader.lake(), writer);
    damage = await renewPlaces(table, { ...cleaning, stagingDir: paths.staging }, settled).then(
      (places) => void (places > 0 && logger.info({ places }, 'sealed files shown at their places')),
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
      // What a killed command has left in staging is settled, or removed, by whoever takes the lock.
      if ((await listStaged(paths.staging)).length > 0)
        await underMaintenanceLock(dependencies, () => removeOld(cleaning));
      else await removeOld(cleaning);
      nextMs = performance.now() + Math.min(everyMs, retentionMs / 2);
    },
    assertShown() {
      if (damage !== undefined) throw damage;
    },
  };
}

/**
 * Removes, or puts aside, what a crash has left behind of a table; false when another holds the maintenance lock.
 * Errors: `fenced`.
 */
export async function sweepLeftovers(
  dependencies: TableDependencies,
  leftovers: Leftovers,
  putAside: boolean,
): Promise<boolean> {
  const { dataset, table, leader, writer, paths, crashPoint, logger } = dependencies;
  const swept = await underMaintenanceLock(dependencies, async () => {
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

/** The checkpoints of one table, as the one compactor that writes them knows them. */
export interface CheckpointTurns {
  /** Writes a checkpoint when one is due. The log's folder is looked into only where that may be. */
  turn(duckdb: Duckdb): Promise<void>;
}

/** Creates the turns; the first looks at the log. `every`: commits from one checkpoint to the next. */
export function createCheckpointTurns(table: Table, crashPoint: CrashPoint, every = checkpointEvery): CheckpointTurns {
  /** The newest checkpoint that is known to be there, with the hint to it. */
  let newest: number | undefined;
  return {
    async turn(duckdb) {
      const { version } = table.state();
      const mayRest = newest !== undefined && version - newest < every && newest >= (table.lake().forgetBefore ?? 0);
      if (!mayRest) newest = await checkpointWhenDue(duckdb, table, crashPoint, every);
    },
  };
}
