import path from 'node:path';
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import { rewriteFiles } from '../../lake/files/rewrite.ts';
import { assertFilesWhole } from '../../lake/files/data-file.ts';
import { tablePaths } from '../../lake/lake.ts';
import { decodePath } from '../../lake/log/actions.ts';
import type { DataFile, Snapshot } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import { parseSchemaString } from '../../lake/table-schema.ts';
import { matchSql, userMeaningsSql, type ErasureTarget, type UserKind } from './erase-target.ts';

/** The erasure from one table of the lake: which files have the rows, what the ids stand for there, and their rewrite. */

/** Rows that a user id stands in, as what kind of id, and of which app. */
export interface UserMeaning {
  readonly id: string;
  readonly kind: UserKind;
  readonly idApp: number;
  readonly rows: number;
}

/** So many files are rewritten by one commit: what is staged needs their space once more. */
const filesPerCommit = 8;
/** So many are looked through by one query, which opens all of them. */
const filesPerLook = 64;

/** A file with rows to erase. */
export interface Hit {
  readonly file: DataFile;
  readonly hits: number;
  /** The apps of those rows. */
  readonly idApps: readonly number[];
}

/** The columns that a table has now, by which a target can match. */
export function columnsOf({ schemaString }: Snapshot): ReadonlySet<string> {
  return new Set(schemaString === undefined ? [] : parseSchemaString(schemaString).map(({ name }) => name));
}

/** Sums up the rows of hits. */
export function sumHits(hits: readonly Hit[]): number {
  return hits.reduce((sum, hit) => sum + hit.hits, 0);
}

/** Lists the apps of the rows of hits. */
export function listHitApps(hits: readonly Hit[]): number[] {
  return [...new Set(hits.flatMap(({ idApps }) => idApps))];
}

/** Finds the files of a table that have rows to erase. Errors: `file_damaged` for one that may have some. */
export async function findHits(duckdb: Duckdb, snapshot: Snapshot, target: ErasureTarget): Promise<Hit[]> {
  const { files, emptyFile } = snapshot;
  const candidates = pruneFiles(files, target.apps === undefined ? {} : { idApps: target.apps });
  // In a damaged file the rows to erase might not be found, and the others would be rewritten as they are.
  await assertFilesWhole(candidates);
  const matches = matchSql(target, columnsOf(snapshot));
  const hits: Hit[] = [];
  for (let from = 0; from < candidates.length; from += filesPerLook) {
    const byPath = new Map(candidates.slice(from, from + filesPerLook).map((file) => [file.absolutePath, file]));
    const rows = await duckdb.rows(
      `SELECT filename, count(*) AS hits, string_agg(DISTINCT id_app::VARCHAR, ',') AS apps FROM read_parquet(${sqlList([emptyFile, ...byPath.keys()])}, union_by_name = true, hive_partitioning = false, filename = true)
       WHERE ${matches} GROUP BY filename ORDER BY filename`,
    );
    for (const row of rows) {
      const file = byPath.get(String(row['filename']));
      const apps = row['apps'];
      const idApps = typeof apps === 'string' ? apps.split(',').map(Number) : [];
      if (file !== undefined) hits.push({ file, hits: Number(row['hits']), idApps });
    }
  }
  return hits;
}

/**
 * Reports whether files that the log has removed, and that readers of older versions still have, hold rows of a target.
 * One that cannot be read counts as one that does. A busy lake has thousands of them: many are read by one query.
 */
export async function isInRemovedFiles(duckdb: Duckdb, table: Table, target: ErasureTarget): Promise<boolean> {
  const snapshot = table.snapshot();
  const matches = matchSql(target, columnsOf(snapshot));
  const find = async (files: readonly string[]): Promise<boolean> => {
    const source = `read_parquet(${sqlList([snapshot.emptyFile, ...files])}, union_by_name = true, hive_partitioning = false)`;
    return (await duckdb.rows(`SELECT 1 AS found FROM ${source} WHERE ${matches} LIMIT 1`)).length > 0;
  };
  const removed = [...table.state().tombstones.keys()].map((encoded) =>
    path.join(table.dir, decodePath(encoded) ?? ''),
  );
  for (let from = 0; from < removed.length; from += filesPerLook) {
    const there: string[] = [];
    for (const file of removed.slice(from, from + filesPerLook)) if (await exists(file)) there.push(file);
    // Some may go meanwhile.
    const isAny = await find(there).catch(async () => {
      for (const file of there) if ((await exists(file)) && (await find([file]).catch(() => exists(file)))) return true;
      return false;
    });
    if (isAny) return true;
  }
  return false;
}

