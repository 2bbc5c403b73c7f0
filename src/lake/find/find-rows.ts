import type { Dataset } from '../../datasets/dataset.ts';
import { isKeyedId, receivedAtOf } from '../../datasets/event-id.ts';
import { AppError } from '../../runtime/errors.ts';
import { pruneFiles, type FileFilter } from '../files/prune.ts';
import type { DataFile } from '../log/snapshot.ts';
import { openDuckdb, type Duckdb, type SqlValue } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { pairKeyOf, type Candidate, type IdIndex } from './id-index.ts';
import { readRows, readWholeRows, type DatasetTable, type FoundRow, type WholeRow } from './read-rows.ts';

/** What is looked for: the event of an id, or all of a request under an Idempotency-Key. */
export type Sought = { readonly idApp?: number | undefined } & (
  | { readonly eventId: string }
  /** What the ids of the request begin with (`makeRequestKey`). */
  | { readonly requestKey: string }
);

/** Rows that are given for one question, of a table. */
export const maxFoundRows = 256;

/** What the ids that are looked for begin with. */
export const idStartOf = (sought: Sought): string => ('eventId' in sought ? sought.eventId : sought.requestKey);

/** Says whether an id is looked for. */
export const isSought = (sought: Sought, eventId: string): boolean => eventId.startsWith(idStartOf(sought));

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
  /** The apps whose events are found by it. */
  readonly idApps: readonly number[];
  /** Until when files are indexed that have none yet, by `performance.now()`. */
  readonly deadlineMs: number;
  /** A larger file is left to somebody else to index; absent: none is. */
  readonly maxIndexedBytes?: number | undefined;
}

/** Where rows may be. */
interface Where {
  readonly candidates: readonly Candidate[];
  /** The files of which that is not known: they have no index yet. */
  readonly missing: readonly DataFile[];
}

/** The files of a table that may have what is looked for. */
async function findCandidates(
  { dataset, snapshot }: DatasetTable,
  sought: Sought,
  { index, idApps }: IndexUse,
): Promise<Where> {
  const start = idStartOf(sought);
  const apps = sought.idApp === undefined ? {} : { idApps: [sought.idApp] };
  const receivedAtMs = receivedAtOf(start);
  const times = receivedAtMs === undefined ? {} : { receivedAt: { fromMs: receivedAtMs, toMs: receivedAtMs } };
  const files = pruneFiles(snapshot.files, { ...apps, ...times }).filter((file) => mayHoldId(file, start));
  if (receivedAtMs !== undefined)
    return { candidates: files.map((file) => ({ file, receivedAtMs: [receivedAtMs] })), missing: [] };
  const mayHold = isKeyedId(start) ? ({ keyless }: DataFile) => keyless !== true : () => hasOwnKeys(dataset);
  return index.find(
    files.filter(mayHold),
    idApps.map((idApp) => pairKeyOf(idApp, start)),
  );
}

/** Indexes files that are not indexed yet, as long as there is time, and looks a hashed id up in them. */
async function findInMissing(missing: readonly DataFile[], idStart: string, use: IndexUse): Promise<Candidate[]> {
  const { index, idApps, deadlineMs, maxIndexedBytes = Infinity } = use;
  const pairKeys = idApps.map((idApp) => pairKeyOf(idApp, idStart));
  const candidates: Candidate[] = [];
  // The small ones first: they do not wait for the large ones.
  for (const [done, file] of missing.toSorted((a, b) => a.sizeBytes - b.sizeBytes).entries()) {
    // Who keeps the index up with a newer version of the table removes what that has no use for.
    for (let isIndexed = false; !isIndexed;) {
      if (performance.now() >= deadlineMs || file.sizeBytes > maxIndexedBytes)
        throw new AppError(
          'overloaded',
          `the ids of ${missing.length - done} files of the lake are still to be indexed`,
          { hint: 'Ask again in a while.' },
        );
      await index.add(file);
      const answer = await index.find([file], pairKeys);
      candidates.push(...answer.candidates);
      isIndexed = answer.missing.length === 0;
    }
  }
  return candidates;
}

/** Reads what is looked for in the files that may have it. */
async function readCandidates(
  duckdb: Duckdb,
  table: DatasetTable,
  sought: Sought,
  candidates: readonly Candidate[],
): Promise<FoundRow[]> {
  if (candidates.length === 0) return [];
  const start = idStartOf(sought);
  const times = [...new Set(candidates.flatMap(({ receivedAtMs }) => receivedAtMs))];
  const values: SqlValue[] = [start, `${start}~`, ...(sought.idApp === undefined ? [] : [sought.idApp])];
  return readRows(duckdb, table, {
    files: candidates.map(({ file }) => file),
    where: `event_id >= $1 AND event_id < $2 ${sought.idApp === undefined ? '' : 'AND id_app = $3'}
       AND received_at >= make_timestamptz(${Math.min(...times)}000) AND received_at < make_timestamptz(${Math.max(...times) + 1}000)
     ORDER BY event_id LIMIT ${maxFoundRows}`,
    values,
  });
}

/**
 * Finds the rows of an id or a request in one version of a table. An id of version 7 is found by its time of receipt,
 * any other by the index. Errors: `overloaded` while files are being indexed that may have it; those of the engine, also
 * where a file is gone since the snapshot.
 */
export async function findRows(
  duckdb: Duckdb,
  table: DatasetTable,
  sought: Sought,
  use: IndexUse,
): Promise<FoundRow[]> {
  const { candidates, missing } = await findCandidates(table, sought, use);
  const rows = await readCandidates(duckdb, table, sought, candidates);
  // An id has one event; those of a request may lie in several files.
  if (missing.length === 0 || (rows.length > 0 && 'eventId' in sought)) return rows;
  const more = await findInMissing(missing, idStartOf(sought), use);
  return [...rows, ...(await readCandidates(duckdb, table, sought, more))];
}

/**
 * Finds the rows of ids, with their values, in the files of a version that a filter leaves: by somebody who knows when
 * they were received, and has no index. Errors: those of the engine, also where a file is gone since the snapshot.
 */
export async function findWholeRows(
  table: DatasetTable,
  eventIds: readonly string[],
  filter: FileFilter,
): Promise<WholeRow[]> {
  const files = pruneFiles(table.snapshot.files, filter);
  if (files.length === 0 || eventIds.length === 0) return [];
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    return await readWholeRows(duckdb, table, { files, where: `event_id IN (${eventIds.map(sqlText).join(', ')})` });
  } finally {
    duckdb.close();
  }
}
