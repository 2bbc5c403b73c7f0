import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import type { Action, AddAction, AddFilter } from './actions.ts';
import { parseActions } from './log-files.ts';
import type { TableState } from './table-state.ts';
import { openNewFile, type FileHandle } from '../../runtime/files/open-file.ts';

/**
 * Checkpoint rows leave the engine as lines, thousands per text, because each value has a fixed cost. A line is the
 * action as JSON, or the separated fields of a plain add, the most frequent row. This service writes plain adds last.
 */

/** Columns of a checkpoint: one struct per kind of action, one of them set in each row. */
const checkpointColumns = {
  protocol: 'STRUCT("minReaderVersion" INTEGER, "minWriterVersion" INTEGER, "writerFeatures" VARCHAR[])',
  metaData:
    'STRUCT("id" VARCHAR, "name" VARCHAR, "description" VARCHAR, "format" STRUCT("provider" VARCHAR, "options" MAP(VARCHAR, VARCHAR)), ' +
    '"schemaString" VARCHAR, "partitionColumns" VARCHAR[], "configuration" MAP(VARCHAR, VARCHAR), "createdTime" BIGINT)',
  txn: 'STRUCT("appId" VARCHAR, "version" BIGINT, "lastUpdated" BIGINT)',
  add:
    'STRUCT("path" VARCHAR, "partitionValues" MAP(VARCHAR, VARCHAR), "size" BIGINT, "modificationTime" BIGINT, ' +
    '"dataChange" BOOLEAN, "stats" VARCHAR, "tags" MAP(VARCHAR, VARCHAR))',
  remove: 'STRUCT("path" VARCHAR, "deletionTimestamp" BIGINT, "dataChange" BOOLEAN)',
} as const;

/** Rows of a row group, which are held in memory. */
export const groupRows = 16_384;

const textBytes = 16 * 1024 * 1024;

const between = '\t';

const tagNames = ['sha256', 'keyed', 'since', 'groups'] as const;

/** Members of a plain add, in the order of its line. The others are equal in all plain adds. */
const memberSql = [
  'add.path',
  'add.size',
  'add.modificationTime',
  ...tagNames.map((name) => `coalesce(add.tags['${name}'], '')`),
  'add.stats',
];

/** Characters that a line of text cannot have: control characters, and half a surrogate pair. */
const unsafe = /[\p{Cc}\p{Cs}]/u;

/** Reports whether an add has only these members, and none of them is empty or breaks a line of its text. */
function isPlainAdd({ path: encoded, partitionValues, size, modificationTime, stats, tags = {} }: AddAction): boolean {
  const values = tagNames.flatMap((name) => tags[name] ?? []);
  return (
    Number.isSafeInteger(size) &&
    Number.isSafeInteger(modificationTime) &&
    typeof stats === 'string' &&
    Object.keys(partitionValues ?? { absent: '' }).length === 0 &&
    Object.keys(tags).length === values.length &&
    [encoded, stats, ...values].every((text) => text !== '' && !unsafe.test(text))
  );
}

/** Metadata key with the first row from which all rows are plain adds. The stored hash proves the file unchanged. */
export const plainFromKey = 'tributary.plainFrom';

async function findPlainFrom(duckdb: Duckdb, file: string): Promise<number> {
  const [found] = await duckdb.rows(
    `SELECT decode(value) AS plain FROM parquet_kv_metadata(${sqlText(file)}) WHERE decode(key) = ${sqlText(plainFromKey)}`,
  );
  return found === undefined ? Infinity : Number(found['plain']);
}

function parsePlainAdd(line: string): Action {
  const texts: string[] = [];
  let from = 0;
  while (texts.length < memberSql.length - 1) {
    const end = line.indexOf(between, from);
    texts.push(line.slice(from, end));
    from = end + 1;
  }
  const [encoded = '', size, modificationTime, ...values] = texts;
  const tags: Record<string, string> = {};
  for (const [index, name] of tagNames.entries()) {
    const value = values[index];
    if (value !== undefined && value !== '') tags[name] = value;
  }
  return {
    add: {
      path: encoded,
      partitionValues: {},
      size: Number(size),
      modificationTime: Number(modificationTime),
      dataChange: false,
      stats: line.slice(from),
      tags,
    },
  };
}

