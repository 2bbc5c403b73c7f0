import type { DuckDBResult } from '@duckdb/node-api';
import { AppError } from '../../runtime/errors.ts';
import { membersOf } from '../../runtime/files/checksummed-json.ts';
import { isText } from '../../runtime/store/shape.ts';
import { connectDuckdb, findErrorCode } from './duckdb.ts';
import { sqlList, sqlText } from './literals.ts';

/** A row of a result: texts as the engine casts them, null for NULL. */
export type TextRow = readonly (string | null)[];

/** An engine for SQL of users, which can only read files of some folders. */
export interface ReadOnlyEngine {
  /** Checks that a statement is one SELECT or equivalent, or EXPLAIN of one, and returns which. Error: `sql`. */
  check(sql: string): Promise<'select' | 'explain'>;
  /** Returns the column names of a checked statement, and its rows as they arrive. */
  stream(sql: string): Promise<{ readonly names: readonly string[]; readonly rows: AsyncIterable<readonly TextRow[]> }>;
  /** Returns the rows of a checked SELECT as JSON objects. */
  streamJson(sql: string): AsyncIterable<readonly string[]>;
  /** Writes the rows of a checked SELECT to the output file in a `format` of COPY. Returns their number. */
  copy(sql: string, format: string): Promise<number>;
  interrupt(): void;
  close(): void;
}

export interface ReadOnlyEngineOptions {
  readonly memoryMb: number;
  readonly threads: number;
  /** Folder for spilled data, created on demand. */
  readonly tempDir: string;
  /** Statements of the service that create views before the engine is locked. */
  readonly views: readonly string[];
  readonly folders: readonly string[];
  readonly outputFile?: string;
}

/** Allowed table functions. Others write files, as enable_profiling() does, run SQL, or access memory. */
const allowedFunctions = new Set(
  `duckdb_columns duckdb_constraints duckdb_databases duckdb_dependencies duckdb_functions duckdb_indexes duckdb_keywords
   duckdb_memory duckdb_schemas duckdb_settings duckdb_tables duckdb_types duckdb_variables duckdb_views
   generate_series glob histogram histogram_values icu_calendar_names json_each json_tree parquet_file_metadata
   parquet_full_metadata parquet_kv_metadata parquet_metadata parquet_scan parquet_schema pg_timezone_names
   pragma_database_size pragma_show pragma_table_info pragma_version range read_blob read_csv read_csv_auto read_json
   read_json_auto read_json_objects read_json_objects_auto read_ndjson read_ndjson_auto read_ndjson_objects
   read_parquet read_text repeat repeat_row sniff_csv summary unnest`.split(/\s+/),
);
/** Schemas of views.sql: macros of the service. */
const ownSchema = /^app_\d+$/;

const explained = /^explain\s+(?:analyze\s+)?/i;

interface TableFunction {
  readonly type: 'TABLE_FUNCTION';
  readonly function: { readonly function_name: string; readonly schema: string };
}

const isTableFunction = (node: object): node is TableFunction => 'type' in node && node.type === 'TABLE_FUNCTION';

/** Lists the refused table functions in a parsed statement. */
function findRefused(node: unknown): string[] {
  if (typeof node !== 'object' || node === null) return [];
  const below = Object.values(node).flatMap(findRefused);
  if (!isTableFunction(node)) return below;
  const { function_name: name, schema } = node.function;
  return allowedFunctions.has(name.toLowerCase()) || ownSchema.test(schema) ? below : [name, ...below];
}

function refuseSql(message: string): never {
  throw new AppError('sql', message, {
    hint: 'Pass one SELECT, or EXPLAIN of one: queries are read-only.',
  });
}

function wrap(error: unknown): AppError {
  const message = error instanceof Error ? error.message : String(error);
  const code = findErrorCode(message);
  const hint = code === 'memory' ? { hint: 'Raise TRIBUTARY_DUCKDB_MEMORY_MB.' } : {};
  return new AppError(code, message.split(/\n\n(?:Possible solutions|LINE )/)[0] ?? message, hint);
}

async function attempt<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof AppError ? error : wrap(error);
  }
}

const open = (options: ReadOnlyEngineOptions) =>
  connectDuckdb(options, async (connection) => {
    for (const view of options.views) await connection.run(view);
    const settings = [
      'SET allow_persistent_secrets = false',
      `SET allowed_directories = ${sqlList(options.folders)}`,
      ...(options.outputFile === undefined ? [] : [`SET allowed_paths = ${sqlList([options.outputFile])}`]),
      'SET enable_external_access = false',
      'SET lock_configuration = true',
    ];
    await connection.run(settings.join('; '));
  });

/** Reads a result whose columns are all texts. */
async function* readRows(result: DuckDBResult): AsyncIterable<readonly TextRow[]> {
  for (;;) {
    const chunk = await attempt(() => result.fetchChunk());
    if (chunk === null || chunk.rowCount === 0) return;
    yield chunk.getRows() as unknown as readonly TextRow[];
  }
}

/** Wraps a statement as a table, on a separate line because it may end with a comment. */
const asTable = (sql: string): string => `(${sql}\n) AS tributary_row`;

/** Opens and locks the engine, which still permits writes: run only checked statements. Errors: those of the engine. */
export async function openReadOnlyEngine(options: ReadOnlyEngineOptions): Promise<ReadOnlyEngine> {
  const { connection, close } = await attempt(() => open(options));
  return {
    async check(sql) {
      const select = sql.replace(explained, '');
      const [row = []] = await attempt(async () =>
        (await connection.runAndReadAll('SELECT json_serialize_sql($1::VARCHAR)', [select])).getRows(),
      );
      const { error, error_type: type, error_message: message, statements } = membersOf(JSON.parse(String(row[0])));
      if (type === 'not implemented') refuseSql('this is no SELECT');
      if (error !== false) throw new AppError('sql', isText(message) ? message : 'cannot parse the statement');
      if (!Array.isArray(statements) || statements.length !== 1) refuseSql('expected one statement');
      const refused = findRefused(statements);
      if (refused.length > 0) refuseSql(`function ${refused.join(', ')} is not allowed`);
      return select === sql ? 'select' : 'explain';
    },
    async stream(sql) {
      const isExplain = explained.test(sql);
      const shown = isExplain ? sql : `SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ${asTable(sql)}`;
      const result = await attempt(() => connection.stream(shown));
      return { names: result.columnNames(), rows: readRows(result) };
    },
    async *streamJson(sql) {
      const shown = `SELECT CAST(to_json(tributary_row) AS VARCHAR) FROM ${asTable(sql)}`;
      const result = await attempt(() => connection.stream(shown));
      for await (const piece of readRows(result)) yield piece.map(([json]) => json ?? '');
    },
    copy: (sql, format) =>
      attempt(async () => {
        const to = sqlText(options.outputFile ?? '');
        const copied = await connection.run(`COPY (${sql}\n) TO ${to} (FORMAT ${format}, USE_TMP_FILE false)`);
        return copied.rowsChanged;
      }),
    interrupt: () => connection.interrupt(),
    close,
  };
}
