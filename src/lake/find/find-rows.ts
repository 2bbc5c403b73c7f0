import type { Dataset } from '../../datasets/dataset.ts';
import { isKeyedId, receivedAtOf } from '../../datasets/event-id.ts';
import { AppError } from '../../runtime/errors.ts';
import { pruneFiles } from '../files/prune.ts';
import type { DataFile, Snapshot } from '../log/snapshot.ts';
import type { Duckdb, SqlValue } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import { idPrefixOf, type IdIndex } from './id-index.ts';

/** What is looked for: the event of an id, or all of a request under an Idempotency-Key. */
export type Sought = { readonly idApp?: number | undefined } & (
  | { readonly eventId: string }
  /** What the ids of the request begin with (`makeRequestKey`). */
  | { readonly requestKey: string }
);

/** A row that was found. Times are Unix milliseconds; of another engine's rows some may be missing. */
export interface FoundRow {
  readonly eventId: string;
  readonly kind?: string;
  readonly eventTimeMs: number | undefined;
  readonly receivedAtMs: number | undefined;
  readonly availableAtMs: number | undefined;
}

/** Rows that are given for one question, of a table. */
export const maxFoundRows = 256;

/** What the ids that are looked for begin with. */
export const idStartOf = (sought: Sought): string => ('eventId' in sought ? sought.eventId : sought.requestKey);

/** Says whether an id is looked for. */
export const isSought = (sought: Sought, eventId: string): boolean => eventId.startsWith(idStartOf(sought));

/** One version of a dataset's table. */
export interface DatasetTable {
  readonly dataset: Dataset;
  readonly snapshot: Snapshot;
}

/** A file that may have what is looked for, and the times of receipt under which. */
interface Candidate {
  readonly file: DataFile;
  readonly receivedAtMs: readonly number[];
}

/** Whether ids that begin so may lie between the least and the greatest id of a file, as far as these are known. */
function mayHoldId({ minValues, maxValues }: DataFile, start: string): boolean {
  const [min, max] = [minValues['event_id'], maxValues['event_id']];
  return !(typeof min === 'string' && min > `${start}~`) && !(typeof max === 'string' && max < start);
}

const hasOwnKeys = ({ kindSpecs }: Dataset): boolean => [...kindSpecs.values()].some(({ key }) => key.length > 0);

/** Whether a file of a dataset's table may have ids that do not say when their events were received. */
export function mayHoldHashed(dataset: Dataset, { keyless }: DataFile): boolean {
  // The tag is of Idempotency-Keys alone.
  return keyless !== true || hasOwnKeys(dataset);
}

/** What finds rows by the ids that do not say when they were received. */
export interface IndexUse {
  readonly index: IdIndex;
  /** Until when files are indexed that have none yet, by `performance.now()`. */
  readonly deadlineMs: number;
}

/** Looks a hashed id up, file by file; indexes those that are not indexed yet, as long as there is time. */
async function findHashed(
  files: readonly DataFile[],
  prefix: number,
  { index, deadlineMs }: IndexUse,
): Promise<Candidate[]> {
  const candidates: Candidate[] = [];
  const missing: DataFile[] = [];
  for (const file of files) {
    const receivedAtMs = await index.find(file, prefix);
    if (receivedAtMs === undefined) missing.push(file);
    else if (receivedAtMs.length > 0) candidates.push({ file, receivedAtMs });
  }
  for (const [done, file] of missing.entries()) {
    let receivedAtMs: readonly number[] | undefined;
    // Who keeps the index up with a newer version of the table removes what that has no use for.
    while (receivedAtMs === undefined) {
      if (performance.now() >= deadlineMs)
        throw new AppError(
          'overloaded',
          `the ids of ${missing.length - done} files of the lake are still to be indexed`,
          { hint: 'Ask again in a while.' },
        );
      await index.add(file);
      receivedAtMs = await index.find(file, prefix);
    }
    if (receivedAtMs.length > 0) candidates.push({ file, receivedAtMs });
  }
  return candidates;
}

/** The files of a table that may have what is looked for. */
async function findCandidates(
  { dataset, snapshot }: DatasetTable,
  sought: Sought,
  use: IndexUse,
): Promise<Candidate[]> {
  const start = idStartOf(sought);
  const apps = sought.idApp === undefined ? {} : { idApps: [sought.idApp] };
  const receivedAtMs = receivedAtOf(start);
  const times = receivedAtMs === undefined ? {} : { receivedAt: { fromMs: receivedAtMs, toMs: receivedAtMs } };
  const files = pruneFiles(snapshot.files, { ...apps, ...times }).filter((file) => mayHoldId(file, start));
  if (receivedAtMs !== undefined) return files.map((file) => ({ file, receivedAtMs: [receivedAtMs] }));
  const mayHold = isKeyedId(start) ? ({ keyless }: DataFile) => keyless !== true : () => hasOwnKeys(dataset);
  return findHashed(files.filter(mayHold), idPrefixOf(start), use);
}

/** SQL of a row's kind: a table of rows of one kind does not say it. */
function kindSql({ columns, kinds }: Dataset): string {
  if (columns.some(({ name }) => name === 'kind')) return 'kind';
  return kinds.length === 1 && kinds[0] !== undefined ? sqlText(kinds[0]) : 'NULL';
}

const msOf = (value: unknown): number | undefined => (typeof value === 'bigint' ? Number(value) : undefined);

/**
 * Finds the rows of an id or a request in one version of a table. An id of version 7 is found by its time of receipt,
 * any other by the index. Errors: `overloaded` while files are being indexed; those of the engine, also where a file is
 * gone since the snapshot.
 */
export async function findRows(
  duckdb: Duckdb,
  table: DatasetTable,
  sought: Sought,
  use: IndexUse,
): Promise<FoundRow[]> {
  const candidates = await findCandidates(table, sought, use);
  if (candidates.length === 0) return [];
  const start = idStartOf(sought);
  const times = [...new Set(candidates.flatMap(({ receivedAtMs }) => receivedAtMs))];
  const values: SqlValue[] = [start, `${start}~`, ...(sought.idApp === undefined ? [] : [sought.idApp])];
  const rows = await duckdb.rows(
    `SELECT event_id, ${kindSql(table.dataset)} AS kind, epoch_ms(event_time) AS event_time, epoch_ms(received_at) AS received_at, epoch_ms(available_at) AS available_at
     FROM read_parquet(${sqlList(candidates.map(({ file }) => file.absolutePath))}, hive_partitioning = false)
     WHERE event_id >= $1 AND event_id < $2 ${sought.idApp === undefined ? '' : 'AND id_app = $3'}
       AND received_at >= make_timestamptz(${Math.min(...times)}000) AND received_at < make_timestamptz(${Math.max(...times) + 1}000)
     ORDER BY event_id LIMIT ${maxFoundRows}`,
    values,
  );
  return rows.map((row) => ({
    eventId: String(row['event_id']),
    ...(typeof row['kind'] === 'string' ? { kind: row['kind'] } : {}),
    eventTimeMs: msOf(row['event_time']),
    receivedAtMs: msOf(row['received_at']),
    availableAtMs: msOf(row['available_at']),
  }));
}
