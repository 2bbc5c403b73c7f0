import path from 'node:path';
import { moveFile, removeFile, syncFolder, writeNewFile } from '../../runtime/files/durable-file.ts';
import { AppError, describeError } from '../../runtime/errors.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { writeDataFile } from '../../lake/files/data-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { events, type Dataset } from '../../datasets/dataset.ts';
import { readOwnedId, type OwnedId } from '../../lake/find/erased-ids.ts';
import {
  listSettledFiles,
  readFailedFile,
  renderFailed,
  type FailedEvent,
  failedRowsFolder,
  listFailedRows,
  removeFailedRows,
} from '../../lake/files/failed-events.ts';
import { openChange } from '../../lake/files/change.ts';
import { openStagingFolder, hasRunningLoad } from '../../lake/files/staging.ts';
import { lakePaths, tablePaths, orphanDataset } from '../../lake/lake.ts';
import { filesSql, stagingOf } from '../tables.ts';
import { emptyFilePath, type Snapshot } from '../../lake/log/snapshot.ts';
import type { Change, Table } from '../../lake/log/table.ts';
import {
  matchesFailedRow,
  matchesFailed,
  matchSql,
  targetParts,
  type ErasureTarget,
  type TargetPart,
} from './erase-target.ts';
import { listLoadStates, type LoadState } from '../../lake/log/lake-state.ts';

/**
 * Dependencies of the erasure outside of the tables: from failed events, from bad rows of loads, and from quarantined
 * young files. Done under the maintenance lock. These files have no readers, so they are replaced at once.
 */
export interface EraseAsideDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly crashPoint: CrashPoint;
}

/** Lists the files of a table's failed events, or of the bad rows of its loads for a secondary table. */
async function listFailedOf(lakeDir: string, dataset: Dataset, { txns }: Pick<Snapshot, 'txns'>): Promise<string[]> {
  const { failed } = lakePaths(lakeDir);
  if (dataset === events) return listSettledFiles(failed);
  return [...(await listFailedRows(failedRowsFolder(failed, tablePaths(lakeDir, dataset).table), txns)).files];
}

function isHit(event: FailedEvent, parts: readonly TargetPart[]): boolean {
  return event.load === undefined ? matchesFailed(event, parts) : matchesFailedRow(event, event.load, parts);
}

/** Counts the failed events of a table to erase. */
export async function countFailedHits(
  lakeDir: string,
  dataset: Dataset,
  snapshot: Snapshot,
  target: ErasureTarget,
): Promise<number> {
  const parts = targetParts(target);
  let hits = 0;
  for (const file of await listFailedOf(lakeDir, dataset, snapshot))
    hits += (await readFailedFile(file)).filter((event) => isHit(event, parts)).length;
  return hits;
}

interface EraseFailedDependencies extends Omit<EraseAsideDependencies, 'duckdb'> {
  readonly dataset: Dataset;
}

/** Most ids of failed events that one erasure records. */
const maxFailedIds = 50_000;

/** Lists the readable ids of the failed events to erase, up to the limit. */
export async function listFailedIds(
  { dataset, table, lakeDir }: EraseFailedDependencies,
  target: ErasureTarget,
): Promise<OwnedId[]> {
  const parts = targetParts(target);
  const ids: OwnedId[] = [];
  for (const file of await listFailedOf(lakeDir, dataset, table.state()))
    for (const event of await readFailedFile(file)) {
      const id = event.load === undefined && isHit(event, parts) ? readOwnedId(event.line) : undefined;
      if (id !== undefined && ids.length < maxFailedIds) ids.push(id);
    }
  return ids;
}

/** Erases failed events of a table by one commit. Returns their number. */
export function eraseFailed(dependencies: EraseFailedDependencies, target: ErasureTarget): Promise<number> {
  const parts = targetParts(target);
  return removeFailed(dependencies, 'erase', (event) => isHit(event, parts));
}

/** Removes failed events of a table by one commit, which counts them as erased. Returns their number. */
export async function removeFailed(
  { dataset, table, lakeDir, crashPoint }: EraseFailedDependencies,
  cause: 'erase' | 'drop',
  isRemoved: (event: FailedEvent) => boolean,
): Promise<number> {
  const changed: { name: string; file: string; left: readonly FailedEvent[] }[] = [];
  let erased = 0;
  for (const [index, file] of (await listFailedOf(lakeDir, dataset, table.state())).entries()) {
    const failed = await readFailedFile(file);
    const left = failed.filter((event) => !isRemoved(event));
    if (left.length < failed.length) changed.push({ name: `${index}.ndjson`, file, left });
    erased += failed.length - left.length;
  }
  if (erased === 0) return 0;
  const rewritten = changed.filter(({ left }) => left.length > 0);
  const change: Change = {
    cause,
    actions: [],
    totals: { failed: -erased, erased },
    // Exports have no failed events.
    erasedApps: [],
    metrics: { failedEvents: erased },
  };
  const moves = rewritten.map(({ name, file }) => ({ name, to: file }));
  const unlink = changed.filter(({ left }) => left.length === 0).map(({ file }) => file);
  const open = await openChange(table, tablePaths(lakeDir, dataset).staging, 'a removal of failed events', crashPoint);
  try {
    for (const { name, left } of rewritten) await writeNewFile(path.join(open.folder, name), renderFailed(left));
    await open.commit([], () => change, { moves, unlink });
  } finally {
    await open.close();
  }
  return erased;
}

