import { writeFileSync } from 'node:fs';
import { DuckDBInstance, type DuckDBConnection, type DuckDBValue } from '@duckdb/node-api';
import type { Duckdb, DuckdbOptions, SqlRow, SqlValue } from '../../src/lake/sql/duckdb.ts';
import { AppError, type ErrorCode } from '../../src/runtime/errors.ts';
import { activeWorld, type Hazards, type World } from './world.ts';

/**
 * The SQL engine is real: a flush drops, sorts and counts rows in its statements, and one takes only half a
 * millisecond. All simulated processes share one instance. Each `openDuckdb` is a connection of it, and its temporary
 * tables end with it. A statement is one operation. It may fail, and a COPY that is killed or fails leaves a partial
 * file.
 */

let shared: Promise<DuckDBInstance> | undefined;

async function openShared(): Promise<DuckDBInstance> {
  const instance = await DuckDBInstance.create(':memory:', {
    threads: '1',
    memory_limit: '512MiB',
    enable_external_file_cache: 'false',
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
  });
  const connection = await instance.connect();
  await connection.run("SET GLOBAL TimeZone = 'UTC'");
  connection.closeSync();
  return instance;
}

function hazardsOf(sql: string, isInterrupted: () => boolean): Hazards {
  const world = activeWorld();
  const target = /\bTO '([^']+)' \(FORMAT/.exec(sql)?.[1];
  const half = (): void => {
    if (target !== undefined) writeFileSync(target, 'PAR1 and then nothing');
  };
  return {
    torn: half,
    fault() {
      half();
      const full = target !== undefined && world?.random.chance(0.3) === true;
      return {
        error: new AppError(
          full ? 'disk' : 'sql',
          `duckdb: simulated ${full ? 'No space left on device' : isInterrupted() ? 'INTERRUPT' : 'IO Error'}`,
        ),
        done: false,
      };
    },
  };
}

/** Returns the memory limit of a COPY, which depends on the source of its rows. */
function limitOf(source: string): number {
  const memory = activeWorld()?.memory;
  if (memory === undefined) return Infinity;
  // A flush validates event lines as it reads them; a checkpoint does not.
  if (source.includes('read_json(') && !source.includes('error(')) return memory.checkpointRows;
  return source.includes('read_parquet(') ? memory.rewriteRows : memory.flushRows;
}

/** Fails with out of memory as the engine does: while it collects the rows of a COPY, with a partial file. */
async function assertMemory(connection: DuckDBConnection, sql: string): Promise<void> {
  const [, source, target] = /^\s*COPY \(([^]*)\)\s*TO '([^']+)' \(FORMAT/.exec(sql) ?? [];
  if (source === undefined || target === undefined || limitOf(source) === Infinity) return;
  const [[rows] = []] = (await connection.runAndReadAll(`SELECT count(*) FROM (${source})`)).getRows();
  if (Number(rows) <= limitOf(source)) return;
  writeFileSync(target, 'PAR1 and then nothing');
  activeWorld()?.count('outOfMemory');
  throw new Error('Out of Memory Error: failed to allocate data of size 256.0 KiB (256.0 MiB/256.0 MiB used)');
}

/** Returns the service's code for an error of the engine; this double replaces the module that assigns it. */
function codeOf(message: string): ErrorCode {
  return message.includes('Out of Memory Error') ? 'memory' : 'sql';
}

/** Reports the files that a statement names to the world. */
function touchFiles(world: World, sql: string): void {
  for (const [, text = ''] of sql.matchAll(/'((?:[^']|'')*)'/g))
    if (text.startsWith(world.disk.root)) world.touch(text);
}

/** Returns the first words of a statement without paths and UUIDs. */
function gist(sql: string): string {
  return sql.trim().replaceAll(/\s+/g, ' ').slice(0, 40);
}

async function connect(): Promise<DuckDBConnection> {
  return (await (shared ??= openShared())).connect();
}

async function appendRows(
  connection: DuckDBConnection,
  table: string,
  columns: readonly (readonly number[])[],
): Promise<void> {
  const appender = await connection.createAppender(table, 'main', 'temp');
  for (const row of (columns[0] ?? []).keys()) {
    for (const values of columns) appender.appendInteger(values[row] ?? 0);
    appender.endRow();
  }
  appender.closeSync();
}

/** The double of `openDuckdb`. */
export async function openSimulatedDuckdb(options: DuckdbOptions): Promise<Duckdb> {
  const world = activeWorld();
  const owner = world?.current();
  const connection = await (world === undefined ? connect() : world.operate('sql connect', connect));
  let isInterrupted = false;
  const close = (): void => {
    if (owner === undefined || owner.onEnd.delete(close)) connection.closeSync();
  };
  owner?.onEnd.add(close);

  async function statement<T>(sql: string, execute: () => Promise<T>): Promise<T> {
    isInterrupted = false;
    const run = async (): Promise<T> => {
      if (isInterrupted) throw new AppError('sql', 'duckdb: INTERRUPT Error');
      try {
        await assertMemory(connection, sql);
        return await execute();
      } catch (error) {
        throw new AppError(codeOf(String(error)), `duckdb: ${String(error)}`, { cause: error });
      }
    };
    if (world !== undefined) touchFiles(world, sql);
    return world === undefined
      ? run()
      : world.operate(
          `sql ${gist(sql)}`,
          run,
          hazardsOf(sql, () => isInterrupted),
        );
  }

  return {
    memoryMb: options.memoryMb,
    run: (sql: string, values?: readonly SqlValue[]) =>
      statement(sql, async () => void (await connection.run(sql, values as DuckDBValue[] | undefined))),
    rows: (sql: string, values?: readonly SqlValue[]): Promise<SqlRow[]> =>
      statement(sql, async () =>
        (await connection.runAndReadAll(sql, values as DuckDBValue[] | undefined)).getRowObjectsJS(),
      ),
    columns: (names: readonly string[], from: string) => {
      const sql = `SELECT ${names.map((name) => `list(${name})`).join(', ')} FROM ${from}`;
      return statement(sql, async () => {
        const [row = []] = (await connection.runAndReadAll(sql)).getRowsJS();
        return row.map((list) => (list ?? []) as unknown[]);
      });
    },
    async *texts(sql: string) {
      yield await statement(sql, async () =>
        (await connection.runAndReadAll(sql)).getRows().map(([text]) => String(text)),
      );
    },
    integers: (sql: string) =>
      statement(sql, async () => {
        const columns = (await connection.runAndReadAll(sql)).getColumnsJS();
        return columns.map((values) => Uint32Array.from(values, Number));
      }),
    appendIntegers: (table: string, columns: readonly (readonly number[])[]) =>
      statement(`append to ${table}`, () => appendRows(connection, table, columns)),
    progress: () => undefined,
    interrupt() {
      isInterrupted = true;
    },
    close,
  };
}
