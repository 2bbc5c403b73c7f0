import { type Dataset, events, importDatasets } from '../../datasets/dataset.ts';
import { isKeyedSql, keyWindowMs } from '../../datasets/event-id.ts';
import type { EventKind } from '../../datasets/field-schema.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import type { DataFile } from '../log/snapshot.ts';
import { assertFilesWhole } from '../files/data-file.ts';
import { type KeyTable, createKeysSql } from './key-table.ts';
import { type KeyHashes, halvesSql } from './key-set.ts';
import { lineColumns } from '../../datasets/event-line.ts';

/**
 * Which rows of `batch` are not to be written, and why. The rows are in the temporary table `dropped`, by rowid. Those
 * that are to be written are in the table `batch_keys`, for the memory of keys.
 */
export interface Verdict {
  /** The good rows of each kind that is there, and how many of them are the same events again: dropped, and counted. */
  readonly kinds: ReadonlyMap<EventKind, { readonly lines: number; readonly repeats: number }>;
  /** Rowids of events whose key stands for another request: kept as failed events. */
  readonly reused: readonly number[];
  /** Among the rows to write are some under an Idempotency-Key. */
  readonly addsKeys: boolean;
}

/**
 * The rule that a batch is judged by. `stream`: the rows came in the order in which they were received. One that was
 * received before a known one, and comes after it, shows that the clock was set back: it is a repeat however far.
 * `failed`: the rows may be much older than what the lake has, which says nothing about them.
 */
export type DedupeRule = 'stream' | 'failed';

/** Creates the tables that a batch is judged with. */
export async function createDedupeTables(duckdb: Duckdb): Promise<void> {
  for (const name of ['recent_keys', 'sliced_keys', 'batch_keys']) await duckdb.run(createKeysSql(name));
  for (const name of ['stored_before', 'stored_rows'])
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${name} (r BIGINT)`);
  await duckdb.run('CREATE OR REPLACE TEMP TABLE dropped (r BIGINT, verdict VARCHAR)');
}

/** Files that may have an event of the batch: the same event was received at the same time. */
async function findLookUpFiles(duckdb: Duckdb, files: readonly DataFile[]): Promise<DataFile[]> {
  const [range] = await duckdb.rows(
    'SELECT epoch_ms(min(received_at)) AS low, epoch_ms(max(received_at)) AS high FROM batch WHERE NOT bad',
  );
  const [low, high] = [Number(range?.['low']), Number(range?.['high'])];
  return files.filter(
    ({ minValues, maxValues }) =>
      !(Date.parse(String(maxValues['received_at'])) + 1 < low) &&
      !(Date.parse(String(minValues['received_at'])) > high),
  );
}

/**
 * Looks every event of the batch up in files of the lake, whatever its kind: the stream may have delivered it before,
 * under another sequence.
 */
export async function lookUpEvents(duckdb: Duckdb, lakeFiles: readonly DataFile[]): Promise<void> {
  const files = await findLookUpFiles(duckdb, lakeFiles);
  if (files.length === 0) return;
  // An id that a damaged file no longer shows would be stored again.
  await assertFilesWhole(files);
  // A keyed id may come again after its time, received later: then it is another event.
  await duckdb.run(
    `INSERT INTO stored_before SELECT rowid FROM batch
     WHERE NOT bad AND (event_id, received_at) IN (SELECT (event_id, received_at) FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false))`,
  );
}

/** Forgets what was looked up for the batch before. */
export async function forgetLookUps(duckdb: Duckdb): Promise<void> {
  for (const name of ['stored_before', 'stored_rows']) await duckdb.run(`DELETE FROM ${name}`);
}

/** Drops what was found in the lake, and events that are in the batch twice. */
async function dropKnown(duckdb: Duckdb): Promise<void> {
  await duckdb.run(
    `INSERT INTO dropped SELECT r, 'repeat'
     FROM (SELECT rowid AS r, row_number() OVER (PARTITION BY event_id, received_at ORDER BY rowid) AS n FROM batch WHERE NOT bad)
     WHERE n > 1 OR r IN (SELECT r FROM stored_before)`,
  );
}

/**
 * Reads the keyed ids of the batch into `asked`, in the order in which they are judged. A bad row stands for its
 * request, not for its event.
 */
async function readAsked(duckdb: Duckdb, rule: DedupeRule, { columnsSql }: KeyTable): Promise<void> {
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE asked AS
     SELECT * REPLACE (CASE WHEN NOT bad THEN place END AS place)
     FROM (SELECT ${columnsSql}, epoch_ms(received_at) AS ms, bad, rowid AS r, ${rule === 'stream' ? 'rowid' : 'row_number() OVER (ORDER BY received_at, rowid)'} AS n
       FROM batch WHERE ${isKeyedSql('event_id')} AND length(event_id) = 36 AND rowid NOT IN (SELECT r FROM dropped))
     WHERE key IS NOT NULL AND print IS NOT NULL AND ms IS NOT NULL`,
  );
}

