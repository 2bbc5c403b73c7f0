import { fingerprintSql, isKeyedSql, placeSql, requestKeySql, type KeyMask } from '../../datasets/event-id.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';
import { createKeysSql, createKeySlices } from './key-slices.ts';

/**
 * The keys of events that the lake has: the parts of each id, and when it was received. Batches are judged by them. The
 * newest half a million, where nearly all repeats are found, are in the table `recent_keys`, in the engine's memory; the
 * others in slices (key-slices.ts). What a batch costs follows its own keys, and the slices that have some of them.
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
