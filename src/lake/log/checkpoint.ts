import { randomUUID } from 'node:crypto';
import { open, rename, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import type { Action, AddAction } from './actions.ts';
import { parseActions, checkpointHashName, checkpointName, logFolder } from './log-files.ts';
import { findTextFile, removeFile, syncFile, syncFolder, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { AppError } from '../../runtime/errors.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { hashFile } from '../../runtime/files/file-checks.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import type { TableState } from './table-state.ts';

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
export function isPlainAdd({
  path: encoded,
  partitionValues,
  size,
  modificationTime,
  stats,
  tags = {},
}: AddAction): boolean {
  const values = tagNames.flatMap((name) => tags[name] ?? []);
  return (
    Number.isSafeInteger(size) &&
    Number.isSafeInteger(modificationTime) &&
    typeof stats === 'string' &&
    !stats.includes('\n') &&
    Object.keys(partitionValues ?? { absent: '' }).length === 0 &&
    Object.keys(tags).length === values.length &&
    values.every((value) => value !== '') &&
    ![encoded, ...values].some((text) => text.includes(between) || text.includes('\n'))
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

/** The steps of a checkpoint at which a crash is tested. */
export const checkpointSteps = ['checkpoint-written', 'checkpoint-renamed'] as const;

/** The actions that say the same as the whole log up to this version: first those that are no plain adds. */
export function checkpointActions(state: Readonly<TableState>): { readonly mixed: Action[]; readonly plain: Action[] } {
  const mixed: Action[] = [];
  const plain: Action[] = [];
  if (state.protocol !== undefined) mixed.push({ protocol: state.protocol });
  if (state.metaData !== undefined) mixed.push({ metaData: state.metaData });
  for (const [appId, version] of state.txns) mixed.push({ txn: { appId, version } });
  for (const remove of state.tombstones.values()) mixed.push({ remove: { ...remove, dataChange: false } });
  // As readers sort them: what is in order already is sorted anew in no time, here and after each load.
  for (const encoded of [...state.files.keys()].toSorted()) {
    const add = state.files.get(encoded);
    if (add !== undefined) (isPlainAdd(add) ? plain : mixed).push({ add: { ...add, dataChange: false } });
  }
  return { mixed, plain };
}

/** Lines that are written at once: other work goes on in between. */
const spoolLines = 1000;

async function spoolActions(file: string, actions: readonly Action[]): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    for (let from = 0; from < actions.length; from += spoolLines) {
      const lines = actions.slice(from, from + spoolLines).map((action) => `${JSON.stringify(action)}\n`);
      await handle.write(lines.join(''));
    }
  } finally {
    await handle.close();
  }
}

/**
 * Writes the checkpoint of a version, then `_last_checkpoint`, both whole or not at all; returns the checkpoint's size.
 * The state must not change meanwhile. A crash leaves at most temporaries in the log folder, swept at start.
 */
export async function writeCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  state: Readonly<TableState>,
  crashPoint: CrashPoint,
): Promise<number> {
  const final = path.join(logFolder(tableDir), checkpointName(state.version));
  const id = randomUUID();
  const temporary = `${final}.${id}.tmp`;
  const spool = `${final}.${id}.ndjson.tmp`;
  try {
    const { mixed, plain } = checkpointActions(state);
    await spoolActions(spool, [...mixed, ...plain]);
    const columns = Object.entries(checkpointColumns).map(([name, type]) => `${sqlText(name)}: ${sqlText(type)}`);
    await duckdb.run(
      `COPY (SELECT * FROM read_json(${sqlText(spool)}, format = 'newline_delimited', maximum_object_size = 1048576, columns = {${columns.join(', ')}}))
       TO ${sqlText(temporary)} (FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE ${groupRows}, KV_METADATA {${sqlText(plainFromKey)}: '${mixed.length}'})`,
    );
    await syncFile(temporary);
    await crashPoint('checkpoint-written');
    // Before the checkpoint: one without its hash would be believed as those of version 0.1.0 are.
    const sha256 = await hashFile(temporary);
    await writeFileDurably(
      path.join(logFolder(tableDir), checkpointHashName(state.version)),
      `${sha256}\n`,
      tableFileMode,
    );
    await rename(temporary, final);
    await syncFolder(logFolder(tableDir));
    await crashPoint('checkpoint-renamed');
    // Spark keeps a checksum of what it has written under this name, and would refuse ours by it.
    await removeFile(path.join(logFolder(tableDir), '._last_checkpoint.crc'));
    await writeFileDurably(
      path.join(logFolder(tableDir), '_last_checkpoint'),
      JSON.stringify({ version: state.version, size: mixed.length + plain.length, sha256 }),
      tableFileMode,
    );
  } finally {
    await removeFile(temporary);
    await removeFile(spool);
  }
  return (await stat(final)).size;
}

/**
 * The hash that a checkpoint's bytes must have: from the file beside it, or, of one that version 0.1.0 wrote, from
 * `_last_checkpoint`.
 */
async function findCheckpointHash(tableDir: string, version: number): Promise<string | undefined> {
  const text = await findTextFile(path.join(logFolder(tableDir), checkpointHashName(version)));
  if (text !== undefined) return text.trim();
  const last = await findLastCheckpoint(tableDir);
  return last?.version === version ? last.sha256 : undefined;
}

/**
 * Says whether a checkpoint's bytes are those that were written, as far as a hash of them is there. Errors: ENOENT as
 * it is.
 */
export async function isCheckpointWhole(tableDir: string, version: number): Promise<boolean> {
  const sha256 = await findCheckpointHash(tableDir, version);
  return sha256 === undefined || (await hashFile(path.join(logFolder(tableDir), checkpointName(version)))) === sha256;
}

/**
 * Reads the actions of a checkpoint, some thousands at a time. Errors: `log_damaged` or `sql` when it cannot be read
 * whole.
 */
export async function* readCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  version: number,
): AsyncGenerator<readonly Action[]> {
  const file = path.join(logFolder(tableDir), checkpointName(version));
  if (!(await isCheckpointWhole(tableDir, version)))
    throw new AppError('log_damaged', `${file} is damaged: its bytes are not those that were written`, {
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  yield* readActions(duckdb, file);
}

/** What `_last_checkpoint` says; undefined when it is not there or cannot be read. */
export async function findLastCheckpoint(
  tableDir: string,
): Promise<{ readonly version: number; readonly sha256?: string } | undefined> {
  const text = await findTextFile(path.join(logFolder(tableDir), '_last_checkpoint'));
  try {
    return text === undefined ? undefined : (JSON.parse(text) as { version: number; sha256?: string });
  } catch {
    return undefined;
  }
}
