import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import type { Action } from './actions.ts';
import { parseActions } from './log-files.ts';

/**
 * How the rows of a checkpoint come out of the engine: as lines, thousands in one text, since each value that is handed
 * over by itself costs more than what it says. A line is the action as JSON; only an add as this service writes them,
 * which nearly every one is, has its members side by side instead: to write JSON, and to take it apart, is most of what
 * such a row costs.
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

/** A tag of an add; no text where it has none. */
function tagSql(name: string): string {
  return `coalesce(add.tags['${name}'], '')`;
}

/** Members of an add that stand side by side in its line; those left out have one value in all such adds. */
const members = ['add.path', 'add.size', 'add.modificationTime', ...tagNames.map(tagSql), 'add.stats'] as const;

const memberTexts = ['add.path', ...tagNames.map(tagSql), 'add.stats'];

/** True for an add that has these members and nothing else, and no character that would end one, or the line. */
const isPlain = [
  'add.dataChange = false',
  'cardinality(add.partitionValues) = 0',
  `cardinality(add.tags) = ${tagNames.map((name) => `(${tagSql(name)} <> '')::INTEGER`).join(' + ')}`,
  ...memberTexts.map((member) => `NOT contains(${member}, chr(10))`),
  ...memberTexts.slice(0, -1).map((member) => `NOT contains(${member}, chr(9))`),
  "NOT starts_with(add.path, '{')",
  'add.size + add.modificationTime IS NOT NULL',
].join(' AND ');

/** Says whether the adds of a checkpoint can have no members but those that this service writes. */
async function hasOwnAdds(duckdb: Duckdb, source: string): Promise<boolean> {
  const [described] = await duckdb.rows(`SELECT column_type AS found, typeof(NULL::${checkpointColumns.add}) AS own
    FROM (DESCRIBE SELECT * FROM ${source}) WHERE column_name = 'add'`);
  return described !== undefined && described['found'] === described['own'];
}

function parsePlainAdd(line: string): Action {
  const texts: string[] = [];
  let from = 0;
  while (texts.length < members.length - 1) {
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

/** Takes a text of lines apart. */
function parseLines(text: string, file: string): Action[] {
  const actions: Action[] = [];
  for (let from = 0; from < text.length;) {
    const found = text.indexOf('\n', from);
    const end = found === -1 ? text.length : found;
    const line = text.slice(from, end);
    if (line.startsWith('{')) actions.push(...parseActions([line], file));
    else actions.push(parsePlainAdd(line));
    from = end + 1;
  }
  return actions;
}

/** Rows of a checkpoint that are read at once: from, and to, which is not among them. */
type RowRange = readonly [number, number];

/**
 * Cuts a checkpoint into what is read at once. A range lies in one row group, since each of those that it reaches into
 * is held in memory, a page of it whole, whoever wrote it; and a text takes the engine a multiple of its bytes.
 */
async function cutRows(duckdb: Duckdb, file: string): Promise<readonly RowRange[]> {
  const groups = await duckdb.rows(
    `SELECT any_value(row_group_num_rows) AS rows, sum(total_uncompressed_size) AS bytes
     FROM parquet_metadata(${sqlText(file)}) GROUP BY row_group_id ORDER BY row_group_id`,
  );
  const ranges: RowRange[] = [];
  let from = 0;
  for (const { rows, bytes } of groups) {
    const end = from + Number(rows);
    const most = Math.max(1, Math.min(groupRows, Math.floor((Number(rows) * textBytes) / Math.max(1, Number(bytes)))));
    for (; from < end; from += most) ranges.push([from, Math.min(from + most, end)]);
    from = end;
  }
  return ranges;
}

/**
 * Reads the actions of a checkpoint file, whoever wrote it, some thousands at a time; they come in no order, since each
 * is about something else. While the caller works on some, the engine reads the next. Errors: `log_damaged` where a row
 * cannot be trusted; those of the engine.
 */
export async function* readActions(duckdb: Duckdb, file: string): AsyncGenerator<readonly Action[]> {
  const source = `read_parquet(${sqlText(file)}, hive_partitioning = false, file_row_number = true)`;
  const json = 'to_json(rows)::VARCHAR';
  const line = (await hasOwnAdds(duckdb, source))
    ? `CASE WHEN ${isPlain} THEN ${members.join(' || chr(9) || ')} ELSE ${json} END`
    : json;
  const read = async ([from, to]: RowRange): Promise<string> => {
    const rows = `file_row_number >= ${from} AND file_row_number < ${to}`;
    const [found] = await duckdb.rows(
      `SELECT string_agg(${line}, chr(10)) AS lines FROM ${source} AS rows WHERE ${rows}`,
    );
    const lines = found?.['lines'];
    return typeof lines === 'string' ? lines : '';
  };
  const [first, ...others] = await cutRows(duckdb, file);
  let next = first === undefined ? undefined : read(first);
  try {
    while (next !== undefined) {
      const text = await next;
      const range = others.shift();
      next = range === undefined ? undefined : read(range);
      // Its error is thrown when its turn comes, or by nobody, where the caller gives up before.
      next?.catch(() => undefined);
      yield parseLines(text, file);
    }
  } finally {
    // An engine that its owner closes while it reads would take the process with it.
    await next?.catch(() => undefined);
  }
}
