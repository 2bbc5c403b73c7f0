import path from 'node:path';
import { randomUUID } from 'node:crypto';
import {
  type KeyMask,
  fingerprintSql,
  isKeyedSql,
  placeSql,
  requestKeySql,
  requestKeyType,
} from '../../datasets/event-id.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { ensureFolder, removeFile } from '../../runtime/files/durable-file.ts';
import { type KeyHashes, type KeySet, createKeySet, readHashes } from './key-set.ts';

export interface KeySliceOptions {
  /** Folder of the slices; its owner empties it at start. */
  readonly folder: string;
  /** Minimum rows of a slice [half a million, by which a batch is classified in 4 ms]. */
  readonly rows?: number | undefined;
}

const usualRows = 2 ** 19;
/** A slice has at least this part of all keys: their numbers are bytes. */
const slicesOfAll = 128;

/** The engine would multiply small numbers as 32-bit ones, and JavaScript large ones as doubles. */
const timeSql = (ms: number): string => `make_timestamptz(${BigInt(ms) * 1000n})`;

const newestMs = ({ maxValues }: DataFile): number => Date.parse(String(maxValues['received_at'])) || 0;

/** Groups files by time into slices, so that slices expire one after the other. */
function groupFiles(files: readonly DataFile[], sliceRows: number): DataFile[][] {
  const groups: DataFile[][] = [];
  let rows = sliceRows;
  for (const file of files.toSorted((a, b) => newestMs(a) - newestMs(b))) {
    if (rows >= sliceRows) {
      groups.push([]);
      rows = 0;
    }
    groups.at(-1)?.push(file);
    rows += file.numRecords ?? sliceRows;
  }
  return groups;
}

/**
 * Creates the known keys of an engine: the parts of each stored id, and its time of receipt. The newest half million,
 * where nearly all duplicates are found, are in the table `recent_keys`; the others are in slices (`createKeySlices`),
 * unless no options are given. A batch costs its own keys and the slices that have some of them.
 */
export function createKeyTable(duckdb: Duckdb, mask: KeyMask, options?: KeySliceOptions) {
  const keySql = requestKeySql('event_id', mask);
  const columnsSql = `${keySql} AS key, ${fingerprintSql('event_id')} AS print, ${placeSql('event_id')} AS place`;
  const slices = options === undefined ? undefined : createKeySlices(duckdb, options.folder);
  const sliceRows = options?.rows ?? usualRows;

  async function slice(): Promise<void> {
    if (slices === undefined) return;
    const [row] = await duckdb.rows('SELECT count(*) AS n FROM recent_keys');
    const rows = Number(row?.['n']);
    if (rows >= Math.max(sliceRows, slices.size().events / slicesOfAll)) await slices.add();
  }

  async function addKeys(files: readonly DataFile[], where: string): Promise<void> {
    for (const group of groupFiles(files, sliceRows)) {
      await localFiles.use(group, (paths) =>
        duckdb.run(
          `INSERT INTO recent_keys SELECT ${columnsSql}, epoch_ms(received_at) AS ms FROM read_parquet(${sqlList(paths)}, hive_partitioning = false) WHERE ${isKeyedSql('event_id')} AND ${where}`,
        ),
      );
      await slice();
    }
  }

  return {
    /** SQL of all columns of a table of keys but `ms`, from event ids. */
    columnsSql,
    addReceived(files: readonly DataFile[], { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number }) {
      const upTo = Number.isFinite(toMs) ? ` AND received_at <= ${timeSql(toMs)}` : '';
      return addKeys(files, `received_at >= ${timeSql(fromMs)}${upTo}`);
    },
    addAll: (files: readonly DataFile[]) => addKeys(files, 'true'),
    /** Adds what the files have under the keys of the loaded batch. */
    addOfBatch: (files: readonly DataFile[]) => addKeys(files, `${keySql} IN (SELECT ${keySql} FROM batch)`),
    addJudged: () => duckdb.run('INSERT INTO recent_keys SELECT * FROM batch_keys'),
    /** Loads what the slices have under the keys of `asked` into `sliced_keys`. */
    lookUp: async () => slices?.lookUp(),
    slice,
    /** Events in slices, and memory of their hashes. */
    size: () => slices?.size() ?? { events: 0, memoryBytes: 0 },
    async forgetBefore(ms: number) {
      // Recreated: the engine keeps the space of deleted rows.
      await duckdb.run(`CREATE OR REPLACE TEMP TABLE recent_keys AS SELECT * FROM recent_keys WHERE ms >= ${ms}`);
      await slices?.forgetBefore(ms);
    },
    async clear() {
      await duckdb.run(createKeysSql('recent_keys'));
      await slices?.clear();
    },
  };
}

export type KeyTable = ReturnType<typeof createKeyTable>;

interface Slice {
  readonly file: string;
  readonly rows: number;
  readonly toMs: number;
  fromMs: number;
  /** Its number in the set; undefined: the set is full, and every batch with keys reads the slice. */
  readonly group: number | undefined;
}

