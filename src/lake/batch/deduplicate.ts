import { localFiles } from '../../runtime/store/open-store.ts';
import { type Dataset, events, importDatasets } from '../../datasets/dataset.ts';
import { isKeyedSql, keyWindowMs } from '../../datasets/event-id.ts';
import type { EventKind } from '../../datasets/field-schema.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { withEmptyFile, type DataFile } from '../log/snapshot.ts';
import { assertFilesIntact } from '../files/data-file.ts';
import { type IdempotencyKeyTable, createKeysSql } from './key-table.ts';
import { type KeyHashes, readHashes } from './key-set.ts';
import { lineColumns } from '../../datasets/event-line.ts';

/** With `stream`, a row before a known one shows a clock that was set back, and is a duplicate at any distance. */
export type DedupeRule = 'stream' | 'failed';

export async function createDedupeTables(duckdb: Duckdb): Promise<void> {
  for (const name of ['recent_keys', 'sliced_keys', 'batch_keys']) await duckdb.run(createKeysSql(name));
  for (const name of ['stored_before', 'stored_rows'])
    await duckdb.run(`CREATE OR REPLACE TEMP TABLE ${name} (r BIGINT)`);
  await duckdb.run('CREATE OR REPLACE TEMP TABLE dropped (r BIGINT, verdict VARCHAR)');
}

/** Returns the files that may have an event of the batch, by its time of receipt. */
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

/** Drops rows that lookups have found; with `mayRepeat` also equal rows of the batch after the first one. */
async function dropKnown(duckdb: Duckdb, mayRepeat: boolean): Promise<void> {
  await duckdb.run(
    `INSERT INTO dropped SELECT r, 'repeat'
     FROM (SELECT rowid AS r, row_number() OVER (PARTITION BY event_id, received_at ORDER BY rowid) AS n FROM batch WHERE NOT bad)
     WHERE ${mayRepeat ? 'n > 1 OR ' : ''}r IN (SELECT r FROM stored_before)`,
  );
}