/** SQL of the rows to erase, some files by each query: `id_app`, `event_id`. */
export function listHitIdsSql(snapshot: Snapshot, hits: readonly Hit[], target: ErasureTarget): string[] {
  const matches = matchSql(target, columnsOf(snapshot));
  const queries: string[] = [];
  for (let from = 0; from < hits.length; from += filesPerLook) {
    const files = hits.slice(from, from + filesPerLook).map(({ file }) => file.absolutePath);
    queries.push(
      `SELECT id_app, event_id FROM read_parquet(${sqlList([snapshot.emptyFile, ...files])}, union_by_name = true, hive_partitioning = false) WHERE ${matches}`,
    );
  }
  return queries;
}

/** What the user ids of a target stand for in the files that have them. */
export async function findMeanings(
  duckdb: Duckdb,
  snapshot: Snapshot,
  hits: readonly Hit[],
  target: ErasureTarget,
): Promise<UserMeaning[]> {
  const { users } = target;
  if (users === undefined) return [];
  const { emptyFile } = snapshot;
  const columns = columnsOf(snapshot);
  const found = new Map<string, UserMeaning>();
  for (let from = 0; from < hits.length; from += filesPerLook) {
    const files = hits.slice(from, from + filesPerLook).map(({ file }) => file.absolutePath);
    const source = `read_parquet(${sqlList([emptyFile, ...files])}, union_by_name = true, hive_partitioning = false)`;
    for (const row of await duckdb.rows(userMeaningsSql({ ...target, users }, source, columns))) {
      const meaning = { id: String(row['id']), kind: row['kind'] as UserKind, idApp: Number(row['id_app']) };
      const key = JSON.stringify(meaning);
      found.set(key, { ...meaning, rows: (found.get(key)?.rows ?? 0) + Number(row['n']) });
    }
  }
  return [...found.values()];
}

/** What the rewrite of a table works with. */
export interface TableErasure {
  readonly dataset: Dataset;
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly signal: AbortSignal;
}

/** Rewrites some files without the rows to erase, by one commit; the old files wait for their readers. */
async function eraseFrom(
  { dataset, table, lakeDir, duckdb, clock, crashPoint, signal }: TableErasure,
  hits: readonly Hit[],
  matches: string,
  erasedApps: readonly number[],
): Promise<void> {
  const toQuery = (source: string): string => {
    if (signal.aborted) throw new AppError('stopping', 'the erasure was stopped; repeat it to finish');
    // The engine keeps the order of what it reads, without the memory of a sort.
    return `SELECT * FROM ${source} WHERE NOT (${matches})`;
  };
  const erased = sumHits(hits);
  const rewrites = hits.map(({ file, hits: rowsLeftOut }) => ({ file, rowsLeftOut, toQuery }));
  const stagingDir = tablePaths(lakeDir, dataset).staging;
  await rewriteFiles({ table, stagingDir, duckdb, clock, crashPoint }, rewrites, {
    cause: 'erase',
    totals: { stored: -erased, erased },
    erasedApps,
    metrics: { rows: erased },
  });
}

/** Rewrites all files that have rows to erase, some by each commit. Under the table's maintenance lock. */
export async function rewriteHits(erasure: TableErasure, hits: readonly Hit[], target: ErasureTarget): Promise<void> {
  const matches = matchSql(target, columnsOf(erasure.table.snapshot()));
  for (let from = 0; from < hits.length; from += filesPerCommit)
    await eraseFrom(erasure, hits.slice(from, from + filesPerCommit), matches, listHitApps(hits));
}