async function countAsked(duckdb: Duckdb): Promise<number> {
  const [row] = await duckdb.rows('SELECT count(*) AS n FROM asked');
  return Number(row?.['n']);
}

/**
 * Judges what is asked by known ids, those of a query: the same event is a repeat, the same key for another request is refused, whole as
 * it is.
 */
async function judgeBy(duckdb: Duckdb, known: string, rule: DedupeRule): Promise<void> {
  const isNear =
    rule === 'stream' ? `asked.ms - known.ms <= ${keyWindowMs}` : `abs(asked.ms - known.ms) <= ${keyWindowMs}`;
  await duckdb.run(
    `INSERT INTO dropped
     WITH known AS MATERIALIZED (SELECT * FROM (${known}) WHERE key IN (SELECT key FROM asked)),
     stored AS (SELECT DISTINCT asked.r FROM asked JOIN known ON known.key = asked.key AND known.print = asked.print AND known.place = asked.place AND ${isNear}),
     requests AS (SELECT DISTINCT key, print, ms FROM known),
     others AS (SELECT asked.r FROM asked JOIN requests AS known ON known.key = asked.key AND ${isNear} GROUP BY asked.r, asked.print HAVING NOT bool_or(known.print = asked.print))
     SELECT r, 'repeat' FROM stored
     UNION ALL SELECT r, CASE WHEN bad THEN 'bad' ELSE 'key_reused' END FROM asked WHERE r IN (SELECT r FROM others)`,
  );
  await duckdb.run('DELETE FROM asked WHERE r IN (SELECT r FROM dropped)');
}

/** Takes the first request of each key that is still asked for: it is what the key stands for from then on. */
async function acceptFirst(duckdb: Duckdb): Promise<void> {
  // A request has one time of receipt. The same one twice in the same millisecond is one request whose events come
  // twice.
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE accepted AS
     SELECT asked.* FROM asked JOIN (SELECT key, arg_min(print, n) AS print, arg_min(ms, n) AS ms FROM asked GROUP BY key) AS firsts USING (key, print, ms)`,
  );
  await duckdb.run('INSERT INTO batch_keys SELECT DISTINCT key, print, place, ms FROM accepted');
  await duckdb.run(
    `INSERT INTO dropped SELECT r, 'repeat'
     FROM accepted JOIN (SELECT key, place, min(n) AS n FROM accepted WHERE place IS NOT NULL GROUP BY key, place HAVING count(*) > 1) AS twice USING (key, place) WHERE accepted.n > twice.n`,
  );
  await duckdb.run('DELETE FROM asked WHERE r IN (SELECT r FROM accepted)');
}

async function judgeKeys(duckdb: Duckdb, rule: DedupeRule, keys: KeyTable): Promise<void> {
  await readAsked(duckdb, rule, keys);
  if ((await countAsked(duckdb)) === 0) return;
  await keys.lookUp();
  await judgeBy(duckdb, 'FROM recent_keys UNION ALL FROM sliced_keys', rule);
  // One round for most batches: more where a key comes again after its time, or with an event that could not be stored
  // before.
  while ((await countAsked(duckdb)) > 0) {
    await acceptFirst(duckdb);
    if ((await countAsked(duckdb)) > 0) await judgeBy(duckdb, 'FROM batch_keys', rule);
  }
}

/**
 * Judges the rows of `batch` by the known keys, which must have those received within the window around each row, and
 * by each other, in their order; with `lookedUp`, also by what `lookUpEvents` has found. All rows of a request
 * share its verdict, except that each event is a repeat by itself. Can be repeated for the same batch.
 */
export async function judgeBatch(
  duckdb: Duckdb,
  keys: KeyTable,
  rule: DedupeRule,
  lookedUp: boolean,
): Promise<Verdict> {
  await duckdb.run('DELETE FROM dropped');
  await duckdb.run('DELETE FROM batch_keys');
  if (lookedUp) await dropKnown(duckdb);
  for (const dataset of importDatasets) await dropStoredRows(duckdb, dataset);
  await judgeKeys(duckdb, rule, keys);
  const kinds = await duckdb.rows(
    `SELECT kind, count(*) AS lines, count(*) FILTER (WHERE rowid IN (SELECT r FROM dropped WHERE verdict = 'repeat')) AS repeats
     FROM batch WHERE NOT bad GROUP BY kind`,
  );
  const [counts] = await duckdb.rows('SELECT count(*) AS keys FROM batch_keys WHERE place IS NOT NULL');
  const reused = await duckdb.rows("SELECT r::INTEGER AS r FROM dropped WHERE verdict = 'key_reused' ORDER BY r");
  return {
    kinds: new Map(
      kinds.map((row) => [String(row['kind']), { lines: Number(row['lines']), repeats: Number(row['repeats']) }]),
    ),
    reused: reused.map((row) => Number(row['r'])),
    addsKeys: Number(counts?.['keys']) > 0,
  };
}

/** Whole hours in which keyed events of the batch were received, Unix milliseconds of their beginnings, in order. */
export async function readKeyedHours(duckdb: Duckdb, hourMs: number): Promise<number[]> {
  const rows = await duckdb.rows(
    `SELECT DISTINCT (epoch_ms(received_at) // ${hourMs}) * ${hourMs} AS hour FROM batch WHERE ${isKeyedSql('event_id')} AND received_at IS NOT NULL ORDER BY hour`,
  );
  return rows.map((row) => Number(row['hour']));
}

