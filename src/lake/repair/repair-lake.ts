/**
 * `tributary lake repair`: repairs what needs an operator's decision.
 *
 * In: a lake with foreign commits, missing files, or times in the future.
 * Out: new commits, quarantined or recovered rows, and a report.
 * Invariant: no version number is used twice. Another engine's files are quarantined, and removed only if the table has
 * all their rows. A missing file leaves the log only by --accept-loss.
 * Crash: each step is one commit or is repeatable. A second run continues.
 */
import path from 'node:path';
import { events, type Dataset } from '../../datasets/dataset.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { lockObjects } from '../../runtime/store/object-lock.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import {
  clearForeignLeftovers,
  listForeignFiles,
  quarantineUnreferenced,
  repairTable,
  type Repaired,
} from './repair-log.ts';
import { recoverChanges } from '../files/change.ts';
import { restoreFromPublishedPaths } from '../files/deferred-replacement.ts';
import { lakePaths, listTables, maintenanceLease, tablePaths } from '../lake.ts';
import { acceptLoss, acceptLostErasedIds, describeMissing, type MissingFile } from './missing-files.ts';
import { dropKnownCopies, recoverRows } from './recover-rows.ts';
import { restampLake, type Restamped } from './restamp.ts';
import { openTable } from '../log/table.ts';

export interface RepairLakeDependencies {
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** The result of repairing one table. */
interface TableRepair {
  readonly repaired: boolean;
  readonly version: number;
  readonly foreign?: Repaired;
  /** Uncommitted files of another engine that were quarantined, or removed if the table has all their rows. */
  readonly filesUnnamed: number;
  /** Rows of missing files that were recovered from another engine's copies. */
  readonly rowsRecovered: number;
  /** Removed checksums and temporaries of other engines, relative to the table's folder. */
  readonly leftovers: readonly string[];
  readonly missing: readonly MissingFile[];
  /** Missing files that were removed from the log (`--accept-loss`). Their rows count as erased. */
  readonly lost: readonly MissingFile[];
  /** Whether damaged or missing hashes of erased ids were given up (`--accept-loss`). */
  readonly erasedIdsLost?: boolean;
  /** Rows whose `available_at` was in the future. */
  readonly clock: readonly Restamped[];
}

/** Results for the events table, and for other tables with findings. */
export interface LakeRepair extends TableRepair {
  readonly tables?: Readonly<Record<string, TableRepair>>;
}

function withoutDropped(repaired: Repaired, dropped: readonly string[]): Repaired {
  const names = new Set(dropped.map((file) => path.basename(file)));
  return {
    ...repaired,
    filesTakenOut: repaired.filesTakenOut.map(({ to, ...file }) => ({
      ...file,
      ...(to === undefined || names.has(path.basename(to)) ? {} : { to }),
    })),
  };
}

/**
 * Repairs foreign commits and future times in all tables. `acceptsLoss`: removes missing files from the log. Killable
 * and repeatable. Errors: `locked`, those of `repairTable` and `restampLake`.
 */
export async function repairLake(dependencies: RepairLakeDependencies, acceptsLoss = false): Promise<LakeRepair> {
  const eventsResult = await repairOne(dependencies, events, acceptsLoss);
  const tables: Record<string, TableRepair> = {};
  for (const dataset of await listTables(dependencies.lakeDir)) {
    if (dataset === events) continue;
    const done = await repairOne(dependencies, dataset, acceptsLoss);
    if (done.repaired || done.missing.length > 0) tables[dataset.table] = done;
  }
  return Object.keys(tables).length === 0 ? eventsResult : { ...eventsResult, tables };
}

async function repairOne(
  { lakeDir, duckdb, clock, crashPoint }: RepairLakeDependencies,
  dataset: Dataset,
  acceptsLoss: boolean,
): Promise<TableRepair> {
  const paths = { ...lakePaths(lakeDir), ...tablePaths(lakeDir, dataset) };
  const lock = await lockObjects(paths.maintenanceLock, { lease: maintenanceLease(dataset), holder: 'a repair' });
  try {
    const repaired = await repairTable({ tableDir: paths.table, clock, crashPoint });
    const leftovers = await clearForeignLeftovers(paths.table);
    const table = await openTable(paths.table, { clock, crashPoint });
    await table.refresh();
    const finished = await recoverChanges(table, paths.staging);
    const dependencies = { table, stagingDir: paths.staging, duckdb, clock, crashPoint };

    const restored = await restoreFromPublishedPaths(table);
    let missing = await describeMissing(paths.table, table.state().files.values());
    let rowsRecovered = 0;
    const unnamed = await quarantineUnreferenced(paths.table, table.state());
    const copies = await listForeignFiles(lakeDir, paths.table);
    if (missing.length > 0 && copies.length > 0) {
      const wanted = missing.reduce((sum, file) => sum + file.rows, 0);
      const found = await recoverRows(dependencies, missing, copies, acceptsLoss);
      if (found === wanted || (acceptsLoss && found > 0 && found < wanted)) {
        rowsRecovered = found;
        missing = [];
      }
    }
    const lost = acceptsLoss ? missing : [];
    // While files are missing, the copies may be the only ones.
    const dropped = missing.length > 0 ? [] : await dropKnownCopies(dependencies, copies);
    if (lost.length > 0) await acceptLoss(table, lost, clock.nowMs());
    const erasedIdsLost = acceptsLoss && dataset === events && (await acceptLostErasedIds(table, paths));
    const restamped = await restampLake(dependencies);
    return {
      repaired:
        repaired !== undefined ||
        finished + restored > 0 ||
        unnamed > 0 ||
        rowsRecovered > 0 ||
        leftovers.length > 0 ||
        lost.length > 0 ||
        erasedIdsLost ||
        restamped.passes.length > 0 ||
        restamped.hasMendedRemovals,
      version: table.state().version,
      ...(repaired === undefined ? {} : { foreign: withoutDropped(repaired, dropped) }),
      filesUnnamed: unnamed,
      rowsRecovered,
      leftovers,
      missing: acceptsLoss ? [] : missing,
      lost,
      ...(erasedIdsLost ? { erasedIdsLost } : {}),
      clock: restamped.passes,
    };
  } finally {
    await lock.release();
  }
}