function parsePlainAdds(text: string): Action[] {
  const actions: Action[] = [];
  for (let from = 0; from < text.length;) {
    const found = text.indexOf('\n', from);
    const end = found === -1 ? text.length : found;
    actions.push(parsePlainAdd(text.slice(from, end)));
    from = end + 1;
  }
  return actions;
}

interface RowRange {
  readonly from: number;
  readonly to: number;
  readonly isPlain: boolean;
}

/** Divides a checkpoint into ranges. Each is within one row group, to bound memory. */
async function planRanges(duckdb: Duckdb, file: string, plainFrom: number): Promise<RowRange[]> {
  const groups = await duckdb.rows(
    `SELECT any_value(row_group_num_rows) AS rows, sum(total_uncompressed_size) AS bytes
     FROM parquet_metadata(${sqlText(file)}) GROUP BY row_group_id ORDER BY row_group_id`,
  );
  const ranges: RowRange[] = [];
  let from = 0;
  for (const { rows, bytes } of groups) {
    const groupEnd = from + Number(rows);
    const maxRows = Math.max(
      1,
      Math.min(groupRows, Math.floor((Number(rows) * textBytes) / Math.max(1, Number(bytes)))),
    );
    for (let to = from; from < groupEnd; from = to) {
      const isPlain = from >= plainFrom;
      to = Math.min(from + maxRows, groupEnd, isPlain ? groupEnd : plainFrom);
      ranges.push({ from, to, isPlain });
    }
  }
  return ranges;
}

const plainLine = memberSql.join(' || chr(9) || ');

const rowsSql = (file: string): string =>
  `read_parquet(${sqlText(file)}, hive_partitioning = false, file_row_number = true) AS rows`;

/** Reads the plain adds that a filter needs, in one pass. Of the others, the engine reads only statistics. */
async function* readNeededAdds(
  duckdb: Duckdb,
  file: string,
  plainFrom: number,
  { columns, condition }: AddFilter,
): AsyncGenerator<readonly Action[]> {
  const texts = Object.fromEntries(columns.map((column) => [column, 'VARCHAR']));
  const form = JSON.stringify({ minValues: texts, maxValues: texts });
  // Pushed into the scan, the filter would parse the statistics again for each use of a bound.
  await duckdb.run("SET disabled_optimizers = 'filter_pushdown'");
  // Malformed statistics have no bounds.
  const bounds = `try(json_transform(add.stats, ${sqlText(form)})) AS bounds`;
  const lines = duckdb.texts(
    `SELECT ${plainLine} FROM (SELECT add, ${bounds} FROM ${rowsSql(file)} WHERE file_row_number >= ${plainFrom}) WHERE ${condition}`,
  );
  for await (const some of lines) yield some.map(parsePlainAdd);
}

/**
 * Reads a checkpoint's actions in batches, in any order. `needed`: leaves out removes, and plain adds that do not match;
 * the engine keeps a setting for this. Error: `log_damaged` for a bad row.
 */
export async function* readActions(
  duckdb: Duckdb,
  file: string,
  needed?: AddFilter,
): AsyncGenerator<readonly Action[]> {
  const plainFrom = await findPlainFrom(duckdb, file);
  const all = await planRanges(duckdb, file, plainFrom);
  // Another engine's checkpoint has no plain adds, and may lack columns.
  const isFiltered = needed !== undefined && plainFrom !== Infinity;
  yield* readRanges(duckdb, file, isFiltered ? all.filter(({ isPlain }) => !isPlain) : all, isFiltered);
  if (isFiltered) yield* readNeededAdds(duckdb, file, plainFrom, needed);
}

/** Reads ranges of rows, the next one ahead of the caller. */
async function* readRanges(
  duckdb: Duckdb,
  file: string,
  [first, ...others]: readonly RowRange[],
  withoutRemoves: boolean,
): AsyncGenerator<readonly Action[]> {
  const read = async ({ from, to, isPlain }: RowRange): Promise<string> => {
    const line = isPlain ? plainLine : 'to_json(rows)::VARCHAR';
    const [found] = await duckdb.rows(
      `SELECT string_agg(${line}, chr(10)) AS lines
       FROM ${rowsSql(file)} WHERE file_row_number >= ${from} AND file_row_number < ${to}${withoutRemoves ? ' AND remove IS NULL' : ''}`,
    );
    const lines = found?.['lines'];
    return typeof lines === 'string' ? lines : '';
  };
  const rest = [...others];
  let range = first;
  let next = range === undefined ? undefined : read(range);
  try {
    while (next !== undefined) {
      const isPlain = range?.isPlain === true;
      const text = await next;
      range = rest.shift();
      next = range === undefined ? undefined : read(range);
      // Its error is thrown when the loop reaches it.
      next?.catch(() => undefined);
      if (text !== '') yield isPlain ? parsePlainAdds(text) : parseActions(text.split('\n'), file);
    }
  } finally {
    // Closing an engine during a read would crash the process.
    await next?.catch(() => undefined);
  }
}