/** The rows of the batch whose events have a key of their own, which their event ids are made of. */
export interface OwnKeys extends KeyHashes {
  readonly rowids: Uint32Array;
}

/** The kinds of a dataset whose events have a key of their own; empty: none has. */
export function ownKeyKinds({ kindSpecs }: Dataset): string[] {
  return [...kindSpecs].flatMap(([kind, { key }]) => (key.length > 0 ? [kind] : []));
}

const none = new Uint32Array();

/** Reads the keys of the batch that are of a dataset's kinds. */
export async function readOwnKeys(duckdb: Duckdb, dataset: Dataset): Promise<OwnKeys> {
  const kinds = ownKeyKinds(dataset);
  if (kinds.length === 0) return { lows: none, highs: none, rowids: none };
  const [lows = none, highs = none, rowids = none] = await duckdb.integers(
    `SELECT ${halvesSql('event_id')}, rowid::UINTEGER FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')})`,
  );
  return { lows, highs, rowids };
}

/** Rows of a file that are read at once: their hashes are some megabytes, whatever the file holds. */
const rowsAtOnce = 4 * 122_880;

/** Reads the hashes of the event ids of all rows of a file, and hands them over in portions. */
export async function readFileKeys(duckdb: Duckdb, file: DataFile, take: (hashes: KeyHashes) => void): Promise<void> {
  const source = `read_parquet(${sqlText(file.absolutePath)}, hive_partitioning = false, file_row_number = true)`;
  const [counted] = await duckdb.rows(`SELECT count(*) AS n FROM ${source}`);
  const count = Number(counted?.['n']);
  for (let from = 0; from < count; from += rowsAtOnce) {
    const [lows = none, highs = none] = await duckdb.integers(
      `SELECT ${halvesSql('event_id')} FROM ${source}
       WHERE file_row_number >= ${from} AND file_row_number < ${from + rowsAtOnce} AND event_id IS NOT NULL`,
    );
    take({ lows, highs });
  }
}

/** Looks rows of the batch up in files, by event id and app: those that are there are repeats. */
export async function lookUpOwnKeys(
  duckdb: Duckdb,
  files: readonly DataFile[],
  rowids: readonly number[],
): Promise<void> {
  const asked = rowids.join(', ');
  await duckdb.run(
    `INSERT INTO stored_rows SELECT rowid FROM batch WHERE rowid IN (${asked}) AND (event_id, id_app) IN (
       SELECT (event_id, id_app) FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}, hive_partitioning = false)
       WHERE event_id IN (SELECT event_id FROM batch WHERE rowid IN (${asked})))`,
  );
}

/** Drops the rows that the table has, and those that are in the batch for the second time. */
async function dropStoredRows(duckdb: Duckdb, dataset: Dataset): Promise<void> {
  const kinds = ownKeyKinds(dataset);
  if (kinds.length === 0) return;
  await duckdb.run(
    `INSERT INTO dropped SELECT r, 'repeat' FROM (
       SELECT rowid AS r, row_number() OVER (PARTITION BY event_id, id_app ORDER BY rowid) AS n
       FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')}))
     WHERE (n > 1 OR r IN (SELECT r FROM stored_rows)) AND r NOT IN (SELECT r FROM dropped)`,
  );
}