/** Memory of the hashes of about 100 million requests, bytes. Keys beyond are searched for in the files. */
const maxSetBytes = 1024 ** 3;

/** Creates an empty table of keys. `place` is NULL if the request is known and its event could not be stored. */
export const createKeysSql = (name: string): string =>
  `CREATE OR REPLACE TEMP TABLE ${name} (key ${requestKeyType}, print BIGINT, place SMALLINT, ms BIGINT)`;

/** Adding them blocks the process: about 50 ms with 100 million keys. */
const hashesAtOnce = 2 ** 18;

/** Writes `recent_keys` to a file, and returns the hashes of its keys. No file is left after an error. */
async function writeSlice(duckdb: Duckdb, file: string): Promise<KeyHashes> {
  try {
    // Hashes do not compress: packed numbers save a third, compression a sixth of the rest for twice the time.
    await duckdb.run(
      `COPY recent_keys TO ${sqlText(file)} (FORMAT parquet, COMPRESSION uncompressed, PARQUET_VERSION v2)`,
    );
    return await readHashes(duckdb, 'key', 'FROM recent_keys');
  } catch (error) {
    await removeFile(file);
    throw error;
  }
}

/** Adds hashes in portions; returns the number of their group, undefined if the set is full. */
async function addGroup(set: KeySet, { lows, highs }: KeyHashes): Promise<number | undefined> {
  const group = set.bytes < maxSetBytes ? set.addGroup() : undefined;
  if (group === undefined) return undefined;
  for (let from = 0; from < lows.length; from += hashesAtOnce) {
    if (from > 0) await new Promise((resolve) => setImmediate(resolve));
    const to = from + hashesAtOnce;
    set.add({ lows: lows.subarray(from, to), highs: highs.subarray(from, to) }, group);
  }
  return group;
}

async function lookUpIn(
  duckdb: Duckdb,
  slices: readonly Slice[],
  { rows, groups }: ReturnType<KeySet['findEach']>,
): Promise<void> {
  const some = new Set(groups);
  if (some.size > 0) {
    await duckdb.run('CREATE OR REPLACE TEMP TABLE wanted (of_group INTEGER, r INTEGER)');
    await duckdb.appendIntegers('wanted', [groups, rows]);
  }
  for (const { file, fromMs, group } of slices) {
    if (group !== undefined && !some.has(group)) continue;
    const keys =
      group === undefined
        ? 'SELECT key FROM asked'
        : `SELECT key FROM asked WHERE r IN (SELECT r FROM wanted WHERE of_group = ${group})`;
    await duckdb.run(
      `INSERT INTO sliced_keys SELECT * FROM read_parquet(${sqlText(file)}, hive_partitioning = false)
       WHERE ms >= ${fromMs} AND key IN (${keys})`,
    );
  }
}

/**
 * Creates the slices of older known keys, in the order in which they became known: work files of 22 bytes an event, in a
 * folder that its owner empties at start. A set of hashes finds the slices that may have a key: 6 to 9 bytes of memory a
 * request, half a microsecond a key. Dropping a slice is free.
 */
export function createKeySlices(duckdb: Duckdb, folder: string) {
  let slices: readonly Slice[] = [];
  let set = createKeySet('255');

  async function drop(dropped: readonly Slice[]): Promise<void> {
    slices = slices.filter((slice) => !dropped.includes(slice));
    for (const { file, group } of dropped) {
      if (group !== undefined) set.dropGroup(group);
      await removeFile(file);
    }
  }

  return {
    size: () => ({ events: slices.reduce((sum, { rows }) => sum + rows, 0), memoryBytes: set.bytes }),
    /** Makes a slice of all rows of `recent_keys`. Errors: `disk`, `memory`, `sql`. */
    async add() {
      const [row] = await duckdb.rows('SELECT count(*) AS n, min(ms) AS low, max(ms) AS high FROM recent_keys');
      const [rows, fromMs, toMs] = [Number(row?.['n']), Number(row?.['low']), Number(row?.['high'])];
      if (rows === 0) return;
      await ensureFolder(folder);
      // A unique name: a compactor that has lost its lake to another may still write to the folder.
      const file = path.join(folder, `${randomUUID()}.parquet`);
      const group = await addGroup(set, await writeSlice(duckdb, file));
      slices = [...slices, { file, group, rows, fromMs, toMs }];
      await duckdb.run(createKeysSql('recent_keys'));
    },
    /**
     * Replaces `sliced_keys` by what the slices have under the keys of `asked`. Reads each slice at most once: 20 ms for a
     * million events. Errors: `sql`, also if a file of a slice was removed.
     */
    async lookUp() {
      await duckdb.run(createKeysSql('sliced_keys'));
      if (slices.length > 0)
        await lookUpIn(duckdb, slices, set.findEach(await readHashes(duckdb, 'key', 'FROM asked', 'r')));
    },
    async forgetBefore(ms: number) {
      for (const slice of slices) slice.fromMs = Math.max(slice.fromMs, ms);
      await drop(slices.filter(({ toMs }) => toMs < ms));
    },
    async clear() {
      await drop(slices);
      set = createKeySet('255');
    },
  };
}