interface OrphanHit {
  readonly file: string;
  readonly rows: number;
  readonly hits: number;
}

/** SQL that reads a quarantined file, with all columns of its table if that exists. */
async function orphanSource(lakeDir: string, file: string): Promise<string> {
  const empty = emptyFilePath(tablePaths(lakeDir, orphanDataset(path.basename(file))).table);
  const files = (await exists(empty)) ? [empty, file] : [file];
  return filesSql(files);
}

function orphanMatchSql(file: string, target: ErasureTarget): string {
  const { columns } = orphanDataset(path.basename(file));
  return matchSql(target, new Set(columns.map(({ name }) => name)));
}

/** Finds the quarantined files with rows to erase. Error: `file_damaged` for an unreadable file, which may have some. */
export async function findOrphanHits(
  { lakeDir, duckdb }: EraseAsideDependencies,
  target: ErasureTarget,
): Promise<OrphanHit[]> {
  const found: OrphanHit[] = [];
  const folder = lakePaths(lakeDir).orphans;
  for (const name of await findNames(folder)) {
    const file = path.join(folder, name);
    try {
      const [row] = await duckdb.rows(
        `SELECT count(*) AS rows, count(*) FILTER (WHERE ${orphanMatchSql(file, target)}) AS hits FROM ${await orphanSource(lakeDir, file)}`,
      );
      const hit = { file, rows: Number(row?.['rows']), hits: Number(row?.['hits']) };
      if (hit.hits > 0) found.push(hit);
    } catch (error) {
      throw new AppError('file_damaged', `${file}, which was put aside, cannot be read: ${describeError(error)}`, {
        cause: error,
        hint: 'It may have rows to erase: remove it, or move it out of the data folder, and repeat the erasure.',
      });
    }
  }
  return found;
}

/** Rewrites quarantined files without the rows to erase; they are in no table, so nothing is committed. */
export async function eraseOrphans(
  { lakeDir, duckdb }: EraseAsideDependencies,
  hits: readonly OrphanHit[],
  target: ErasureTarget,
): Promise<void> {
  if (hits.length === 0) return;
  const paths = lakePaths(lakeDir);
  const staging = await openStagingFolder(paths.staging, 'an erasure');
  try {
    for (const { file, rows, hits: count } of hits) {
      if (count === rows) {
        await removeFile(file);
        continue;
      }
      const staged = path.join(staging.folder, path.basename(file));
      await writeDataFile(
        duckdb,
        `SELECT * FROM ${await orphanSource(lakeDir, file)} WHERE NOT (${orphanMatchSql(file, target)})`,
        staged,
      );
      await moveFile(staged, file);
    }
    await syncFolder(paths.orphans);
  } finally {
    await staging.close();
  }
}

/** The loads of a table, by id. */
export type KnownLoads = ReadonlyMap<string, LoadState>;

/** Removes the bad rows of killed loads, which no log counts and no command lists. Those of running loads stay. */
async function sweepFailedRows(table: Table, lakeDir: string): Promise<void> {
  const folder = failedRowsFolder(lakePaths(lakeDir).failed, table.dir);
  const before = (await listFailedRows(folder, table.state().txns)).stale;
  if (before.length === 0 || (await hasRunningLoad(stagingOf(table, lakeDir)))) return;
  // The load may have committed before it ended.
  await table.refresh();
  const { stale } = await listFailedRows(folder, table.state().txns);
  await removeFailedRows(
    folder,
    stale.filter((file) => before.includes(file)),
  );
}

/**
 * Reports whether a load has committed to a table since it had the `known` loads, or is running and may: loads hold no
 * lock of the table, and may commit rows of the person after the table was searched. Removes leftovers of killed loads.
 */
export async function hadLoadBeside(table: Table, lakeDir: string, known: KnownLoads): Promise<boolean> {
  await sweepFailedRows(table, lakeDir);
  // Checked before the log is read: a load that ends in between is seen by its commit.
  const isRunning = await hasRunningLoad(stagingOf(table, lakeDir));
  await table.refresh();
  return (
    isRunning ||
    [...listLoadStates(table.state().txns)].some(([id, { generation }]) => known.get(id)?.generation !== generation)
  );
}