/**
 * Retries of batches that version 0.2 took in. It made the first part of an id for each event of a batch and the rest of
 * that event alone, so that by its ids a retry is another request under the same key. It is known by its values: the
 * lake has its first event under its key, the only one under that key at that time of receipt, and the others, received
 * at the same time, under others. So it is also with one event that was sent by itself and then as a batch.
 */

/** Of more requests that may be such retries none is looked for: a client that means them has them refused. */
const maxTimes = 1000;

const reusedSql = "SELECT r FROM dropped WHERE verdict = 'key_reused'";

/** Columns that a retry has the same values in. */
const valueColumns = lineColumns
  .map(({ name }) => name)
  .filter((name) => !['event_id', 'event_time', 'received_at'].includes(name))
  .filter((name) => events.columns.some((column) => column.name === name));

/** True where an event has the time that its client gave, or none was given. */
const sameTimeSql = `(stored.event_time = asked.event_time OR
  (epoch_ms(stored.event_time) = stored.ms // 1000 * 1000 AND epoch_ms(asked.event_time) = asked.ms // 1000 * 1000))`;

/**
 * Finds the batches with a reused key that may be such retries, by the verdict before and the known keys, into the table
 * `former`. Returns when the first requests of those keys were received, Unix milliseconds.
 */
export async function findFormerTimes(duckdb: Duckdb, { columnsSql }: KeyTable): Promise<number[]> {
  await duckdb.run(
    `CREATE OR REPLACE TEMP TABLE former AS
     WITH reused AS (SELECT ${columnsSql}, epoch_ms(received_at) AS ms FROM batch WHERE rowid IN (${reusedSql})),
     requests AS (SELECT key, print, ms, count(DISTINCT place) AS events FROM reused GROUP BY key, print, ms HAVING max(place) = events - 1),
     known AS (SELECT key, ms FROM (FROM recent_keys UNION ALL FROM sliced_keys UNION ALL FROM batch_keys) WHERE key IN (SELECT key FROM requests)
       GROUP BY key, ms HAVING count(*) = 1 AND min(place) > 0)
     SELECT requests.*, known.ms AS first_ms FROM requests JOIN known ON known.key = requests.key AND requests.ms - known.ms <= ${keyWindowMs}`,
  );
  const rows = await duckdb.rows(`SELECT DISTINCT first_ms FROM former LIMIT ${maxTimes + 1}`);
  return rows.length > maxTimes ? [] : rows.map((row) => Number(row['first_ms']));
}

/** Looks the events of the table `former` up in files and in the batch: those of a request that are all there are repeats. */
export async function lookUpFormer(
  duckdb: Duckdb,
  { columnsSql }: KeyTable,
  files: readonly DataFile[],
  emptyFile: string,
): Promise<void> {
  const names = valueColumns.join(', ');
  const columns = `${columnsSql}, epoch_ms(received_at) AS ms, event_time, ${names}`;
  const source = `read_parquet(${sqlList([emptyFile, ...files.map((file) => file.absolutePath)])}, union_by_name = true, hive_partitioning = false)`;
  const same = valueColumns.map((name) => `stored.${name} IS NOT DISTINCT FROM asked.${name}`);
  await duckdb.run(
    `INSERT INTO stored_before
     WITH stored AS (SELECT ${columns} FROM (
         SELECT event_id, received_at, event_time, ${names} FROM ${source}
         UNION ALL SELECT event_id, received_at, event_time, ${names} FROM batch WHERE NOT bad AND rowid NOT IN (SELECT r FROM dropped))
       WHERE ${isKeyedSql('event_id')} AND received_at IN (SELECT make_timestamptz(first_ms * 1000) FROM former)),
     asked AS (SELECT rowid AS r, ${columns} FROM batch WHERE rowid IN (${reusedSql})),
     found AS (SELECT DISTINCT asked.r, asked.place, former.*
       FROM former JOIN asked ON asked.key = former.key AND asked.print = former.print AND asked.ms = former.ms
       JOIN stored ON stored.ms = former.first_ms AND (stored.key = asked.key) = (asked.place = 0) AND ${sameTimeSql} AND ${same.join(' AND ')})
     SELECT unnest(list(r)) FROM found GROUP BY key, print, ms, first_ms, events HAVING count(DISTINCT place) = events`,
  );
}
