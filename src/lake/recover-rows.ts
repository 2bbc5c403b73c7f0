import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Action } from './actions.ts';
import { toAdd, writeDataFile } from './data-file.ts';
import { sqlList, sqlText, type Duckdb } from './duckdb.ts';
import { carryOut, openStaging } from './intent.ts';
import type { MissingFile } from './missing-files.ts';
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
      const within = (column: string, type: string): string => `${column} BETWEEN ${sqlText(String(minValues[column]))}::${type} AND ${sqlText(String(maxValues[column]))}::${type}`;
      return `(${within('event_id', 'VARCHAR')} AND ${within('available_at', 'TIMESTAMPTZ')})`;
    });
  return parts.length === 0 ? 'false' : parts.join(' OR ');
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
  const columns = schemaString === undefined ? '*' : parseSchemaString(schemaString).map(({ name, type }) => `CAST(${name} AS ${type}) AS ${name}`).join(', ');
  const read = (list: readonly string[]): string => `read_parquet(${sqlList([emptyFile, ...list])}, union_by_name = true, hive_partitioning = false)`;
  const query = `SELECT ${columns} FROM ${read(copies)} AS c WHERE (${boundsSql(table, missing)}) AND NOT EXISTS (SELECT 1 FROM ${read(there)} AS t WHERE t.event_id = c.event_id)`;

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
