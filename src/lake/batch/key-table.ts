import { fingerprintSql, isKeyedSql, placeSql, requestKeySql } from '../../datasets/event-id.ts';
import type { DataFile } from '../log/snapshot.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList } from '../sql/literals.ts';

/**
 * The keys of events that the lake has, in the table `recent_keys`: the parts of each id, and when it was received.
 * Batches are judged by them; some 50 bytes an event.
 */
export interface KeyTable {
  /** Adds those of the rows of some files, received within the range, both ends included. */
  addReceived(files: readonly DataFile[], range: { readonly fromMs: number; readonly toMs: number }): Promise<void>;
  /** Adds those of all rows of some files. */
  addAll(files: readonly DataFile[]): Promise<void>;
  /** Removes those received before a time, Unix milliseconds. */
  forgetBefore(ms: number): Promise<void>;
  clear(): Promise<void>;
}

/** The columns of a table of keys, read from event ids. */
export const keyColumnsSql = `${requestKeySql('event_id')} AS key, ${fingerprintSql('event_id')} AS print, ${placeSql('event_id')} AS place`;

/** SQL of a time. The engine would multiply small numbers as 32-bit ones, and JavaScript large ones as doubles. */
const timeSql = (ms: number): string => `make_timestamptz(${BigInt(ms) * 1000n})`;

function addKeys(duckdb: Duckdb, files: readonly DataFile[], where: string): Promise<void> {
  const source = `read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false)`;
  return duckdb.run(
    `INSERT INTO recent_keys SELECT ${keyColumnsSql}, epoch_ms(received_at) AS ms FROM ${source} WHERE ${isKeyedSql('event_id')} AND ${where}`,
  );
}

/** Adds what some files have under the keys of the batch in the tables. */
export function addKeysOfBatch(duckdb: Duckdb, files: readonly DataFile[]): Promise<void> {
  const key = requestKeySql('event_id');
  return addKeys(duckdb, files, `${key} IN (SELECT ${key} FROM batch)`);
}

/** Adds the keys of the rows of the batch that were judged to be written. */
export function addJudgedKeys(duckdb: Duckdb): Promise<void> {
  return duckdb.run('INSERT INTO recent_keys SELECT * FROM batch_keys');
}

/** Gives the operations on an engine's table of known keys, which `createDedupeTables` has made. */
export function createKeyTable(duckdb: Duckdb): KeyTable {
  return {
    addReceived(files, { fromMs, toMs }) {
      const upTo = Number.isFinite(toMs) ? ` AND received_at <= ${timeSql(toMs)}` : '';
      return addKeys(duckdb, files, `received_at >= ${timeSql(fromMs)}${upTo}`);
    },
    addAll: (files) => addKeys(duckdb, files, 'true'),
    forgetBefore: (ms) => duckdb.run(`DELETE FROM recent_keys WHERE ms < ${ms}`),
    clear: () => duckdb.run('DELETE FROM recent_keys'),
  };
}
