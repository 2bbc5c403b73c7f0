import path from 'node:path';
import { AppError, describeError } from '../../runtime/errors.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { findStoredSize, localFiles } from '../../runtime/store/open-store.ts';
import { keyOf } from '../../lake/files/change-record.ts';
import { lakeStore, writeDataFile } from '../../lake/files/data-file.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { readOwnedId, type OwnedId } from '../../lake/event-index/erased-ids.ts';
import {
  readFailedFile,
  type FailedEvent,
  failedRowsFolder,
  listFailedRows,
  removeFailedRows,
} from '../../lake/files/failed-events.ts';
import { listFailedOf, removeFailed, type RemoveFailedDependencies } from '../../lake/remove-failed.ts';
import { openStagingFolder, hasRunningLoad } from '../../lake/files/staging.ts';
import { lakePaths, listQuarantined, tablePaths, quarantinedDataset } from '../../lake/lake.ts';
import { readFilesSql, stagingOf } from '../tables.ts';
import { emptyFilePath, type Snapshot } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
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
 * Dependencies of the erasure outside of the tables: from failed events, bad rows of loads, and quarantined files. Done
 * under the maintenance lock. These files have no readers, so they are replaced at once.
 */
export interface EraseOutsideTablesDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly crashPoint: CrashPoint;
}

function isHit(event: FailedEvent, parts: readonly TargetPart[]): boolean {
  return event.load === undefined ? matchesFailed(event, parts) : matchesFailedRow(event, event.load, parts);
}

export async function listFailedHits(
  lakeDir: string,
  dataset: Dataset,
  state: Pick<Snapshot, 'txns'>,
  target: ErasureTarget,
): Promise<FailedEvent[]> {
  const parts = targetParts(target);
  const hits: FailedEvent[] = [];
  for (const file of await listFailedOf(lakeDir, dataset, state))
    for (const event of await readFailedFile(file)) if (isHit(event, parts)) hits.push(event);
  return hits;
}

/** Maximum number of failed event ids that one erasure records. */
const maxFailedIds = 50_000;

/** Lists the readable ids of the failed events to erase, up to the limit. */
export async function listFailedIds(
  { dataset, table, lakeDir }: RemoveFailedDependencies,
  target: ErasureTarget,
): Promise<OwnedId[]> {
  const hits = await listFailedHits(lakeDir, dataset, table.state(), target);
  return hits.flatMap(({ load, line }) => (load === undefined ? (readOwnedId(line) ?? []) : [])).slice(0, maxFailedIds);
}

export function eraseFailed(dependencies: RemoveFailedDependencies, target: ErasureTarget): Promise<number> {
  const parts = targetParts(target);
  return removeFailed(dependencies, 'erase', (event) => isHit(event, parts));
}

export interface QuarantinedHit {
  readonly file: string;
  readonly rows: number;
  readonly hits: number;
}

/** Runs work with the SQL of a quarantined file, with its table's columns if there is one, and of its rows to erase. */
export async function useQuarantined<T>(
  lakeDir: string,
  file: string,
  target: ErasureTarget,
  work: (source: string, matches: string) => Promise<T>,
): Promise<T> {
  const dataset = quarantinedDataset(path.basename(file));
  const empty = { absolutePath: emptyFilePath(tablePaths(lakeDir, dataset).table) };
  const hasTable = (await findStoredSize(empty)) !== undefined;
  return await localFiles.use([...(hasTable ? [empty] : []), { absolutePath: file }], (paths) =>
    work(readFilesSql(paths), matchSql(target, new Set(dataset.columns.map(({ name }) => name)))),
  );
}

/** Finds quarantined files with rows to erase. Error: `file_damaged` for an unreadable file, which may have some. */
export async function findQuarantinedHits(
  { lakeDir, duckdb }: Pick<EraseOutsideTablesDependencies, 'lakeDir' | 'duckdb'>,
  target: ErasureTarget,
): Promise<QuarantinedHit[]> {
  const found: QuarantinedHit[] = [];
  for (const file of await listQuarantined(lakeDir)) {
    try {
      const [row] = await useQuarantined(lakeDir, file, target, (source, matches) =>
        duckdb.rows(`SELECT count(*) AS rows, count(*) FILTER (WHERE ${matches}) AS hits FROM ${source}`),
      );
      const hit = { file, rows: Number(row?.['rows']), hits: Number(row?.['hits']) };
      if (hit.hits > 0) found.push(hit);
    } catch (error) {
      throw new AppError('file_damaged', `cannot read ${file} in quarantine: ${describeError(error)}`, {
        cause: error,
        hint: 'Remove it, or move it out of the data folder, then repeat the command: it may have such rows.',
      });
    }
  }
  return found;
}

/** Rewrites quarantined files without the rows to erase; they are in no table, so nothing is committed. */
export async function eraseQuarantined(
  { lakeDir, duckdb }: EraseOutsideTablesDependencies,
  hits: readonly QuarantinedHit[],
  target: ErasureTarget,
): Promise<void> {
  if (hits.length === 0) return;
  const { root, staging: stagingDir } = lakePaths(lakeDir);
  const store = lakeStore(root);
  const staging = await openStagingFolder(stagingDir, 'an erasure');
  try {
    for (const { file, rows, hits: count } of hits) {
      const key = keyOf(root, file);
      if (count === rows) {
        await store.remove([key]);
        continue;
      }
      const staged = path.join(staging.folder, path.basename(file));
      await useQuarantined(lakeDir, file, target, (source, matches) =>
        writeDataFile(duckdb, `SELECT * FROM ${source} WHERE NOT (${matches})`, staged),
      );
      await store.upload(key, staged, { isSynced: true });
    }
  } finally {
    await staging.close();
  }
}

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
 * Reports whether a load has committed to a table since it had the `known` loads, or is running: loads take no lock and
 * may commit rows of the user after the table was searched. Removes leftovers of killed loads.
 */
export async function hadConcurrentLoad(table: Table, lakeDir: string, known: KnownLoads): Promise<boolean> {
  await sweepFailedRows(table, lakeDir);
  // Checked before the log is read: a load that ends in between is seen by its commit.
  const isRunning = await hasRunningLoad(stagingOf(table, lakeDir));
  await table.refresh();
  return (
    isRunning ||
    [...listLoadStates(table.state().txns)].some(([id, { generation }]) => known.get(id)?.generation !== generation)
  );
}
