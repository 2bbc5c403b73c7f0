/**
 * Runs DuckDB, the only engine that reads and writes the lake's Parquet files.
 *
 * In: statements of the service. Values are bound, names of files are quoted (literals.ts). Out: rows; errors `sql`,
 * `memory` and `disk`.
 * Invariant: an engine has limits of memory and threads.
 * Crash: an engine spills into the folder of its caller, who empties it at start.
 */
import path from 'node:path';
import * as duckdbApi from '@duckdb/node-api';
import type { DuckDBConnection } from '@duckdb/node-api';
import dataAccessors from '@duckdb/node-api/lib/vectors/dataAccessors.js';
import { ensureFolder } from '../../runtime/files/durable-file.ts';
import { AppError, isAppError, type ErrorCode } from '../../runtime/errors.ts';

export { duckdbApi };

// The library's decoder would drop a leading byte order mark of a text.
Object.assign(dataAccessors, { textDecoder: new TextDecoder('utf-8', { ignoreBOM: true }) });

/** Limits of an engine. `tempDir` stores spilled data, and is created on demand. Without it nothing spills. */
export interface DuckdbOptions {
  /** Limit of DuckDB's buffer manager, MiB. The process needs some more. */
  readonly memoryMb: number;
  readonly threads: number;
  readonly tempDir?: string;
  /** Whether row groups are limited by bytes (ROW_GROUP_SIZE_BYTES), in one thread and unordered except by ORDER BY. */
  readonly boundRowGroups?: boolean;
}

export type SqlValue = string | number | bigint | boolean | null;

/** A row: BIGINT as bigint, timestamps as Date, MAP as a list of { key, value }. DECIMAL loses digits. */
export type SqlRow = Readonly<Record<string, unknown>>;

/** An in-memory engine with one connection. Statements are serialized. */
export interface Duckdb {
  readonly memoryMb: number;
  readonly boundRowGroups?: boolean;
  run(sql: string, values?: readonly SqlValue[]): Promise<void>;
  /** Runs a query and returns all rows, which must be few. */
  rows(sql: string, values?: readonly SqlValue[]): Promise<SqlRow[]>;
  /** Returns columns of a small relation as lists of texts and numbers, at a quarter of the cost of rows. */
  columns(names: readonly string[], from: string): Promise<readonly (readonly unknown[])[]>;
  /** Streams the only column of a query, in lists. Other statements have to wait until the last one. */
  texts(sql: string): AsyncGenerator<readonly string[]>;
  /** Returns the columns of a query as arrays. All are UINTEGER and not NULL. For millions of rows. */
  integers(sql: string): Promise<readonly Uint32Array[]>;
  /** Appends columns to a temporary table of INTEGER columns. */
  appendIntegers(table: string, columns: readonly (readonly number[])[]): Promise<void>;
  /** Returns the progress of the running statement, 0 to 100, if known. */
  progress(): number | undefined;
  /** Aborts the running statement. A COPY leaves a partial file. */
  interrupt(): void;
  close(): void;
}

/** The statements of an engine, which the first of them may open. */
export type Statements = Pick<Duckdb, 'run' | 'rows'>;

const hints: Readonly<Partial<Record<ErrorCode, string>>> = {
  disk: 'Free space on the disk of the data folder.',
  memory: 'Raise TRIBUTARY_DUCKDB_MEMORY_MB.',
};

/** Start of the errors of the system or of the engine's memory. Others may quote client data. */
const ownTrouble = /^(?:IO|Out of Memory|FATAL|INTERNAL|TransactionContext) Error: |^(?:std::)?bad_alloc/;

/** Start of a quotation of data or of the statement. */
const quoted = /\nOriginal Line:|\n\nLINE \d/;

/** Returns the code of an error, by its text before any quotation. "Out of memory" may be a full disk. */
export function findErrorCode(message: string): 'disk' | 'memory' | 'sql' {
  if (!ownTrouble.test(message)) return 'sql';
  const [text = ''] = message.split(quoted);
  if (/No space left on device|Disk quota exceeded|out of disk|max_temp_directory_size/i.test(text)) return 'disk';
  return /Out of Memory Error|bad_alloc/i.test(text) ? 'memory' : 'sql';
}

function wrapError(error: unknown): AppError {
  const message = error instanceof Error ? error.message : String(error);
  const code = findErrorCode(message);
  return new AppError(code, `duckdb: ${message.split(/\n\n(?:Possible solutions|LINE )/)[0]}`, {
    cause: error,
    ...(hints[code] === undefined ? {} : { hint: hints[code] }),
  });
}

async function attempt<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw wrapError(error);
  }
}

interface Connected {
  readonly connection: DuckDBConnection;
  readonly close: () => void;
}

/** Opens an engine with limits. It never loads extensions, since a server must not download code. */
export async function connectDuckdb(
  { memoryMb, threads, tempDir }: Pick<DuckdbOptions, 'memoryMb' | 'threads' | 'tempDir'>,
  prepare: (connection: DuckDBConnection) => Promise<unknown>,
  settings: Readonly<Record<string, string>> = {},
): Promise<Connected> {
  const instance = await duckdbApi.DuckDBInstance.create(':memory:', {
    memory_limit: `${memoryMb}MiB`,
    threads: String(threads),
    ...(tempDir === undefined ? {} : { temp_directory: tempDir }),
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
    ...settings,
  });
  const connection = await instance.connect();
  const close = (): void => {
    connection.closeSync();
    instance.closeSync();
  };
  try {
    await connection.run("SET TimeZone = 'UTC'");
    await prepare(connection);
    return { connection, close };
  } catch (error) {
    close();
    throw error;
  }
}

