import { sqlList, type Duckdb } from '../lake/duckdb.ts';
import type { Failure } from './convert.ts';
import { pruneFiles } from '../lake/prune.ts';
import type { DataFile, Snapshot } from '../lake/snapshot.ts';
import type { Table } from '../lake/table.ts';
import { assertFilesWhole, findFileDamage } from '../lake/verify-files.ts';
import type { AppError } from '../runtime/errors.ts';

/** How long an event id derived from an Idempotency-Key is remembered: within it a repeat is dropped. */
export const dedupeWindowMs = 24 * 3600 * 1000;

/**
 * Which rows of `batch` are not to be written: those whose key has come before. The rows are in the temporary table
 * `dropped`, by rowid.
 */
export interface Verdict {
  /** The same event again: dropped, and counted. */
  readonly repeats: number;
  /** The same key with another body: kept as failed events. */
  readonly failures: readonly Failure[];
}

export interface DedupeOptions {
  readonly nowMs: number;
  /** Look every event id of the batch up in the lake, whatever its kind: the stream may have delivered it under another sequence. */
  readonly lookUpAll: boolean;
}

// The first 24 characters of a keyed id are its dedupe key, the rest is the fingerprint of its body (model/event-id.ts).
const keyed = "NOT bad AND substr(event_id, 15, 1) = '8'";
const keySql = 'substr(event_id, 1, 24)';
const printSql = 'substr(event_id, 25)';

/**
 * Opens the memory of keyed event ids, filled from the lake: those that became available within the window. It lies in a
 * table of the engine, some 60 bytes an id, and is gone with it. Returns the damage of the files that could not be trusted:
 * their keys are not known, so a repeat of one would be stored again. Time: that of reading those files whole. Errors:
 * `corrupt`, `retryable`, when a file was replaced meanwhile: its keys are in another one; the signal's reason.
 */
export async function openRecentKeys(duckdb: Duckdb, table: Table, nowMs: number, signal?: AbortSignal): Promise<AppError[]> {
  await duckdb.run('CREATE OR REPLACE TEMP TABLE recent_keys (key VARCHAR, print VARCHAR, at_ms BIGINT)');
  await duckdb.run('CREATE OR REPLACE TEMP TABLE dropped (r BIGINT, verdict VARCHAR)');
  const files: DataFile[] = [];
  const damages: AppError[] = [];
  for (const file of pruneFiles(table.snapshot().files, { availableAt: { fromMs: nowMs - dedupeWindowMs } })) {
    signal?.throwIfAborted();
    const damage = await findFileDamage(file);
    if (damage === undefined) {
      files.push(file);
      continue;
    }
    if (damage.retryable) await table.refresh();
    if (damage.retryable && !table.snapshot().files.some(({ path }) => path === file.path)) throw damage;
    damages.push(damage);
  }
  if (files.length === 0) return damages;
  await duckdb.run(
    `INSERT INTO recent_keys SELECT ${keySql}, ${printSql}, epoch_ms(available_at)
     FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false)
     WHERE substr(event_id, 15, 1) = '8' AND epoch_ms(available_at) >= ${nowMs - dedupeWindowMs}`,
  );
  return damages;
}

/** Files that may have an event of the batch: the same event was received at the same time. */
async function findLookUpFiles(duckdb: Duckdb, snapshot: Snapshot): Promise<DataFile[]> {
  const [range] = await duckdb.rows('SELECT epoch_ms(min(received_at)) AS low, epoch_ms(max(received_at)) AS high FROM batch WHERE NOT bad');
  const [low, high] = [Number(range?.['low']), Number(range?.['high'])];
  return snapshot.files
    .filter(({ minValues, maxValues }) => !(Date.parse(String(maxValues['received_at'])) + 1 < low) && !(Date.parse(String(minValues['received_at'])) > high));
}

async function dropKnown(duckdb: Duckdb, snapshot: Snapshot): Promise<void> {
  await duckdb.run(
    `INSERT INTO dropped SELECT r, 'repeat' FROM (SELECT rowid AS r, row_number() OVER (PARTITION BY event_id ORDER BY rowid) AS n FROM batch WHERE NOT bad) WHERE n > 1`,
  );
  const files = await findLookUpFiles(duckdb, snapshot);
  if (files.length === 0) return;
  // An id that a damaged file no longer shows would be stored again.
  await assertFilesWhole(files);
  await duckdb.run(
    `INSERT INTO dropped SELECT rowid, 'repeat' FROM batch
     WHERE NOT bad AND event_id IN (SELECT event_id FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false)) AND rowid NOT IN (SELECT r FROM dropped)`,
  );
}

async function dropRepeatedKeys(duckdb: Duckdb, nowMs: number): Promise<void> {
  // The first row under a key decides what the key stands for; a key known from before decides over every row.
  await duckdb.run(
    `INSERT INTO dropped
     WITH ours AS (SELECT rowid AS r, ${keySql} AS key, ${printSql} AS print FROM batch WHERE ${keyed} AND rowid NOT IN (SELECT r FROM dropped)),
     firsts AS (SELECT key, min(r) AS r, arg_min(print, r) AS print FROM ours GROUP BY key),
     known AS (SELECT key, arg_min(print, at_ms) AS print FROM recent_keys WHERE at_ms >= ${nowMs - dedupeWindowMs} GROUP BY key)
     SELECT ours.r, CASE WHEN ours.print = coalesce(known.print, firsts.print) THEN 'repeat' ELSE 'key_reused' END
     FROM ours JOIN firsts USING (key) LEFT JOIN known USING (key)
     WHERE known.print IS NOT NULL OR ours.r <> firsts.r`,
  );
}

/** Judges the rows of `batch`. */
export async function dedupeBatch(duckdb: Duckdb, snapshot: Snapshot, options: DedupeOptions): Promise<Verdict> {
  await duckdb.run('DELETE FROM dropped');
  if (options.lookUpAll) await dropKnown(duckdb, snapshot);
  const [any] = await duckdb.rows(`SELECT count(*) AS n FROM batch WHERE ${keyed}`);
  if (Number(any?.['n']) > 0) await dropRepeatedKeys(duckdb, options.nowMs);
  const [repeats] = await duckdb.rows("SELECT count(*) AS n FROM dropped WHERE verdict = 'repeat'");
  const reused = await duckdb.rows(
    `SELECT to_json(b)::VARCHAR AS line FROM (SELECT * EXCLUDE (bad, raw, date) REPLACE (epoch(event_time)::BIGINT AS event_time, epoch_ms(received_at) AS received_at)
     FROM batch WHERE rowid IN (SELECT r FROM dropped WHERE verdict = 'key_reused')) AS b`,
  );
  return { repeats: Number(repeats?.['n']), failures: reused.map((row): Failure => ({ reason: 'key_reused', line: String(row['line']) })) };
}

/** Remembers the keyed ids of the batch that was committed, and forgets those past the window. */
export async function rememberKeys(duckdb: Duckdb, availableAtMs: number): Promise<void> {
  await duckdb.run(
    `INSERT INTO recent_keys SELECT ${keySql}, ${printSql}, ${availableAtMs} FROM batch WHERE ${keyed} AND rowid NOT IN (SELECT r FROM dropped)`,
  );
  await duckdb.run(`DELETE FROM recent_keys WHERE at_ms < ${availableAtMs - dedupeWindowMs}`);
}
