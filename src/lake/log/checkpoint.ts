import path from 'node:path';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { type Action, type AddAction, type AddFilter, logDamaged } from './actions.ts';
import { parseActions, checkpointHashName, checkpointName, logFolder, logStore } from './log-files.ts';
import { removeFile, syncFile } from '../../runtime/files/durable-file.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { hashFile, getSize } from '../../runtime/files/file-checks.ts';
import type { TableState } from './table-state.ts';
import { openNewFile } from '../../runtime/files/open-file.ts';
import { hashStored, localFiles } from '../../runtime/store/open-store.ts';
import { isCount, isText, optional, shapeOf } from '../../runtime/store/shape.ts';
import { missingObject, findText } from '../../runtime/store/object-store.ts';

/**
 * Checkpoint rows leave the engine as lines, thousands per text, because each value has a fixed cost. A line is the
 * action as JSON, or the separated fields of a plain add, the most frequent row. This service writes plain adds last.
 */

/** Columns of a checkpoint: one struct per kind of action, one of them set in each row. */
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

/** Rows of a row group, which are held in memory. */
export const groupRows = 16_384;

const textBytes = 16 * 1024 * 1024;

const between = '\t';

const tagNames = ['sha256', 'keyed'] as const;

/** Members of a plain add, in the order of its line. The others are equal in all plain adds. */
const memberSql = [
  'add.path',
  'add.size',
  'add.modificationTime',
  ...tagNames.map((name) => `coalesce(add.tags['${name}'], '')`),
  'add.stats',
];

/** Reports whether an add has only these members, and no separator in them. */
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

/** Reads the plain adds that a filter needs, in one pass: the engine reads only their statistics of the others. */
async function* readNeededAdds(
  duckdb: Duckdb,
  file: string,
  plainFrom: number,
  { paths, condition }: AddFilter,
): AsyncGenerator<readonly Action[]> {
  // Statistics that are no JSON have no bounds.
  const bounds = `try(json_extract_string(add.stats, ${sqlList(paths)}::VARCHAR[])) AS bounds`;
  const lines = duckdb.texts(
    `SELECT ${plainLine} FROM (SELECT add, ${bounds} FROM ${rowsSql(file)} WHERE file_row_number >= ${plainFrom}) WHERE ${condition}`,
  );
  for await (const some of lines) yield some.map(parsePlainAdd);
}

/**
 * Reads a checkpoint's actions in batches, in any order, ahead of the caller. `needed`: leaves out removes, and plain
 * adds that do not match. Error: `log_damaged` for a bad row.
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
      yield isPlain ? parsePlainAdds(text) : parseActions(text.split('\n'), file);
    }
  } finally {
    // Closing an engine during a read would crash the process.
    await next?.catch(() => undefined);
  }
}

export const checkpointSteps = ['checkpoint-written', 'checkpoint-renamed'] as const;

/** Returns the actions equivalent to the log up to this version. `mixed`: all except the plain adds. */
export function checkpointActions(state: Readonly<TableState>): { readonly mixed: Action[]; readonly plain: Action[] } {
  const mixed: Action[] = [];
  const plain: Action[] = [];
  if (state.protocol !== undefined) mixed.push({ protocol: state.protocol });
  if (state.metaData !== undefined) mixed.push({ metaData: state.metaData });
  for (const [appId, version] of state.txns) mixed.push({ txn: { appId, version } });
  for (const remove of state.tombstones.values()) mixed.push({ remove: { ...remove, dataChange: false } });
  // Sorted as readers sort them, which costs little if it is sorted already.
  for (const encoded of [...state.files.keys()].toSorted()) {
    const add = state.files.get(encoded);
    if (add !== undefined) (isPlainAdd(add) ? plain : mixed).push({ add: { ...add, dataChange: false } });
  }
  return { mixed, plain };
}

/** Lines per write. Other work runs in between. */
const spoolLines = 1000;

async function spoolActions(file: string, actions: readonly Action[]): Promise<void> {
  const handle = await openNewFile(file);
  try {
    for (let from = 0; from < actions.length; from += spoolLines) {
      const lines = actions.slice(from, from + spoolLines).map((action) => `${JSON.stringify(action)}\n`);
      await handle.write(lines.join(''));
    }
  } finally {
    await handle.close();
  }
}

