import type { DuckDBConnection, DuckDBResultReader, DuckDBType, DuckDBValue } from '@duckdb/node-api';
import { connectDuckdb, duckdbApi, findErrorCode } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import { describeFileSql } from '../../lake/table-schema.ts';
import { AppError } from '../../runtime/errors.ts';
import type { ExportStatement } from './export-query.ts';
import type { ExportApp } from '../jobs/export-spec.ts';
import type { WorkerLimits } from '../jobs/worker-messages.ts';

const { BIGINT, LIST, listValue, VARCHAR } = duckdbApi;

/** A DuckDB engine locked to the data files and the work folder of one export. */
export interface QueryEngine {
  /** Describes the columns of a file, for `hasColumns` (table-schema.ts). */
  describe(file: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
  /**
   * Runs a statement over files; the first has every column, so that the list is never empty. Returns the number in its
   * only row, or the number of written rows.
   */
  run(exportStatement: ExportStatement, files: readonly string[]): Promise<number>;
  /** Runs a statement as `run` does, and returns its rows. */
  rows(
    exportStatement: ExportStatement,
    files: readonly string[],
  ): Promise<readonly Readonly<Record<string, unknown>>[]>;
  /** Writes the rows of a query to a file by `copyOptions` (formats/format.ts); returns their number. */
  copyTo(select: ExportStatement, files: readonly string[], file: string, copyOptions: string): Promise<number>;
  progress(): number;
  interrupt(): void;
  close(): void;
}

interface QueryEngineOptions {
  readonly apps: readonly ExportApp[];
  readonly inline: boolean;
  readonly folders: readonly string[];
  readonly tempDir: string;
  /** Bytes that a sort may write there, at most; then the statement fails with `disk`. */
  readonly tempMaxBytes: number;
  readonly memoryMb: number;
  readonly threads: number;
}

function wrap(error: unknown): AppError {
  const message = error instanceof Error ? error.message : String(error);
  return new AppError(findErrorCode(message), `duckdb: ${message}`, { cause: error });
}

function bind(values: ExportStatement['values']): [Record<string, DuckDBValue>, Record<string, DuckDBType>] {
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
 * Opens and locks an engine. The order matters: limits, folders, no other access, no further settings. The lock does
 * not separate reading from writing; the process does.
 */
export async function openQueryEngine(options: QueryEngineOptions): Promise<QueryEngine> {
  const { connection, close } = await connectDuckdb(options, async (opened) => {
    const settings = [
      'SET enable_progress_bar = true',
      'SET enable_progress_bar_print = false',
      // Freed memory is reused: returning it to the kernel would clear it each time.
      "SET allocator_flush_threshold = '8GiB'",
      "SET allocator_bulk_deallocation_flush_threshold = '8GiB'",
      // A limit given at the creation is shown, not applied.
      `SET max_temp_directory_size = '${Math.ceil(options.tempMaxBytes / 1024 ** 2)}MiB'`,
      // A join instead of a set would lose the order of rows.
      ...(options.inline ? ["SET disabled_optimizers = 'in_clause'"] : []),
      `SET allowed_directories = ${sqlList(options.folders)}`,
      'SET enable_external_access = false',
      'SET lock_configuration = true',
    ];
    await opened.run(settings.join('; '));
    await defineApps(opened, options.apps);
  }).catch((error: unknown) => {
    throw wrap(error);
  });

  async function read({ sql, values }: ExportStatement, files: readonly string[]): Promise<DuckDBResultReader> {
    try {
      // The engine rejects values without a parameter.
      const bound = sql.includes('$files') ? { ...values, files } : values;
      return await connection.runAndReadAll(sql, ...bind(bound));
    } catch (error) {
      throw wrap(error);
    }
  }

  async function run(exportStatement: ExportStatement, files: readonly string[]): Promise<number> {
    return Number((await read(exportStatement, files)).getRows()[0]?.[0]);
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
    rows: async (exportStatement, files) => (await read(exportStatement, files)).getRowObjectsJS(),
    copyTo: ({ sql, values }, files, file, copyOptions) =>
      run({ sql: `COPY (${sql}) TO $file (FORMAT ${copyOptions})`, values: { ...values, file } }, files),
    progress: () => Math.min(1, Math.max(0, connection.progress.percentage / 100)),
    interrupt: () => connection.interrupt(),
    close,
  };
}

/** Memory of an engine that writes nothing: enough for several row groups. */
const readMemoryMb = 384;

/** Opens an engine that writes no files and does not spill. */
export function openReadEngine(
  {
    apps,
    limits,
  }: { readonly apps: readonly ExportApp[]; readonly limits: Pick<WorkerLimits, 'memoryMb' | 'threads'> },
  folders: readonly string[],
  inline: boolean,
): Promise<QueryEngine> {
  const memoryMb = Math.min(limits.memoryMb, readMemoryMb);
  return openQueryEngine({ apps, inline, folders, tempDir: '', tempMaxBytes: 0, memoryMb, threads: limits.threads });
}