/** Returns the rows equivalent to the log up to this version: plain adds, and all other actions, which precede them. */
export function checkpointRows(state: Readonly<TableState>): {
  readonly mixed: readonly Action[];
  readonly plain: readonly AddAction[];
} {
  const mixed: Action[] = [];
  const plain: AddAction[] = [];
  if (state.protocol !== undefined) mixed.push({ protocol: state.protocol });
  if (state.metaData !== undefined) mixed.push({ metaData: state.metaData });
  for (const [appId, version] of state.txns) mixed.push({ txn: { appId, version } });
  for (const remove of state.tombstones.values()) mixed.push({ remove: { ...remove, dataChange: false } });
  // Sorted as readers sort them, which costs little if it is sorted already.
  for (const encoded of [...state.files.keys()].toSorted()) {
    const add = state.files.get(encoded);
    if (add === undefined) continue;
    if (isPlainAdd(add)) plain.push(add);
    else mixed.push({ add: { ...add, dataChange: false } });
  }
  return { mixed, plain };
}

/** A line of the spool has the members of a plain add, or before them another action as JSON. */
const spoolColumns = ['action', 'path', 'size', 'modificationTime', ...tagNames, 'stats'] as const;

const mixedLine = (action: Action): string => `${JSON.stringify(action)}${between.repeat(spoolColumns.length - 1)}\n`;

function plainLineOf({ path: encoded, size, modificationTime, stats = '', tags = {} }: AddAction): string {
  const values = tagNames.map((name) => tags[name] ?? '');
  return `${['', encoded, size, modificationTime, ...values, stats].join(between)}\n`;
}

/** Returns a query of the columns of a checkpoint from a spool. The engine reads text at half of the cost of JSON. */
export function spoolSql(spool: string): string {
  const columns = spoolColumns.map((name) => `${sqlText(name)}: 'VARCHAR'`);
  const tags = tagNames.map((name) => `CASE WHEN ${name} IS NULL THEN MAP {} ELSE MAP {${sqlText(name)}: ${name}} END`);
  const add = `struct_pack("path" := path, "partitionValues" := MAP {}, "size" := CAST(size AS BIGINT),
    "modificationTime" := CAST("modificationTime" AS BIGINT), "dataChange" := false, "stats" := stats, "tags" := map_concat(${tags.join(', ')}))`;
  const members = Object.entries(checkpointColumns).map(([column, type]) =>
    column === 'add'
      ? `CASE WHEN action IS NULL THEN CAST(${add} AS ${type}) ELSE other."add" END AS "add"`
      : `other."${column}" AS "${column}"`,
  );
  return `SELECT ${members.join(', ')} FROM (
    SELECT *, json_transform(action, ${sqlText(JSON.stringify(checkpointColumns))}) AS other
    FROM read_csv(${sqlText(spool)}, columns = {${columns.join(', ')}}, delim = '${between}', quote = '', escape = '', comment = '',
      header = false, auto_detect = false, new_line = '\\n', nullstr = ''))`;
}

/** Lines per write. Other work runs in between. */
const spoolLines = 1000;

async function spoolRows<Row>(handle: FileHandle, rows: readonly Row[], lineOf: (row: Row) => string): Promise<void> {
  for (let from = 0; from < rows.length; from += spoolLines)
    await handle.write(
      rows
        .slice(from, from + spoolLines)
        .map((row) => lineOf(row))
        .join(''),
    );
}

/** Writes the rows of a checkpoint as text, for `spoolSql`. */
export async function writeSpool(file: string, { mixed, plain }: ReturnType<typeof checkpointRows>): Promise<void> {
  const handle = await openNewFile(file);
  try {
    await spoolRows(handle, mixed, mixedLine);
    await spoolRows(handle, plain, plainLineOf);
  } finally {
    await handle.close();
  }
}
