import path from 'node:path';
import { randomUUID } from 'node:crypto';
import {
  type KeyMask,
  fingerprintSql,
  isKeyedSql,
  requestIndexSql,
  requestKeySql,
  requestKeyType,
} from '../../datasets/event-id.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { localFiles } from '../../runtime/store/open-store.ts';
import { ensureFolder, removeFile } from '../../runtime/files/durable-file.ts';
import { type KeyHashes, type KeySet, createKeySet, readHashes } from './key-set.ts';

export interface SpilledKeysOptions {
  readonly folder: string;
  /** Minimum rows of a slice [half a million, which classify a batch in 4 ms]. */
  readonly rows?: number | undefined;
}

const usualRows = 2 ** 19;
/** Minimum part of all keys in a slice, since slice numbers are bytes. */
const slicesOfAll = 128;

/** DuckDB would multiply small numbers as 32-bit ones, and JavaScript large ones as doubles. */
const timeSql = (ms: number): string => `make_timestamptz(${BigInt(ms) * 1000n})`;

const newestMs = ({ maxValues }: DataFile): number => Date.parse(String(maxValues['received_at'])) || 0;

/** Groups files by time into slices, so that slices expire in order. */
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
 * Creates an engine's known keys: parts of stored ids with times of receipt. The newest half million are in the table
 * `recent_keys`. With options, others are in slices, of which a batch reads only those with its keys.
 */
export function createKeyTable(duckdb: Duckdb, mask: KeyMask, options?: SpilledKeysOptions) {
  const keySql = requestKeySql('event_id', mask);
  const columnsSql = `${keySql} AS key, ${fingerprintSql('event_id')} AS print, ${requestIndexSql('event_id')} AS place`;
  const slices = options === undefined ? undefined : createSpilledKeys(duckdb, options.folder);
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
    /** SQL that converts event ids to all columns of a table of keys except `ms`. */
    columnsSql,
    addReceived(files: readonly DataFile[], { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number }) {
      const upTo = Number.isFinite(toMs) ? ` AND received_at <= ${timeSql(toMs)}` : '';
      return addKeys(files, `received_at >= ${timeSql(fromMs)}${upTo}`);
    },
    addAll: (files: readonly DataFile[]) => addKeys(files, 'true'),
    /** Adds the files' keys that the loaded batch has too. */
    addOfBatch: (files: readonly DataFile[]) => addKeys(files, `${keySql} IN (SELECT ${keySql} FROM batch)`),
    addJudged: () => duckdb.run('INSERT INTO recent_keys SELECT * FROM batch_keys'),
    /** Loads the slices' keys that `asked` has too into `sliced_keys`. */
    lookUp: async () => slices?.lookUp(),
    slice,
    size: () => slices?.size() ?? { events: 0, memoryBytes: 0 },
    async forgetBefore(ms: number) {
      // Recreated, because the engine keeps the space of deleted rows.
      await duckdb.run(`CREATE OR REPLACE TEMP TABLE recent_keys AS SELECT * FROM recent_keys WHERE ms >= ${ms}`);
      await slices?.forgetBefore(ms);
    },
    async clear() {
      await duckdb.run(createKeysSql('recent_keys'));
      await slices?.clear();
    },
  };
}

export type IdempotencyKeyTable = ReturnType<typeof createKeyTable>;

interface Slice {
  readonly file: string;
  readonly rows: number;
  readonly toMs: number;
  fromMs: number;
  /** Its id in the set; undefined if the set is full: then every batch with keys reads the slice. */
  readonly group: number | undefined;
}

/** Memory of the hashes of about 100 million requests, bytes. Further keys are searched for in the files. */
const maxSetBytes = 1024 ** 3;

/** Creates an empty table of keys. `place` is NULL if the request is known and its event could not be stored. */
export const createKeysSql = (name: string): string =>
  `CREATE OR REPLACE TEMP TABLE ${name} (key ${requestKeyType}, print BIGINT, place SMALLINT, ms BIGINT)`;

/** Hashes per step, which blocks the process: about 50 ms with 100 million keys. */
const hashesAtOnce = 2 ** 18;

/** Writes `recent_keys` to a file, and returns the hashes. An error leaves no file. */
async function writeSlice(duckdb: Duckdb, file: string): Promise<KeyHashes> {
  try {
    // Hashes do not compress. Packing saves a third; compression a sixth of the remainder in twice the time.
    await duckdb.run(
      `COPY recent_keys TO ${sqlText(file)} (FORMAT parquet, COMPRESSION uncompressed, PARQUET_VERSION v2)`,
    );
    return await readHashes(duckdb, 'key', 'FROM recent_keys');
  } catch (error) {
    await removeFile(file);
    throw error;
  }
}

/** Adds hashes in steps. Returns the id of their group; undefined if the set is full. */
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
 * Creates the slices of older keys: work files of 22 bytes per event, in a folder that its owner empties at start. A
 * hash set finds a key's slices: 6 to 9 bytes of memory per request, 0.5 µs per key.
 */
export function createSpilledKeys(duckdb: Duckdb, folder: string) {
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
    /** Writes all rows of `recent_keys` to a new slice. Errors: `disk`, `memory`, `sql`. */
    async add() {
      const [row] = await duckdb.rows('SELECT count(*) AS n, min(ms) AS low, max(ms) AS high FROM recent_keys');
      const [rows, fromMs, toMs] = [Number(row?.['n']), Number(row?.['low']), Number(row?.['high'])];
      if (rows === 0) return;
      await ensureFolder(folder);
      // A unique name: a fenced compactor may still write to the folder.
      const file = path.join(folder, `${randomUUID()}.parquet`);
      const group = await addGroup(set, await writeSlice(duckdb, file));
      slices = [...slices, { file, group, rows, fromMs, toMs }];
      await duckdb.run(createKeysSql('recent_keys'));
    },
    /**
     * Replaces `sliced_keys` by the slices' keys that `asked` has too: 20 ms per million events of a slice. Error:
     * `sql`.
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
