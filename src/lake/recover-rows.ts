import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { removeFile } from '../runtime/durable-file.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Action } from './actions.ts';
import { toAdd, writeDataFile } from './data-file.ts';
import { sqlList, sqlText, type Duckdb } from './duckdb.ts';
import { carryOut, openStaging } from './intent.ts';
import type { MissingFile } from './missing-files.ts';
import { pruneFiles } from './prune.ts';
import { youngFolder } from './snapshot.ts';
import type { Change, Table } from './table.ts';
import { parseSchemaString } from './table-schema.ts';

export interface RecoverDependencies {
  readonly table: Table;
  readonly stagingDir: string;
  readonly duckdb: Duckdb;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** SQL that is true for a row that one of the missing files may have had, by what the log says of it. */
function boundsSql(table: Table, missing: readonly MissingFile[]): string {
  const gone = new Set(missing.map((file) => file.path));
  const parts = table
    .snapshot()
    .files.filter((file) => gone.has(file.path))
    .map(({ minValues, maxValues }) => {
      const within = (column: string, type: string): string => `c.${column} BETWEEN ${sqlText(String(minValues[column]))}::${type} AND ${sqlText(String(maxValues[column]))}::${type}`;
      return `(${within('event_id', 'VARCHAR')} AND ${within('available_at', 'TIMESTAMPTZ')})`;
    });
  return parts.length === 0 ? 'false' : parts.join(' OR ');
}

/**
 * Removes the copies whose every row the table has, by its event id, of what repairs have put aside: whoever is erased later
 * must not stay readable in them. Returns those that went.
 */
export async function dropKnownCopies({ table, duckdb }: RecoverDependencies, copies: readonly string[]): Promise<string[]> {
  const { files, emptyFile } = table.snapshot();
  const dropped: string[] = [];
  const hasOnlyKnownRows = async (copy: string): Promise<boolean> => {
    const [range] = await duckdb.rows(`SELECT count(*) AS n, epoch_ms(min(available_at)) AS low, epoch_ms(max(available_at)) AS high FROM ${readSql(emptyFile, [copy])}`);
    if (range === undefined || range['low'] === null) return Number(range?.['n']) === 0;
    const near = pruneFiles(files, { availableAt: { fromMs: Number(range['low']), toMs: Number(range['high']) } });
    const [row] = await duckdb.rows(`SELECT count(*) AS n FROM ${readSql(emptyFile, [copy])} AS c ANTI JOIN ${readSql(emptyFile, near.map((file) => file.absolutePath))} AS t ON t.event_id = c.event_id`);
    return Number(row?.['n']) === 0;
  };
  for (const copy of copies) {
    // Whatever cannot be read, or has other columns, stays.
    if (!(await hasOnlyKnownRows(copy).catch(() => false))) continue;
    await removeFile(copy);
    dropped.push(copy);
  }
  return dropped;
}

function readSql(emptyFile: string, list: readonly string[]): string {
  return `read_parquet(${sqlList([emptyFile, ...list])}, union_by_name = true, hive_partitioning = false)`;
}

/**
 * Takes the rows of files that are gone from the copies that another engine has made of them, such as its OPTIMIZE before a
 * VACUUM: rows of the copies that no file still there has, and that a missing one may have had. They become one young file in
 * the place of the missing ones, by one commit. `partly`: also when fewer rows are found than are missing; the rest counts as
 * erased. Returns how many rows were found; nothing is changed when they are not those that are missing. Under the
 * maintenance lock. The values are those that the other engine has kept.
 */
export async function recoverRows(dependencies: RecoverDependencies, missing: readonly MissingFile[], copies: readonly string[], partly: boolean): Promise<number> {
  const { table, stagingDir, duckdb, clock, crashPoint } = dependencies;
  const { files, emptyFile, schemaString } = table.snapshot();
  const gone = new Set(missing.map((file) => file.path));
  const wanted = missing.reduce((sum, file) => sum + file.rows, 0);
  const there = files.filter((file) => !gone.has(file.path)).map((file) => file.absolutePath);
  const columns = schemaString === undefined ? '*' : parseSchemaString(schemaString).map(({ name, type }) => `CAST(c.${name} AS ${type}) AS ${name}`).join(', ');
  const query = `SELECT ${columns} FROM ${readSql(emptyFile, copies)} AS c ANTI JOIN ${readSql(emptyFile, there)} AS t ON t.event_id = c.event_id WHERE ${boundsSql(table, missing)}`;

  const commitId = randomUUID();
  const folder = await openStaging(stagingDir, commitId);
  const written = await writeDataFile(duckdb, query, path.join(folder, 'rows.parquet')).catch(async (error: unknown) => {
    await rm(folder, { recursive: true, force: true });
    throw error;
  });
  const found = written.numRecords;
  if (found > wanted || (found < wanted && !partly) || found === 0) {
    await rm(folder, { recursive: true, force: true });
    return found;
  }
  const nowMs = clock.nowMs();
  const relative = path.join(youngFolder, `${commitId}.parquet`);
  const actions: Action[] = [
    ...missing.map((file) => ({ remove: { path: encodeURI(file.path), deletionTimestamp: nowMs, dataChange: found < wanted } })),
    { add: toAdd(relative, written, nowMs, found < wanted) },
  ];
  const lost = wanted - found;
  const change: Change = { cause: 'repair', actions, totals: { stored: -lost, erased: lost }, metrics: { rows: found, lost, filesIn: missing.length } };
  const moves = [{ name: 'rows.parquet', to: path.join(table.dir, relative) }];
  await carryOut(table, stagingDir, { commitId, baseVersion: table.state().version, moves, change, unlink: [] }, crashPoint);
  return found;
}
