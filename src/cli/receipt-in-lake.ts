import { type ErasedIdsFile, createErasedIdsSearch, wasErased } from '../lake/event-index/erased-ids.ts';
import { lakePaths, tablePaths } from '../lake/lake.ts';
import { type Snapshot, readSnapshot } from '../lake/log/snapshot.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { Receipt, ReceiptEvent } from '../receipts/receipt.ts';
import { type Dataset, events as leader, getMethod, importDatasets } from '../datasets/dataset.ts';
import { isKeyedId, maskOfLake, otherFormOf } from '../datasets/event-id.ts';
import { listFailedFiles, readFailedFile } from '../lake/files/failed-events.ts';
import { type FullRow, findFullRows } from '../lake/event-index/find-rows.ts';
import { type FirstVersion, createVersionSearch } from '../lake/log/change-feed.ts';
import { type EventValues, digestEvent } from '../receipts/event-digest.ts';

/**
 * State of an event of a receipt.
 * - `stored`: the row with its id has the same values.
 * - `repeat`: the row is of an earlier request with the same key.
 * - `failed`: it is a failed event.
 * - `pending`: the lake has not reached its message.
 * - `erased`: its id was erased; or the row is missing, events were erased, and their ids are unknown.
 * - `changed`: the row with its id has other values.
 * - `missing`: none of these.
 */
export type ReceiptEventState = 'stored' | 'repeat' | 'failed' | 'pending' | 'erased' | 'changed' | 'missing';

interface Classified {
  readonly state: ReceiptEventState;
  /** Reason of the failure, or a remark. */
  readonly reason?: string;
}

interface FoundEvent extends Classified {
  readonly eventId: string;
  /** The version that committed its row. */
  readonly sinceVersion?: number;
  /** Whether the log lacks the version before that one. */
  readonly orEarlier?: true;
  readonly availableAt?: string;
}

/** The events of a receipt in a version of their table. */
export interface ReceiptInLake {
  readonly table: string;
  readonly version: number;
  readonly events: readonly FoundEvent[];
}

const missing = (reason: string): Classified => ({ state: 'missing', reason });

/**
 * Classifies an event that is in no table, has not failed and is not among the erased ids. `log` is the events table,
 * `table` that of the event. `isComplete`: the hashes of all erased ids are known.
 */
function classifyAbsent({ group }: Receipt, log: Snapshot, table: Snapshot, isComplete: boolean): Classified {
  const { epoch, restoredFrom } = log.lake ?? {};
  if (epoch === undefined) return { state: 'pending' };
  if (epoch.streamId !== group.stream) return missing(`the lake now reads another stream, ${epoch.streamId}`);
  if (group.sequence > epoch.position)
    // A backup includes the backlog of its stream, and the restore has committed it.
    return restoredFrom === undefined
      ? { state: 'pending' }
      : missing(`the lake was restored from the backup of ${restoredFrom}, which does not have it`);
  const read = `the lake has read the stream up to ${epoch.position}`;
  const erased = table.lake?.totals.erased ?? 0;
  if (erased === 0) return missing(`${read}, and nothing was erased`);
  if (isComplete) return missing(`${read}, and its id is not among those that were erased`);
  return { state: 'erased', reason: `${read}, ${erased} events were erased from the table, and their ids are unknown` };
}

/**
 * Classifies absent events by id. Called after table and failed events were searched, since an erasure writes the hash of
 * an id before it removes the row.
 */
async function classifyAllAbsent(
  lakeDir: string,
  receipt: Receipt,
  absent: readonly ReceiptEvent[],
  snapshots: { readonly log: Snapshot; readonly table: Snapshot },
): Promise<ReadonlyMap<string, Classified>> {
  const found = new Map<string, Classified>();
  if (absent.length === 0) return found;
  const { idApp } = receipt;
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    // Hashes are kept for longer than receipts are valid.
    const erased = await createErasedIdsSearch(lakePaths(lakeDir))().catch((error: unknown): ErasedIdsFile => {
      if (!isAppError(error, 'file_damaged')) throw error;
      return { file: undefined, isComplete: false };
    });
    for (const { eventId } of absent) {
      const isErased = await wasErased(duckdb, erased, { idApp, eventId }, [idApp]);
      const { log, table } = snapshots;
      found.set(eventId, isErased ? { state: 'erased' } : classifyAbsent(receipt, log, table, erased.isComplete));
    }
  } finally {
    duckdb.close();
  }
  return found;
}

const dayMs = 86_400_000;
/** The deduplication window of a key, with slack for a changed clock. */
const keptMs = dayMs + 2 * 3_600_000;

/** Returns the bounds of the receipt time of an id; undefined if it may be any. */
function receivedWithin(eventId: string, receivedAtMs: number): { fromMs: number; toMs: number } | undefined {
  const version = eventId.charAt(14);
  if (version === '5') return undefined;
  const aroundMs = version === '7' ? 0 : keptMs;
  return { fromMs: receivedAtMs - aroundMs, toMs: receivedAtMs + aroundMs };
}

/** Returns the ids that a row may have: keyed ids before 0.4 have no mask. */
function formsOf(eventId: string, { tableId }: Snapshot): readonly string[] {
  return isKeyedId(eventId) ? [eventId, otherFormOf(eventId, maskOfLake(tableId))] : [eventId];
}

async function findRows(
  snapshot: Snapshot,
  dataset: Dataset,
  { idApp, receivedAt, events }: Receipt,
): Promise<readonly FullRow[]> {
  const [first] = events;
  if (first === undefined || snapshot.version < 0) return [];
  const within = receivedWithin(first.eventId, Date.parse(receivedAt));
  const filter = { idApps: [idApp], ...(within === undefined ? {} : { receivedAt: within }) };
  const ids = events.flatMap(({ eventId }) => formsOf(eventId, snapshot));
  return await findFullRows({ dataset, snapshot }, ids, filter);
}

