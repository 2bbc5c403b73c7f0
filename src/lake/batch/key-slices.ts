import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { requestKeyType } from '../../datasets/event-id.ts';
import { ensureFolder, removeFile } from '../../runtime/files/durable-file.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { createKeySet, halvesSql, type KeyHashes, type KeySet } from './key-set.ts';

/**
 * The greater part of the known keys: slices of them in the order in which they became known, each a work file of 22
 * bytes an event, which nobody looks into unless it may have a key that is asked for. Which one may is known by a set of
 * hashes: 6 to 9 bytes of memory for each request, and half a microsecond for each key that is asked for. To
 * forget a slice costs nothing.
 */
export interface KeySlices {
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
