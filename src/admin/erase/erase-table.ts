import { findStoredSize, localFiles, type StoredFile } from '../../runtime/store/open-store.ts';
import path from 'node:path';
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import { pruneFiles } from '../../lake/files/prune.ts';
import { rewriteFiles } from '../../lake/files/rewrite.ts';
import { assertFilesIntact } from '../../lake/files/data-file.ts';
import { decodePath } from '../../lake/log/actions.ts';
import { withEmptyFile, type DataFile, type Snapshot } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { parseSchemaString } from '../../lake/table-schema.ts';
import { countByFile, readFilesSql, inPortions, stagingOf } from '../tables.ts';
import { matchSql, userIdScopesSql, type ErasureTarget, type UserKind } from './erase-target.ts';

export interface UserIdScope {
  readonly id: string;
  readonly kind: UserKind;
  readonly idApp: number;
  readonly rows: number;
}

/** Maximum number of files per commit: staged files need their space twice. */
const filesPerCommit = 8;

/** A data file with rows to erase, and the number and apps of these rows. */
export interface FileToErase {
  readonly file: DataFile;
  readonly hits: number;
  readonly idApps: readonly number[];
}

export function columnsOf({ schemaString }: Snapshot): ReadonlySet<string> {
  return new Set(schemaString === undefined ? [] : parseSchemaString(schemaString).map(({ name }) => name));
}

export function sumHits(fileToErases: readonly FileToErase[]): number {
  return fileToErases.reduce((sum, fileToErase) => sum + fileToErase.hits, 0);
}

/** Finds the files of a table that have rows to erase. Error: `file_damaged` for a file that may have some. */
export async function findFilesToErase(
  duckdb: Duckdb,
  snapshot: Snapshot,
  target: ErasureTarget,
): Promise<FileToErase[]> {
  const files = pruneFiles(snapshot.files, target.apps === undefined ? {} : { idApps: target.apps });
  // A damaged file may hide rows to erase, and a rewrite would give its damaged rows a valid checksum.
  await assertFilesIntact(files);
  const apps = ", string_agg(DISTINCT id_app::VARCHAR, ',') AS apps";
  const fileToErases: FileToErase[] = [];
  const counts = countByFile(duckdb, { ...snapshot, files }, matchSql(target, columnsOf(snapshot)), apps);
  for await (const { file, row } of counts) {
    const idApps = typeof row['apps'] === 'string' ? row['apps'].split(',').map(Number) : [];
    fileToErases.push({ file, hits: Number(row['n']), idApps });
  }
  return fileToErases;
}

const isThere = async (file: StoredFile): Promise<boolean> => (await findStoredSize(file)) !== undefined;

/**
 * Reports whether removed files, which readers of older versions have, may hold rows of a target. A busy lake has
 * thousands of them: one query reads many.
 */
export async function isInRemovedFiles(duckdb: Duckdb, table: Table, target: ErasureTarget): Promise<boolean> {
  const snapshot = table.snapshot();
  const matches = matchSql(target, columnsOf(snapshot));
  const find = (files: readonly StoredFile[]): Promise<boolean> =>
    localFiles.use(withEmptyFile(snapshot, files), async (paths) => {
      const rows = await duckdb.rows(`SELECT 1 AS found FROM ${readFilesSql(paths)} WHERE ${matches} LIMIT 1`);
      return rows.length > 0;
    });
  const removed = [...table.state().tombstones.keys()].map((encoded) => ({
    absolutePath: path.join(table.dir, decodePath(encoded) ?? ''),
  }));
  for (const some of inPortions(removed)) {
    const existing: StoredFile[] = [];
    for (const file of some) if (await isThere(file)) existing.push(file);
    // A file may be removed meanwhile.
    const isAny = await find(existing).catch(async () => {
      for (const file of existing)
        if ((await isThere(file)) && (await find([file]).catch(() => isThere(file)))) return true;
      return false;
    });
    if (isAny) return true;
  }
  return false;
}

/** `paths`: those of the empty file and of files. */
const hitSources = ([emptyFile = '', ...paths]: readonly string[]): string[] =>
  [...inPortions(paths)].map((some) => readFilesSql([emptyFile, ...some]));

/**
 * SQL of the rows to erase, for a few files per query: `id_app`, `event_id`. `paths`: those of the empty file and of the
 * files.
 */
export function listHitIdsSql(snapshot: Snapshot, paths: readonly string[], target: ErasureTarget): string[] {
  const matches = matchSql(target, columnsOf(snapshot));
  return hitSources(paths).map((source) => `SELECT id_app, event_id FROM ${source} WHERE ${matches}`);
}

/** Finds the kinds and apps of a target's user ids in the files that have them. */
export async function findUserIdScopes(
  duckdb: Duckdb,
  snapshot: Snapshot,
  fileToErases: readonly FileToErase[],
  target: ErasureTarget,
): Promise<UserIdScope[]> {
  const { users } = target;
  if (users === undefined) return [];
  const found = new Map<string, UserIdScope>();
  const files = fileToErases.map(({ file }) => file);
  await localFiles.use(withEmptyFile(snapshot, files), async (paths) => {
    for (const source of hitSources(paths))
      for (const row of await duckdb.rows(userIdScopesSql({ ...target, users }, source, columnsOf(snapshot)))) {
        const meaning = { id: String(row['id']), kind: row['kind'] as UserKind, idApp: Number(row['id_app']) };
        const key = JSON.stringify(meaning);
        found.set(key, { ...meaning, rows: (found.get(key)?.rows ?? 0) + Number(row['n']) });
      }
  });
  return [...found.values()];
}

export interface TableErasure {
  readonly dataset: Dataset;
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly signal: AbortSignal;
}

/** Rewrites files without the rows to erase, a few per commit. Called under the maintenance lock. */
export async function rewriteHits(
  erasure: TableErasure,
  fileToErases: readonly FileToErase[],
  target: ErasureTarget,
): Promise<void> {
  const { table, lakeDir, duckdb, clock, crashPoint, signal } = erasure;
  const matches = matchSql(target, columnsOf(table.snapshot()));
  const erasedApps = [...new Set(fileToErases.flatMap(({ idApps }) => idApps))];
  const toQuery = (source: string): string => {
    if (signal.aborted) throw new AppError('stopping', 'the erasure was stopped; repeat it to finish');
    // The engine keeps the order of its input, without a sort.
    return `SELECT * FROM ${source} WHERE NOT (${matches})`;
  };
  for (const some of inPortions(fileToErases, filesPerCommit)) {
    const erased = sumHits(some);
    await rewriteFiles(
      { table, stagingDir: stagingOf(table, lakeDir), duckdb, clock, crashPoint },
      some.map(({ file, hits: rowsLeftOut }) => ({ file, rowsLeftOut, toQuery })),
      { cause: 'erase', totals: { stored: -erased, erased }, erasedApps, metrics: { rows: erased } },
    );
  }
}