/** Reads the keyed ids of the batch into `asked`, in order. A bad row counts for its request only. */
async function readAsked(duckdb: Duckdb, rule: DedupeRule, { columnsSql }: IdempotencyKeyTable): Promise<void> {
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

/** Classifies `asked` by a query of known ids. Rejects another request under a known key entirely. */
async function classifyBy(duckdb: Duckdb, known: string, rule: DedupeRule): Promise<void> {
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

/** Accepts the first request of each remaining key as the key's owner. */
async function acceptFirst(duckdb: Duckdb): Promise<void> {
  // A request has one time of receipt. The same request twice in a millisecond counts once.
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

async function classifyKeys(duckdb: Duckdb, rule: DedupeRule, keys: IdempotencyKeyTable): Promise<void> {
  await readAsked(duckdb, rule, keys);
  if ((await countAsked(duckdb)) === 0) return;
  await keys.lookUp();
  await classifyBy(duckdb, 'FROM recent_keys UNION ALL FROM sliced_keys', rule);
  // One round for most batches; more if a key returns after its window, or after an event that could not be stored.
  while ((await countAsked(duckdb)) > 0) {
    await acceptFirst(duckdb);
    if ((await countAsked(duckdb)) > 0) await classifyBy(duckdb, 'FROM batch_keys', rule);
  }
}

/** Lookups that were used for a batch. */
interface LookupsUsed {
  events: boolean;
  former: boolean;
}

/** Classifies the rows of `batch`, also by results of the lookups that were used. */
async function classify(duckdb: Duckdb, keys: IdempotencyKeyTable, rule: DedupeRule, used: Readonly<LookupsUsed>) {
  await duckdb.run('DELETE FROM dropped');
  await duckdb.run('DELETE FROM batch_keys');
  // Equal rows are one event if the stream may deliver messages again. Otherwise each was acknowledged, and its key
  // decides.
  if (used.events || used.former) await dropKnown(duckdb, used.events);
  for (const dataset of importDatasets) await dropStoredRows(duckdb, dataset);
  await classifyKeys(duckdb, rule, keys);
  const kinds = await duckdb.rows(
    `SELECT kind, count(*) AS lines, count(*) FILTER (WHERE rowid IN (SELECT r FROM dropped WHERE verdict = 'repeat')) AS repeats
     FROM batch WHERE NOT bad GROUP BY kind`,
  );
  const [counts] = await duckdb.rows('SELECT count(*) AS keys FROM batch_keys WHERE place IS NOT NULL');
  const reused = await duckdb.rows("SELECT r::INTEGER AS r FROM dropped WHERE verdict = 'key_reused' ORDER BY r");
  return {
    kinds: new Map<EventKind, { readonly lines: number; readonly repeats: number }>(
      kinds.map((row) => [String(row['kind']), { lines: Number(row['lines']), repeats: Number(row['repeats']) }]),
    ),
    /** Rowids of events whose key belongs to another request. They become failed events. */
    reused: reused.map((row) => Number(row['r'])),
    addsKeys: Number(counts?.['keys']) > 0,
  };
}

export type Classification = Awaited<ReturnType<typeof classify>>;

export const hourMs = 3_600_000;

/** Returns the start of each hour in which keyed events of the batch were received, Unix ms, ascending. */
export async function readKeyedHours(duckdb: Duckdb): Promise<number[]> {
  const rows = await duckdb.rows(
    `SELECT DISTINCT (epoch_ms(received_at) // ${hourMs}) * ${hourMs} AS hour FROM batch WHERE ${isKeyedSql('event_id')} AND received_at IS NOT NULL ORDER BY hour`,
  );
  return rows.map((row) => Number(row['hour']));
}

export function naturalKeyKinds({ kindSpecs }: Dataset): string[] {
  return [...kindSpecs].flatMap(([kind, { key }]) => (key.length > 0 ? [kind] : []));
}

/** Rows whose hashes are read at a time: some megabytes. */
const rowsAtOnce = 4 * 122_880;

export async function readFileKeys(duckdb: Duckdb, file: DataFile, take: (hashes: KeyHashes) => void): Promise<void> {
  await localFiles.use([file], async (paths) => {
    const source = `read_parquet(${sqlList(paths)}, hive_partitioning = false, file_row_number = true)`;
    const [counted] = await duckdb.rows(`SELECT count(*) AS n FROM ${source}`);
    const count = Number(counted?.['n']);
    for (let from = 0; from < count; from += rowsAtOnce) {
      const range = `file_row_number >= ${from} AND file_row_number < ${from + rowsAtOnce}`;
      take(await readHashes(duckdb, 'event_id', `FROM ${source} WHERE ${range} AND event_id IS NOT NULL`));
    }
  });
}

/** Drops rows that the table or an earlier row of the batch has. */
async function dropStoredRows(duckdb: Duckdb, dataset: Dataset): Promise<void> {
  const kinds = naturalKeyKinds(dataset);
  if (kinds.length === 0) return;
  await duckdb.run(
    `INSERT INTO dropped SELECT r, 'repeat' FROM (
       SELECT rowid AS r, row_number() OVER (PARTITION BY event_id, id_app ORDER BY rowid) AS n
       FROM batch WHERE NOT bad AND kind IN (${kinds.map(sqlText).join(', ')}))
     WHERE (n > 1 OR r IN (SELECT r FROM stored_rows)) AND r NOT IN (SELECT r FROM dropped)`,
  );
}

/**
 * Retries of batches that version 0.2 stored under other ids look like reused keys. Values identify them: the lake has
 * the first event alone under the key, and others, received at the same time, under other keys.
 */

/** Limit of requests that may be such retries. Above it, all are rejected. */
const maxTimes = 1000;

const reusedSql = "SELECT r FROM dropped WHERE verdict = 'key_reused'";

const valueColumns = lineColumns
  .map(({ name }) => name)
  .filter((name) => !['event_id', 'event_time', 'received_at'].includes(name))
  .filter((name) => events.columns.some((column) => column.name === name));

const sameTimeSql = `(stored.event_time = asked.event_time OR
  (epoch_ms(stored.event_time) = stored.ms // 1000 * 1000 AND epoch_ms(asked.event_time) = asked.ms // 1000 * 1000))`;

/** Fills `former` with possible retries. Returns the first receipts of their keys, Unix ms. */
async function findFormerTimes(duckdb: Duckdb, { columnsSql }: IdempotencyKeyTable): Promise<number[]> {
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

/** Finds the events of `former` in files and in the batch. Rows of complete requests are duplicates. */
async function lookUpFormer(
  duckdb: Duckdb,
  { columnsSql }: IdempotencyKeyTable,
  paths: readonly string[],
): Promise<void> {
  const names = valueColumns.join(', ');
  const columns = `${columnsSql}, epoch_ms(received_at) AS ms, event_time, ${names}`;
  const source = `read_parquet(${sqlList(paths)}, union_by_name = true, hive_partitioning = false)`;
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

function createLookup(duckdb: Duckdb, keys: IdempotencyKeyTable) {
  const used: LookupsUsed = { events: false, former: false };
  return {
    used,
    keyedHours: () => readKeyedHours(duckdb),
    /**
     * Finds events in files, since a recreated stream delivers them again; also within the batch. Error:
     * `file_damaged`.
     */
    async lookUpEvents(lakeFiles: readonly DataFile[]) {
      used.events = true;
      const files = await findLookUpFiles(duckdb, lakeFiles);
      if (files.length === 0) return;
      // A damaged file hides ids, and their events would be stored again.
      await assertFilesIntact(files);
      // A keyed id with a later time of receipt, after its window, is another event.
      await localFiles.use(files, (paths) =>
        duckdb.run(
          `INSERT INTO stored_before SELECT rowid FROM batch
           WHERE NOT bad AND (event_id, received_at) IN (SELECT (event_id, received_at) FROM read_parquet(${sqlList(paths)}, hive_partitioning = false))`,
        ),
      );
    },
    /** Adds the files' keys that the batch has too. */
    addOwnKeys: (files: readonly DataFile[]) => keys.addOfBatch(files),
    /** First receipts, Unix ms, of reused keys that version 0.2 may have stored. */
    formerTimes: () => findFormerTimes(duckdb, keys),
    /** Finds the events of those requests in files by their values: they are duplicates. */
    async lookUpFormer(files: readonly DataFile[], emptyFile: string) {
      used.former = true;
      await localFiles.use(withEmptyFile({ emptyFile }, files), (paths) => lookUpFormer(duckdb, keys, paths));
    },
    readNaturalKeys(dataset: Dataset) {
      const kinds = naturalKeyKinds(dataset).map(sqlText).join(', ');
      const isKeyed = kinds === '' ? 'false' : `kind IN (${kinds})`;
      return readHashes(duckdb, 'event_id', `FROM batch WHERE NOT bad AND ${isKeyed}`, 'rowid');
    },
    /** Finds such rows in files: they are duplicates. */
    async lookUpNaturalKeys(files: readonly DataFile[], rowids: readonly number[]) {
      const rowidList = rowids.join(', ');
      await localFiles.use(files, (paths) =>
        duckdb.run(
          `INSERT INTO stored_rows SELECT rowid FROM batch WHERE rowid IN (${rowidList}) AND (event_id, id_app) IN (
             SELECT (event_id, id_app) FROM read_parquet(${sqlList(paths)}, hive_partitioning = false)
             WHERE event_id IN (SELECT event_id FROM batch WHERE rowid IN (${rowidList})))`,
        ),
      );
    },
  };
}

export type BatchLookup = ReturnType<typeof createLookup>;

/**
 * Creates the classifier of the loaded batch. Stores the rowids of dropped rows in `dropped`, and new keys in
 * `batch_keys`. Known keys must cover the window around each row. A request's rows are rejected together, but each is a
 * duplicate individually. Repeatable.
 */
export function createClassifier(
  duckdb: Duckdb,
  keys: IdempotencyKeyTable,
): (known: KnownEvents) => Promise<Classification> {
  const lookUp = createLookup(duckdb, keys);
  let isForgotten = false;
  return async (known) => {
    // The tables have lookups of the previous batch.
    for (const name of isForgotten ? [] : ['stored_before', 'stored_rows']) await duckdb.run(`DELETE FROM ${name}`);
    isForgotten = true;
    await known.load(lookUp);
    return classify(duckdb, keys, known.rule, lookUp.used);
  };
}

/** Source of a batch's known events, and of the requests of its Idempotency-Keys. */
export interface KnownEvents {
  readonly rule: DedupeRule;
  load(batch: BatchLookup): Promise<void>;
}