async function connect(options: DuckdbOptions): Promise<Connected> {
  // DuckDB does not create the parent of its folder, and would fail only when it spills.
  if (options.tempDir !== undefined) await ensureFolder(path.dirname(options.tempDir));
  return await connectDuckdb(
    options,
    () => Promise.resolve(),
    options.boundRowGroups === true ? { preserve_insertion_order: 'false' } : {},
  );
}

/** Rows of a chunk: the engine's vector size. */
const chunkRows = 2048;

async function appendIntegers(
  connection: DuckDBConnection,
  table: string,
  columns: readonly (readonly number[])[],
): Promise<void> {
  const { DuckDBDataChunk, INTEGER } = duckdbApi;
  const rows = columns[0]?.length ?? 0;
  const types = columns.map(() => INTEGER);
  const appender = await connection.createAppender(table, 'main', 'temp');
  try {
    for (let from = 0; from < rows; from += chunkRows) {
      const chunk = DuckDBDataChunk.create(types, Math.min(chunkRows, rows - from));
      chunk.setColumns(columns.map((values) => values.slice(from, from + chunkRows)));
      appender.appendDataChunk(chunk);
    }
    appender.flushSync();
  } finally {
    appender.closeSync();
  }
}

async function readIntegers(connection: DuckDBConnection, sql: string): Promise<readonly Uint32Array[]> {
  // The result is complete: separate reads of chunks would take ten times as long.
  const result = await connection.run(sql);
  const chunks = Array.from({ length: result.chunkCount }, (_, index) => result.getChunk(index));
  const rows = chunks.reduce((sum, { rowCount }) => sum + rowCount, 0);
  return Array.from({ length: result.columnCount }, (_, column) => {
    const values = new Uint32Array(rows);
    let at = 0;
    for (const chunk of chunks) {
      const vector = chunk.getColumnVector(column);
      for (let row = 0; row < vector.itemCount; row += 1) values[at + row] = Number(vector.getItem(row));
      at += vector.itemCount;
    }
    return values;
  });
}

async function* streamTexts(connection: DuckDBConnection, sql: string): AsyncGenerator<readonly string[]> {
  const result = await attempt(() => connection.stream(sql));
  for (;;) {
    const chunk = await attempt(() => result.fetchChunk());
    if (chunk === null || chunk.rowCount === 0) return;
    const vector = chunk.getColumnVector(0);
    yield Array.from({ length: vector.itemCount }, (_, row) => String(vector.getItem(row)));
  }
}

/** Opens an engine. Errors: `disk` if the disk is full, `memory` if the limit is reached, else `sql`. */
export async function openDuckdb(options: DuckdbOptions): Promise<Duckdb> {
  const { connection, close } = await attempt(() => connect(options));
  const read = (sql: string, values?: readonly SqlValue[]) =>
    attempt(() => connection.runAndReadAll(sql, values?.slice()));
  return {
    memoryMb: options.memoryMb,
    boundRowGroups: options.boundRowGroups === true,
    run: (sql, values) => attempt(async () => void (await connection.run(sql, values?.slice()))),
    rows: async (sql, values) => (await read(sql, values)).getRowObjectsJS(),
    async columns(names, from) {
      const lists = names.map((name) => `CAST(to_json(list(${name})) AS VARCHAR)`);
      const [row = []] = (await read(`SELECT ${lists.join(', ')} FROM ${from}`)).getRows();
      return row.map((list) => {
        const values: unknown = JSON.parse(String(list ?? '[]'));
        return Array.isArray(values) ? values : [];
      });
    },
    texts: (sql) => streamTexts(connection, sql),
    integers: (sql) => attempt(() => readIntegers(connection, sql)),
    appendIntegers: (table, columns) => attempt(() => appendIntegers(connection, table, columns)),
    progress() {
      const { percentage } = connection.progress;
      return percentage >= 0 ? percentage : undefined;
    },
    interrupt: () => connection.interrupt(),
    close,
  };
}

/** Creates an engine that its first statement opens. Errors of a statement: also those of `openDuckdb`. */
export function createLazyDuckdb(options: DuckdbOptions): Statements & { close(): Promise<void> } {
  let opened: Promise<Duckdb> | undefined;
  const open = (): Promise<Duckdb> =>
    (opened ??= openDuckdb(options).catch((error: unknown) => {
      opened = undefined;
      throw error;
    }));
  return {
    run: async (sql, values) => (await open()).run(sql, values),
    rows: async (sql, values) => (await open()).rows(sql, values),
    close: async () => (await opened)?.close(),
  };
}

/** Reports whether an error is that of the query's files, and not of an interrupted or failed engine. */
export async function isFileError(duckdb: Statements, error: unknown): Promise<boolean> {
  if (!isAppError(error, 'sql') || error.message.startsWith('duckdb: INTERRUPT')) return false;
  return await duckdb.rows('SELECT 1').then(
    () => true,
    () => false,
  );
}