/** Writes a checkpoint, then `_last_checkpoint`, each atomically. Returns its size, bytes. */
export async function writeCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  state: Readonly<TableState>,
  crashPoint: CrashPoint,
): Promise<number> {
  const store = logStore(tableDir);
  const name = checkpointName(state.version);
  const temporary = store.localPath(name);
  const spool = store.localPath(`${name}.ndjson`);
  try {
    const { mixed, plain } = checkpointActions(state);
    await spoolActions(spool, [...mixed, ...plain]);
    const columns = Object.entries(checkpointColumns).map(([column, type]) => `${sqlText(column)}: ${sqlText(type)}`);
    await duckdb.run(
      `COPY (SELECT * FROM read_json(${sqlText(spool)}, format = 'newline_delimited', maximum_object_size = 1048576, columns = {${columns.join(', ')}}))
       TO ${sqlText(temporary)} (FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE ${groupRows}, KV_METADATA {${sqlText(plainFromKey)}: '${mixed.length}'})`,
    );
    await syncFile(temporary);
    await crashPoint('checkpoint-written');
    // Hashed first: a checkpoint without a hash would be trusted, like those of 0.1.0.
    const sha256 = await hashFile(temporary);
    await store.replace(checkpointHashName(state.version), Buffer.from(`${sha256}\n`), 'any');
    const sizeBytes = await getSize(temporary);
    await store.upload(name, temporary, { sha256 });
    await crashPoint('checkpoint-renamed');
    // Spark may have stored a checksum of another file here, and would refuse this one.
    await store.remove(['._last_checkpoint.crc']);
    const last = { version: state.version, size: mixed.length + plain.length, sha256 };
    await store.replace('_last_checkpoint', Buffer.from(JSON.stringify(last)), 'any');
    return sizeBytes;
  } finally {
    await removeFile(temporary);
    await removeFile(spool);
  }
}

/** Returns the expected hash of a checkpoint. Version 0.1.0 wrote it to `_last_checkpoint`. */
async function findCheckpointHash(tableDir: string, version: number): Promise<string | undefined> {
  const text = await findText(logStore(tableDir), checkpointHashName(version));
  if (text !== undefined) return text.trim();
  const last = await findLastCheckpoint(tableDir);
  return last?.version === version ? last.sha256 : undefined;
}

/** Reports whether a checkpoint has its expected hash, if there is one. */
export async function isCheckpointIntact(tableDir: string, version: number): Promise<boolean> {
  const sha256 = await findCheckpointHash(tableDir, version);
  if (sha256 === undefined) return true;
  return (await hashStored({ absolutePath: path.join(logFolder(tableDir), checkpointName(version)) })) === sha256;
}

/**
 * Reads the actions of a checkpoint in batches, those of `needed` as in `readActions`. Errors: ENOENT; `log_damaged` or
 * `sql` for an incomplete read.
 */
export async function readCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  version: number,
  take: (actions: readonly Action[]) => void,
  needed?: AddFilter,
): Promise<void> {
  const store = logStore(tableDir);
  const name = store.nameOf(checkpointName(version));
  if ((await store.findSize(checkpointName(version))) === undefined) throw missingObject(name);
  const sha256 = await findCheckpointHash(tableDir, version);
  const absolutePath = path.join(logFolder(tableDir), checkpointName(version));
  await localFiles.use([{ absolutePath, sha256 }], async ([file = '']) => {
    if (sha256 !== undefined && (await hashFile(file)) !== sha256)
      throw logDamaged(`${name} is damaged: checksum mismatch`);
    for await (const actions of readActions(duckdb, file, needed)) take(actions);
  });
}

type Pointer = { readonly version: number; readonly sha256?: string };

const isPointer = shapeOf<Pointer>({ version: isCount, sha256: optional(isText) });

/** Reads `_last_checkpoint`; undefined if it is missing or unreadable. */
export async function findLastCheckpoint(tableDir: string): Promise<Pointer | undefined> {
  const text = await findText(logStore(tableDir), '_last_checkpoint');
  try {
    const pointer: unknown = JSON.parse(text ?? 'null');
    return isPointer(pointer) ? pointer : undefined;
  } catch {
    return undefined;
  }
}
