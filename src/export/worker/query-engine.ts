import type { DuckDBConnection, DuckDBResultReader, DuckDBType, DuckDBValue } from '@duckdb/node-api';
import { duckdbApi, findErrorCode } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import { describeFileSql } from '../../lake/table-schema.ts';
import { AppError } from '../../runtime/errors.ts';
import type { Statement } from './export-query.ts';
import type { ExportApp } from '../jobs/export-spec.ts';

const { BIGINT, DuckDBInstance, LIST, listValue, VARCHAR } = duckdbApi;

/** An engine that reads the data files of one export and writes one file of rows, and can do nothing else. */
export interface QueryEngine {
  /** The columns of one of the files, as `hasColumns` (table-schema.ts) takes them. */
  describe(file: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
  /**
   * Runs a statement over some files, absolute paths of which the first holds every column, so that the list is never
   * empty. Returns its number: that of its only row, or of the rows that it has written.
   */
  run(statement: Statement, files: readonly string[]): Promise<number>;
  /** Runs a statement over some files, as `run` does, and returns all of its rows by column. */
  rows(statement: Statement, files: readonly string[]): Promise<readonly Readonly<Record<string, unknown>>[]>;
  /** Writes the rows of a query to a file, as `copyOptions` (formats/format.ts) say. Returns the number of rows. */
  copyTo(select: Statement, files: readonly string[], file: string, copyOptions: string): Promise<number>;
  /** Share of the running statement that is done, 0 to 1. */
  progress(): number;
  interrupt(): void;
  close(): void;
}

interface QueryEngineOptions {
  readonly apps: readonly ExportApp[];
  /** As the query has it. */
  readonly inline: boolean;
  /** Folders the engine may touch: the table's, and the one it writes into. */
  readonly folders: readonly string[];
  readonly tempDir: string;
  /** What a sort that the memory has no room for may write there, bytes; then the statement fails with `disk`. */
  readonly tempMaxBytes: number;
  readonly memoryMb: number;
  readonly threads: number;
}

function wrap(error: unknown): AppError {
  const message = error instanceof Error ? error.message : String(error);
  return new AppError(findErrorCode(message), `duckdb: ${message}`, { cause: error });
}

function bind(values: Statement['values']): [Record<string, DuckDBValue>, Record<string, DuckDBType>] {
  const bound: Record<string, DuckDBValue> = {};
  const types: Record<string, DuckDBType> = {};
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === 'object') {
      bound[name] = listValue([...value]);
      types[name] = LIST(typeof value[0] === 'bigint' ? BIGINT : VARCHAR);
    } else {
      bound[name] = value;
      types[name] = typeof value === 'bigint' ? BIGINT : VARCHAR;
    }
  }
  return [bound, types];
}

async function defineApps(connection: DuckDBConnection, apps: readonly ExportApp[]): Promise<void> {
  const [values, types] = bind({
    ids: apps.map((app) => BigInt(app.idApp)),
    keys: apps.map((app) => app.sdkKey),
    titles: apps.map((app) => app.title),
    platforms: apps.map((app) => app.platform),
    accounts: apps.map((app) => BigInt(app.idAccount)),
    projects: apps.map((app) => (app.idProject === undefined ? '' : String(app.idProject))),
  });
  await connection.run(
    `CREATE TEMP TABLE apps AS SELECT unnest($ids) AS id_app, unnest($keys) AS sdk_key, unnest($titles) AS title, unnest($platforms) AS platform,
       unnest($accounts) AS id_account, nullif(unnest($projects), '') AS id_project`,
    values,
    types,
  );
}

/**
 * Opens the engine and locks it in: its own limits first, then the folders, then no other outside access, then no
 * further change of settings. The order matters: each step forbids what the one before needed. The lock makes no
 * difference between reading and writing; the process is the last wall.
 */
export async function openQueryEngine(options: QueryEngineOptions): Promise<QueryEngine> {
  const instance = await DuckDBInstance.create(':memory:', {
    memory_limit: `${options.memoryMb}MiB`,
    threads: String(options.threads),
    temp_directory: options.tempDir,
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
  });
  const connection = await instance.connect();
  try {
    const settings = [
      "SET TimeZone = 'UTC'",
      'SET enable_progress_bar = true',
      'SET enable_progress_bar_print = false',
      // What is freed is used again: pages given back to the kernel would have to be taken, and cleared, anew.
      "SET allocator_flush_threshold = '8GiB'",
      "SET allocator_bulk_deallocation_flush_threshold = '8GiB'",
      // Given at the creation, the bound is shown and not kept.
      `SET max_temp_directory_size = '${Math.ceil(options.tempMaxBytes / 1024 ** 2)}MiB'`,
      // Turning a set into a join would lose the order of the rows.
      ...(options.inline ? ["SET disabled_optimizers = 'in_clause'"] : []),
      `SET allowed_directories = ${sqlList(options.folders)}`,
      'SET enable_external_access = false',
      'SET lock_configuration = true',
    ];
    await connection.run(settings.join('; '));
    await defineApps(connection, options.apps);
  } catch (error) {
    connection.closeSync();
    instance.closeSync();
    throw wrap(error);
  }

  async function read({ sql, values }: Statement, files: readonly string[]): Promise<DuckDBResultReader> {
    try {
      // The engine refuses a value that no parameter takes.
      const bound = sql.includes('$files') ? { ...values, files } : values;
      return await connection.runAndReadAll(sql, ...bind(bound));
    } catch (error) {
      throw wrap(error);
    }
  }

  async function run(statement: Statement, files: readonly string[]): Promise<number> {
    return Number((await read(statement, files)).getRows()[0]?.[0]);
  }

  return {
    async describe(file) {
      try {
        return (await connection.runAndReadAll(describeFileSql(file))).getRowObjectsJS();
      } catch (error) {
        throw wrap(error);
      }
    },
    run,
    rows: async (statement, files) => (await read(statement, files)).getRowObjectsJS(),
    copyTo: ({ sql, values }, files, file, copyOptions) =>
      run({ sql: `COPY (${sql}) TO $file (FORMAT ${copyOptions})`, values: { ...values, file } }, files),
    progress: () => Math.min(1, Math.max(0, connection.progress.percentage / 100)),
    interrupt: () => connection.interrupt(),
    close() {
      connection.closeSync();
      instance.closeSync();
    },
  };
}
