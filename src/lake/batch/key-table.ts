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
import { ensureFolder, removeFile } from '../../runtime/files/durable-file.ts';
import { type KeyHashes, type KeySet, createKeySet, halvesSql } from './key-set.ts';

/**
 * The keys of events that the lake has: the parts of each id, and when it was received. Batches are judged by them. The
 * newest half a million, where nearly all repeats are found, are in the table `recent_keys`, in the engine's memory; the
 * others in slices (`createKeySlices`). What a batch costs follows its own keys, and the slices that have some of them.
 */
export interface KeyTable {
  /** SQL of the columns of a table of keys but the last, read from event ids. */
  readonly columnsSql: string;
  /** Adds those of the rows of some files, received within the range, both ends included. */
  addReceived(files: readonly DataFile[], range: { readonly fromMs: number; readonly toMs: number }): Promise<void>;
  /** Adds those of all rows of some files. */
  addAll(files: readonly DataFile[]): Promise<void>;
  /** Adds what some files have under the keys of the batch in the tables. */
  addOfBatch(files: readonly DataFile[]): Promise<void>;
  /** Adds those of the rows of the batch that were judged to be written. */
  addJudged(): Promise<void>;
  /** Loads what the slices have under the keys in `asked` into `sliced_keys`, beside which stands `recent_keys`. */
  lookUp(): Promise<void>;
  /** Makes a slice of the newest keys when there are enough of them. */
  slice(): Promise<void>;
  /** Events whose keys are in slices, and the memory that it takes to know which has what. */
  size(): { readonly events: number; readonly memoryBytes: number };
  /** Removes those received before a time, Unix milliseconds. */
  forgetBefore(ms: number): Promise<void>;
  clear(): Promise<void>;
}

/** What of the known keys does not stay in the engine's memory. */
export interface KeySliceOptions {
  /** For the slices; emptied by its owner at start. */
  readonly folder: string;
  /** Rows of `recent_keys` that become a slice, at least; unless given half a million, which a batch is judged by in 4 ms. */
  readonly rows?: number | undefined;
}

const usualRows = 2 ** 19;
/** Of very many keys a slice has one in so many at least: the slices have numbers in a byte. */
const slicesOfAll = 128;

/** SQL of a time. The engine would multiply small numbers as 32-bit ones, and JavaScript large ones as doubles. */
const timeSql = (ms: number): string => `make_timestamptz(${BigInt(ms) * 1000n})`;

/** When the newest row of a file was received, Unix milliseconds. */
const newestMs = ({ maxValues }: DataFile): number => Date.parse(String(maxValues['received_at'])) || 0;

/** Files together that have rows for a slice, in the order of their times, so that slices are forgotten one by one. */
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
 * Gives the operations on an engine's tables of known keys, which `createDedupeTables` has made. Without `options` the
 * engine keeps them all.
 */
export function createKeyTable(duckdb: Duckdb, mask: KeyMask, options?: KeySliceOptions): KeyTable {
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
      const source = `read_parquet(${sqlList(group.map((file) => file.absolutePath))}, hive_partitioning = false)`;
      await duckdb.run(
        `INSERT INTO recent_keys SELECT ${columnsSql}, epoch_ms(received_at) AS ms FROM ${source} WHERE ${isKeyedSql('event_id')} AND ${where}`,
      );
      await slice();
    }
  }

  return {
    columnsSql,
    addReceived(files, { fromMs, toMs }) {
      const upTo = Number.isFinite(toMs) ? ` AND received_at <= ${timeSql(toMs)}` : '';
      return addKeys(files, `received_at >= ${timeSql(fromMs)}${upTo}`);
    },
    addAll: (files) => addKeys(files, 'true'),
    addOfBatch: (files) => addKeys(files, `${keySql} IN (SELECT ${keySql} FROM batch)`),
    addJudged: () => duckdb.run('INSERT INTO recent_keys SELECT * FROM batch_keys'),
    lookUp: async () => slices?.lookUp(),
    slice,
    size: () => slices?.size() ?? { events: 0, memoryBytes: 0 },
    async forgetBefore(ms) {
      // Made anew: the engine keeps the places of deleted rows.
      await duckdb.run(`CREATE OR REPLACE TEMP TABLE recent_keys AS SELECT * FROM recent_keys WHERE ms >= ${ms}`);
      await slices?.forgetBefore(ms);
    },
    async clear() {
      await duckdb.run(createKeysSql('recent_keys'));
      await slices?.clear();
    },
  };
}

/**
 * The greater part of the known keys: slices of them in the order in which they became known, each a work file of 22
 * bytes an event, which nobody looks into unless it may have a key that is asked for. Which one may is known by a set of
 * hashes: 6 to 9 bytes of memory for each request, and half a microsecond for each key that is asked for. To
 * forget a slice costs nothing.
 */
