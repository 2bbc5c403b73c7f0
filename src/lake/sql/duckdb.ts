/**
 * DuckDB: the one engine that reads and writes Parquet in the lake, and the SQL that others read it by
 * (snapshot-sql.ts).
 *
 * In: statements of the service's own words; values are bound, names of files are quoted (literals.ts). Out: rows;
 * errors with the codes `sql`, `memory` and `disk`.
 * Invariant: an engine has a bound on memory and threads, and no other library touches Parquet.
 * Crash: what an engine spills lies in the folder that its caller gave it and empties at start; snapshot.sql is written
 * whole.
 */
import path from 'node:path';
import * as duckdbApi from '@duckdb/node-api';
import type { DuckDBConnection, DuckDBInstance, DuckDBValue } from '@duckdb/node-api';
import dataAccessors from '@duckdb/node-api/lib/vectors/dataAccessors.js';
import { ensureFolder } from '../../runtime/files/durable-file.ts';
import { AppError, type ErrorCode } from '../../runtime/errors.ts';

/** The engine's library. */
export { duckdbApi };

// The library's own decoder drops a byte order mark that a text begins with: the client's text would be another one.
Object.assign(dataAccessors, { textDecoder: new TextDecoder('utf-8', { ignoreBOM: true }) });

/**
 * Limits of one DuckDB engine. `tempDir` takes what does not fit into memory, and is made when it is needed; without
 * one, nothing spills.
 */
export interface DuckdbOptions {
  /** Bound of DuckDB's buffer manager, MiB; the process itself needs some more. */
  readonly memoryMb: number;
  readonly threads: number;
  readonly tempDir?: string;
  /**
   * Bound row groups by their bytes in memory (ROW_GROUP_SIZE_BYTES), which DuckDB does for one thread without a
   * promise of order; ORDER BY holds.
   */
  readonly boundRowGroups?: boolean;
}

/** A value bound to a statement's parameter; never spliced into its text. */
export type SqlValue = string | number | bigint | boolean | null;

/**
 * One row: BIGINT as bigint, timestamps as Date, MAP as a list of { key, value }. DECIMAL loses digits: cast it to
 * VARCHAR.
 */
export type SqlRow = Readonly<Record<string, unknown>>;

/** An in-memory DuckDB engine with one connection: statements run one after the other. */
export interface Duckdb {
  /** As in the options. */
  readonly memoryMb: number;
  readonly boundRowGroups?: boolean;
  /** Runs a statement for its effect. */
  run(sql: string, values?: readonly SqlValue[]): Promise<void>;
  /** Runs a query and returns all its rows; keep the result small. */
  rows(sql: string, values?: readonly SqlValue[]): Promise<SqlRow[]>;
  /**
   * Returns columns of a relation, each a list of its values as JSON has them, in one order: texts and numbers, at a
   * quarter of what rows cost. Keep the result small.
   */
  columns(names: readonly string[], from: string): Promise<readonly (readonly unknown[])[]>;
  /**
   * Runs a query whose columns are all UINTEGER and never NULL; returns each as an array, for far less than rows
   * cost: millions are no trouble.
   */
  integers(sql: string): Promise<readonly Uint32Array[]>;
  /** Appends rows to a temporary table whose columns are all INTEGER: a list of values for each column. */
  appendIntegers(table: string, columns: readonly (readonly number[])[]): Promise<void>;
  /** How far the running statement is, 0 to 100; undefined when it is not known. */
  progress(): number | undefined;
  /** Ends the running statement with an error; a COPY leaves a partial file behind. */
  interrupt(): void;
  close(): void;
}

const hints: Readonly<Partial<Record<ErrorCode, string>>> = {
  disk: 'Free space on the disk of the data folder.',
  memory: 'Raise TRIBUTARY_DUCKDB_MEMORY_MB.',
};

/**
 * What an error of the system, or of the engine's own memory, begins with; any other may quote a value, or a line of a
 * file, that somebody wrote.
 */
const ownTrouble = /^(?:IO|Out of Memory|FATAL|INTERNAL|TransactionContext) Error: |^(?:std::)?bad_alloc/;

/** Where an error begins to quote a line of a file, or the statement. */
const quoted = /\nOriginal Line:|\n\nLINE \d/;

/**
 * The code of an engine's error, by its message: its class, and what it says before it quotes anything. What does not
 * fit on the disk that it spills to is called "out of memory" too.
 */
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

async function connect(options: DuckdbOptions): Promise<{ instance: DuckDBInstance; connection: DuckDBConnection }> {
  // DuckDB does not create the parent of its folder, and fails only when it first spills.
  if (options.tempDir !== undefined) await ensureFolder(path.dirname(options.tempDir));
  const instance = await duckdbApi.DuckDBInstance.create(':memory:', {
    memory_limit: `${options.memoryMb}MiB`,
    threads: String(options.threads),
    ...(options.tempDir === undefined ? {} : { temp_directory: options.tempDir }),
    // Extensions are neither fetched nor loaded: the lake needs none, and a server must not fetch code.
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
    ...(options.boundRowGroups === true ? { preserve_insertion_order: 'false' } : {}),
  });
  const connection = await instance.connect();
  await connection.run("SET TimeZone = 'UTC'");
  return { instance, connection };
}

/** Rows of one chunk that is appended: those of the engine's own vectors. */
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
  // The result is there as a whole: to ask for its chunks one by one, each time in vain, would take ten times as long.
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

/**
 * Opens an engine. Errors: `disk` where the message says the disk is full, `memory` where the limit is reached, else
 * `sql`.
 */
export async function openDuckdb(options: DuckdbOptions): Promise<Duckdb> {
  const { instance, connection } = await connect(options).catch((error: unknown) => {
    throw wrapError(error);
  });
  return {
    memoryMb: options.memoryMb,
    boundRowGroups: options.boundRowGroups === true,
    async run(sql, values) {
      try {
        await connection.run(sql, values as DuckDBValue[] | undefined);
      } catch (error) {
        throw wrapError(error);
      }
    },
    async rows(sql, values) {
      try {
        return (await connection.runAndReadAll(sql, values as DuckDBValue[] | undefined)).getRowObjectsJS();
      } catch (error) {
        throw wrapError(error);
      }
    },
    async columns(names, from) {
      const lists = names.map((name) => `CAST(to_json(list(${name})) AS VARCHAR)`);
      try {
        const [row = []] = (await connection.runAndReadAll(`SELECT ${lists.join(', ')} FROM ${from}`)).getRows();
        return row.map((list) => JSON.parse(typeof list === 'string' ? list : '[]') as unknown[]);
      } catch (error) {
        throw wrapError(error);
      }
    },
    async integers(sql) {
      try {
        return await readIntegers(connection, sql);
      } catch (error) {
        throw wrapError(error);
      }
    },
    async appendIntegers(table, columns) {
      try {
        await appendIntegers(connection, table, columns);
      } catch (error) {
        throw wrapError(error);
      }
    },
    progress() {
      const { percentage } = connection.progress;
      return percentage >= 0 ? percentage : undefined;
    },
    interrupt: () => connection.interrupt(),
    close() {
      connection.closeSync();
      instance.closeSync();
    },
  };
}
