import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import type { Action, AddAction } from './actions.ts';
import { parseActions } from './log-files.ts';

/**
 * How the rows of a checkpoint come out of the engine: as lines, thousands in one text, since each value that is handed
 * over by itself costs more than what it says. A line is the action as JSON; only a plain add, as nearly every one of
 * this service's is, has its members side by side instead: to write JSON, and to take it apart, is most of what such a
 * row costs. In a checkpoint that this service writes, the plain adds come last.
 */

/** The columns of a checkpoint, by the protocol: one struct for each kind of action, one of them set in each row. */
export const checkpointColumns = {
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

/** Rows of a row group of ours, and of one text: what is held in memory at once. */
export const groupRows = 16_384;

/** Most bytes of one text, about: another engine's rows, and those with long ids, may be large. */
const textBytes = 16 * 1024 * 1024;

const between = '\t';

/** The tags that nearly every file of this service has, or some of them. */
const tagNames = ['sha256', 'keyed'] as const;

/** Members of an add that stand side by side in its line; those left out have one value in all plain adds. */
const memberSql = [
  'add.path',
  'add.size',
  'add.modificationTime',
  ...tagNames.map((name) => `coalesce(add.tags['${name}'], '')`),
  'add.stats',
];

/**
 * Says whether an add, as a checkpoint keeps it, is a plain one: it has these members and nothing else, and no character
 * in them that would end one, or the line.
 */
export function isPlainAdd({ path, partitionValues, size, modificationTime, stats, tags = {} }: AddAction): boolean {
  const values = tagNames.flatMap((name) => tags[name] ?? []);
  return (
    Number.isSafeInteger(size) &&
    Number.isSafeInteger(modificationTime) &&
    typeof stats === 'string' &&
    !stats.includes('\n') &&
    Object.keys(partitionValues ?? { absent: '' }).length === 0 &&
    Object.keys(tags).length === values.length &&
    values.every((value) => value !== '') &&
    ![path, ...values].some((text) => text.includes(between) || text.includes('\n'))
  );
}

/**
 * Under this name the file says from which row on it has plain adds only. The hash beside a checkpoint shows that it is
 * as it was written; another engine's has no such row.
 */
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
  const [path = '', size, modificationTime, ...values] = texts;
  const tags: Record<string, string> = {};
  for (const [index, name] of tagNames.entries()) {
    const value = values[index];
    if (value !== undefined && value !== '') tags[name] = value;
  }
  return {
    add: {
      path,
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

/** Rows that are read at once, all of them plain adds or none. */
interface RowRange {
  readonly from: number;
  readonly to: number;
  readonly isPlain: boolean;
}

/**
 * Cuts a checkpoint into what is read at once. A range lies in one row group, since each that it reaches into is held in
 * memory, a page of it whole, whoever wrote it; and a text takes the engine a multiple of its bytes.
 */
async function planRanges(duckdb: Duckdb, file: string): Promise<RowRange[]> {
  const groups = await duckdb.rows(
    `SELECT any_value(row_group_num_rows) AS rows, sum(total_uncompressed_size) AS bytes
     FROM parquet_metadata(${sqlText(file)}) GROUP BY row_group_id ORDER BY row_group_id`,
  );
  const plainFrom = await findPlainFrom(duckdb, file);
  const ranges: RowRange[] = [];
  let from = 0;
  for (const { rows, bytes } of groups) {
    const groupEnd = from + Number(rows);
    const most = Math.max(1, Math.min(groupRows, Math.floor((Number(rows) * textBytes) / Math.max(1, Number(bytes)))));
    for (let to = from; from < groupEnd; from = to) {
      const isPlain = from >= plainFrom;
      to = Math.min(from + most, groupEnd, isPlain ? groupEnd : plainFrom);
      ranges.push({ from, to, isPlain });
    }
  }
  return ranges;
}

/**
 * Reads the actions of a checkpoint file, whoever wrote it, some thousands at a time; they come in no order, since each
 * is about something else. While the caller works on some, the engine reads the next. Errors: `log_damaged` where a row
 * cannot be trusted; those of the engine.
 */
export async function* readActions(duckdb: Duckdb, file: string): AsyncGenerator<readonly Action[]> {
  const read = async ({ from, to, isPlain }: RowRange): Promise<string> => {
    const line = isPlain ? memberSql.join(' || chr(9) || ') : 'to_json(rows)::VARCHAR';
    const [found] = await duckdb.rows(
      `SELECT string_agg(${line}, chr(10)) AS lines
       FROM read_parquet(${sqlText(file)}, hive_partitioning = false, file_row_number = true) AS rows
       WHERE file_row_number >= ${from} AND file_row_number < ${to}`,
    );
    const lines = found?.['lines'];
    return typeof lines === 'string' ? lines : '';
  };
  const [first, ...others] = await planRanges(duckdb, file);
  let range = first;
  let next = range === undefined ? undefined : read(range);
  try {
    while (next !== undefined) {
      const isPlain = range?.isPlain === true;
      const text = await next;
      range = others.shift();
      next = range === undefined ? undefined : read(range);
      // Its error is thrown when its turn comes, or by nobody, where the caller gives up before.
      next?.catch(() => undefined);
      yield isPlain ? parsePlainAdds(text) : parseActions(text.split('\n'), file);
    }
  } finally {
    // An engine that its owner closes while it reads would take the process with it.
    await next?.catch(() => undefined);
  }
}