function classifyRow({ eventId, sha256 }: ReceiptEvent, row: FullRow, receipt: Receipt): Classified {
  const { kind } = getMethod(receipt.method);
  const values: EventValues = { ...row.values, event_id: eventId, kind };
  const isEvent = (replaced: Readonly<Record<string, unknown>>): boolean =>
    digestEvent(receipt.salt, { ...values, ...replaced }) === sha256;
  if (isEvent({})) return { state: 'stored' };
  // A duplicate has its own receipt time, and so its own event time if the client sent none.
  const receivedAtMs = Date.parse(receipt.receivedAt);
  const received = { received_at: receivedAtMs };
  const isRepeat = isEvent(received) || isEvent({ ...received, event_time: Math.floor(receivedAtMs / 1000) });
  if (isRepeat) return { state: 'repeat' };
  // A natural key alone identifies an event.
  return eventId.charAt(14) === '5'
    ? { state: 'repeat', reason: 'the stored event with this natural key has other values' }
    : { state: 'changed' };
}

/** Finds the best row of an event: a key may be used again after a day. */
function findBest(event: ReceiptEvent, rows: readonly FullRow[], receipt: Receipt, snapshot: Snapshot) {
  const classified = rows
    .filter(({ eventId }) => formsOf(event.eventId, snapshot).includes(eventId))
    .map((row) => ({ row, ...classifyRow(event, row, receipt) }));
  return (
    classified.find(({ state }) => state === 'stored') ??
    classified.find(({ state }) => state === 'repeat') ??
    classified[0]
  );
}

async function findFailed(lakeDir: string, { events, salt }: Receipt): Promise<ReadonlyMap<string, string>> {
  const { failed, table } = lakePaths(lakeDir);
  const reasons = new Map<string, string>();
  for (const file of await listFailedFiles(failed, table))
    for (const { line, reason } of await readFailedFile(file)) {
      // A value may contain the id of another event.
      const wanted = events.find((event) => line.includes(event.eventId) && isLineOf(line, event, salt));
      if (wanted !== undefined) reasons.set(wanted.eventId, reason);
    }
  return reasons;
}

function isLineOf(line: string, { sha256 }: ReceiptEvent, salt: string): boolean {
  try {
    return digestEvent(salt, JSON.parse(line) as EventValues) === sha256;
  } catch {
    return false;
  }
}

async function lookOnce(lakeDir: string, dataset: Dataset, receipt: Receipt) {
  // Read first: the tables, read later, have everything up to its position.
  const log = await readSnapshot(tablePaths(lakeDir, leader).table);
  if (log.version < 0)
    // Without a lake no state is known, not even `pending`.
    throw new AppError('not_found', `no lake found in ${lakeDir}`, {
      hint: 'Pass the folder that contains events/_delta_log, such as lake/ of the data folder.',
    });
  const snapshot = dataset === leader ? log : await readSnapshot(tablePaths(lakeDir, dataset).table);
  const rows = await findRows(snapshot, dataset, receipt);
  const best = receipt.events.map((event) => findBest(event, rows, receipt, snapshot));
  const failed = best.includes(undefined) ? await findFailed(lakeDir, receipt) : new Map<string, string>();
  const absent = receipt.events.filter(({ eventId }, index) => best[index] === undefined && !failed.has(eventId));
  const absences = await classifyAllAbsent(lakeDir, receipt, absent, { log, table: snapshot });
  const versions = new Map<number, FirstVersion>();
  const search = createVersionSearch();
  const findSince = async ({ availableAtMs }: FullRow): Promise<Partial<FoundEvent>> => {
    // Rows of other engines may have no time.
    if (availableAtMs === undefined) return {};
    const { version, orEarlier } = versions.get(availableAtMs) ?? (await search.find(snapshot, availableAtMs));
    versions.set(availableAtMs, { version, orEarlier });
    const availableAt = new Date(availableAtMs).toISOString();
    return { sinceVersion: version, ...(orEarlier ? { orEarlier } : {}), availableAt };
  };
  const found: FoundEvent[] = [];
  for (const [index, { eventId }] of receipt.events.entries()) {
    const fit = best[index];
    const reason = failed.get(eventId);
    if (fit !== undefined) {
      const { row, ...state } = fit;
      found.push({ eventId, ...state, ...(await findSince(row)) });
    } else if (reason !== undefined) found.push({ eventId, state: 'failed', reason });
    else found.push({ eventId, state: 'missing', ...absences.get(eventId) });
  }
  return { table: dataset.table, version: Math.max(snapshot.version, 0), events: found, logVersion: log.version };
}

/** Maximum number of reads while events move between the failed events and the table. */
const maxLooks = 5;

/**
 * Finds the events of a receipt in a lake. Errors: `not_found` for a missing lake; those of `readSnapshot`,
 * `log_damaged`.
 */
export async function findReceiptInLake(lakeDir: string, receipt: Receipt): Promise<ReceiptInLake> {
  const { kind } = getMethod(receipt.method);
  const dataset = importDatasets.find(({ kinds }) => kinds.includes(kind)) ?? leader;
  const { table } = tablePaths(lakeDir, leader);
  let lookup = await lookOnce(lakeDir, dataset, receipt);
  for (
    let looks = 1;
    looks < maxLooks && lookup.events.some(({ state }) => state === 'missing' || state === 'erased');
  ) {
    // A failed event may have been stored between the two reads, or the reverse.
    const { version } = await readSnapshot(table);
    if (version === lookup.logVersion) break;
    lookup = await lookOnce(lakeDir, dataset, receipt);
    looks += 1;
  }
  const { logVersion: _, ...result } = lookup;
  return result;
}