interface KeySlices {
  /** Events whose keys they have, and the memory that their hashes take. */
  size(): { readonly events: number; readonly memoryBytes: number };
  /** Makes a slice of all rows of `recent_keys`. Errors: `disk`, `memory`, `sql`. */
  add(): Promise<void>;
  /**
   * Loads what the slices have under the keys in `asked` into `sliced_keys`, in place of what is there. At most each
   * slice is read once: 20 ms for a million events. Errors: `sql`, also when a file of theirs has been removed.
   */
  lookUp(): Promise<void>;
  /** Forgets what was received before a time, Unix milliseconds. */
  forgetBefore(ms: number): Promise<void>;
  clear(): Promise<void>;
}

interface Slice {
  readonly file: string;
  readonly rows: number;
  /** The newest time of receipt in it, Unix milliseconds. */
  readonly toMs: number;
  /** Rows that were received before count as forgotten. */
  fromMs: number;
  /** Its number in the set; undefined: the set had no room, and it is read for each batch that has keys. */
  readonly group: number | undefined;
}

/** Hashes of 100 million requests, with some room. What is beyond is looked up in the files. */
const maxSetBytes = 1024 ** 3;

/** SQL that makes a table of keys, empty. `place` is NULL where the request is known and the event could not be stored. */
export const createKeysSql = (name: string): string =>
  `CREATE OR REPLACE TEMP TABLE ${name} (key ${requestKeyType}, print BIGINT, place SMALLINT, ms BIGINT)`;

/** The process stands still while they are added: some 50 ms where there are 100 million. */
const hashesAtOnce = 2 ** 18;

const noHashes = new Uint32Array();

/** Writes `recent_keys` to a file; gives the hashes of its keys. After an error there is no file. */
async function writeSlice(duckdb: Duckdb, file: string): Promise<KeyHashes> {
  try {
    // Hashes do not compress: packing the numbers saves a third, compression a sixth of the rest for twice the time.
    await duckdb.run(
      `COPY recent_keys TO ${sqlText(file)} (FORMAT parquet, COMPRESSION uncompressed, PARQUET_VERSION v2)`,
    );
    const [lows = noHashes, highs = noHashes] = await duckdb.integers(`SELECT ${halvesSql('key')} FROM recent_keys`);
    return { lows, highs };
  } catch (error) {
    await removeFile(file);
    throw error;
  }
}

/** Keys that are asked for, as rows of `asked` by their `r`, and for each a group of the set that may have it. */
interface Wanted {
  readonly rows: number[];
  readonly groups: number[];
}

async function findWanted(duckdb: Duckdb, set: KeySet): Promise<Wanted> {
  const wanted: Wanted = { rows: [], groups: [] };
  const [lows = noHashes, highs = noHashes, asked = noHashes] = await duckdb.integers(
    `SELECT ${halvesSql('key')}, r::UINTEGER FROM asked`,
  );
  for (let index = 0; index < asked.length; index += 1)
    for (const group of set.find(lows[index] ?? 0, highs[index] ?? 0)) {
      wanted.rows.push(asked[index] ?? 0);
      wanted.groups.push(group);
    }
  return wanted;
}

/** Adds hashes to the set, a part at a time; returns the number of their group, undefined where there is no room. */
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

/** Loads what the slices have of the keys that are wanted of them; of one without a group all that are asked for. */
async function lookUpIn(duckdb: Duckdb, slices: readonly Slice[], { rows, groups }: Wanted): Promise<void> {
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

/** Creates them, none; their files lie in a folder that its owner empties at start. */
export function createKeySlices(duckdb: Duckdb, folder: string): KeySlices {
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
    async add() {
      const [row] = await duckdb.rows('SELECT count(*) AS n, min(ms) AS low, max(ms) AS high FROM recent_keys');
      const [rows, fromMs, toMs] = [Number(row?.['n']), Number(row?.['low']), Number(row?.['high'])];
      if (rows === 0) return;
      await ensureFolder(folder);
      // A name of its own: a compactor that has lost its lake to another may still write beside it.
      const file = path.join(folder, `${randomUUID()}.parquet`);
      const group = await addGroup(set, await writeSlice(duckdb, file));
      slices = [...slices, { file, group, rows, fromMs, toMs }];
      await duckdb.run(createKeysSql('recent_keys'));
    },
    async lookUp() {
      await duckdb.run(createKeysSql('sliced_keys'));
      if (slices.length > 0) await lookUpIn(duckdb, slices, await findWanted(duckdb, set));
    },
    async forgetBefore(ms) {
      for (const slice of slices) slice.fromMs = Math.max(slice.fromMs, ms);
      await drop(slices.filter(({ toMs }) => toMs < ms));
    },
    async clear() {
      await drop(slices);
      set = createKeySet('255');
    },
  };
}
