import { type ErasedIds, createErasedIdsSearch, wasErased } from '../lake/find/erased-ids.ts';
import { lakePaths, tablePaths } from '../lake/lake.ts';
import { type Snapshot, readSnapshot } from '../lake/log/snapshot.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { Receipt, ReceiptEvent } from '../receipts/receipt.ts';
import { type Dataset, events as leader, getMethod, importDatasets } from '../datasets/dataset.ts';
import { isKeyedId, maskOfLake, otherFormOf } from '../datasets/event-id.ts';
import { listFailedFiles, readFailedFile } from '../lake/files/failed-events.ts';
import { type WholeRow, findWholeRows } from '../lake/find/find-rows.ts';
import { type FirstVersion, createVersionSearch } from '../lake/log/change-feed.ts';
import { type EventValues, digestEvent } from '../receipts/event-digest.ts';
import { exists } from '../runtime/files/file-checks.ts';

/** What is said of an event of a receipt that is neither in a table nor failed. */
interface Absence {
  readonly state: 'pending' | 'erased' | 'missing';
  readonly reason?: string;
}

/** The versions in which an event is not: of the table of the events, and of the one that it should be in. */
interface WithoutEvent {
  readonly log: Snapshot;
  readonly table: Snapshot;
}

/**
 * What is said of one that is not among the ids that were erased. `isComplete`: every id is that was erased, of those
 * with a receipt at least.
 */
function judgeUnerased({ group }: Receipt, { log, table }: WithoutEvent, isComplete: boolean): Absence {
  const epoch = log.lake?.epoch;
  if (epoch === undefined) return { state: 'pending' };
  if (epoch.streamId !== group.stream)
    return { state: 'missing', reason: `the lake follows another stream by now, ${epoch.streamId}` };
  const { restoredFrom } = log.lake ?? {};
  if (group.sequence > epoch.position)
    // What the stream had by then that the lake had not was in the backup too, and has been taken in.
    return restoredFrom === undefined
      ? { state: 'pending' }
      : {
          state: 'missing',
          reason: `the lake was restored from the backup of ${restoredFrom}, which does not have it`,
        };
  const read = `the lake has read the stream up to ${epoch.position}`;
  const erased = table.lake?.totals.erased ?? 0;
  if (erased === 0) return { state: 'missing', reason: `${read}, and nothing was erased` };
  if (isComplete) return { state: 'missing', reason: `${read}, and its id is not among those that were erased` };
  return { state: 'erased', reason: `${read}, ${erased} events were erased from the table, and which is not known` };
}

/**
 * Says of each event of a receipt that is in no table and has not failed what became of it, by its id; to be asked after
 * both were looked at, since an erasure writes down the hash of an id before the row goes. Where the hashes are missing or
 * damaged, which ids were erased is not known.
 */
async function judgeAbsent(
  lakeDir: string,
  receipt: Receipt,
  absent: readonly ReceiptEvent[],
  without: WithoutEvent,
): Promise<ReadonlyMap<string, Absence>> {
  const absences = new Map<string, Absence>();
  if (absent.length === 0) return absences;
  const { idApp } = receipt;
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    // Hashes are kept for longer than receipts are given.
    const erased = await createErasedIdsSearch(lakePaths(lakeDir))().catch((error: unknown): ErasedIds => {
      if (!isAppError(error, 'file_damaged')) throw error;
      return { file: undefined, isComplete: false };
    });
    for (const { eventId } of absent) {
      const isErased = await wasErased(duckdb, erased, { idApp, eventId }, [idApp]);
      absences.set(eventId, isErased ? { state: 'erased' } : judgeUnerased(receipt, without, erased.isComplete));
    }
  } finally {
    duckdb.close();
  }
  return absences;
}

/**
 * Where an event of a receipt is.
 *
 * - `stored`: the row under its id is this event, value for value.
 * - `repeat`: the lake has the event of an earlier request under its id, and keeps that one.
 * - `failed`: it could not be written, and is kept with the reason.
 * - `pending`: the lake has not come to its message yet.
 * - `erased`: its id is among those that were erased; or the lake has read it and has it no more, events were erased, and
 *   which is not known.
 * - `changed`: the row under its id is another event.
 * - `missing`: none of these.
 */
export type EventState = 'stored' | 'repeat' | 'failed' | 'pending' | 'erased' | 'changed' | 'missing';

/** What was found out of one event. */
interface FoundEvent {
  readonly eventId: string;
  readonly state: EventState;
  /** The version that brought its row. */
  readonly sinceVersion?: number;
  /** It may have come earlier: the log knows nothing any more of the version before. */
  readonly orEarlier?: true;
  /** ISO 8601. */
  readonly availableAt?: string;
  /** Why it failed, or what else there is to say. */
  readonly reason?: string;
}

/** What a lake says of a receipt. */
export interface ReceiptInLake {
  /** The table that its events are stored in, and the version that was read. */
  readonly table: string;
  readonly version: number;
  readonly events: readonly FoundEvent[];
}

const dayMs = 86_400_000;
/** A repeat under an Idempotency-Key is received within a day of the first; a clock may have been set meanwhile. */
const keptMs = dayMs + 2 * 3_600_000;

/** The times within which the row of an id was received; undefined: at any. */
function receivedWithin(eventId: string, receivedAtMs: number): { fromMs: number; toMs: number } | undefined {
  const version = eventId.charAt(14);
  if (version === '5') return undefined;
  const aroundMs = version === '7' ? 0 : keptMs;
  return { fromMs: receivedAtMs - aroundMs, toMs: receivedAtMs + aroundMs };
}

/** The ids that the row of an event may have: a retry across the upgrade to 0.4 is a repeat of one without the mask. */
function formsOf(eventId: string, { tableId }: Snapshot): readonly string[] {
  return isKeyedId(eventId) ? [eventId, otherFormOf(eventId, maskOfLake(tableId))] : [eventId];
}

async function findRows(
  snapshot: Snapshot,
  dataset: Dataset,
  { idApp, receivedAt, events }: Receipt,
): Promise<readonly WholeRow[]> {
  const [first] = events;
  if (first === undefined || snapshot.version < 0) return [];
  const within = receivedWithin(first.eventId, Date.parse(receivedAt));
  const filter = { idApps: [idApp], ...(within === undefined ? {} : { receivedAt: within }) };
  const ids = events.flatMap(({ eventId }) => formsOf(eventId, snapshot));
  return await findWholeRows({ dataset, snapshot }, ids, filter);
}

/** Compares a row with what a receipt says of its event. */
function judgeRow(
  { eventId, sha256 }: ReceiptEvent,
  row: WholeRow,
  receipt: Receipt,
): Pick<FoundEvent, 'state' | 'reason'> {
  const { kind } = getMethod(receipt.method);
  const values: EventValues = { ...row.values, event_id: eventId, kind };
  const isEvent = (replaced: Readonly<Record<string, unknown>>): boolean =>
    digestEvent(receipt.salt, { ...values, ...replaced }) === sha256;
  if (isEvent({})) return { state: 'stored' };
  // A repeat has a time of receipt of its own, and by it a time of the event where its client gave none.
  const receivedAtMs = Date.parse(receipt.receivedAt);
  const received = { received_at: receivedAtMs };
  const isRepeat = isEvent(received) || isEvent({ ...received, event_time: Math.floor(receivedAtMs / 1000) });
  if (isRepeat) return { state: 'repeat' };
  // Under a key of its own an event is known by that alone.
  return eventId.charAt(14) === '5'
    ? { state: 'repeat', reason: 'the first one, which the lake has, says something else' }
    : { state: 'changed' };
}

/** The row of an event, and what it is; of several, since a key may be used again after its day, the one that fits. */
function findBest(event: ReceiptEvent, rows: readonly WholeRow[], receipt: Receipt, snapshot: Snapshot) {
  const judged = rows
    .filter(({ eventId }) => formsOf(event.eventId, snapshot).includes(eventId))
    .map((row) => ({ row, ...judgeRow(event, row, receipt) }));
  return judged.find(({ state }) => state === 'stored') ?? judged.find(({ state }) => state === 'repeat') ?? judged[0];
}

/** The failed events of a receipt: why each failed, by its id. */
async function findFailed(lakeDir: string, { events, salt }: Receipt): Promise<ReadonlyMap<string, string>> {
  const { failed, table } = lakePaths(lakeDir);
  const reasons = new Map<string, string>();
  if (!(await exists(failed))) return reasons;
  for (const file of await listFailedFiles(failed, table))
    for (const { line, reason } of await readFailedFile(file)) {
      // A value may name the id of another event.
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
  // The position first: what it covers is in the tables that are read afterwards.
  const log = await readSnapshot(tablePaths(lakeDir, leader).table);
  if (log.version < 0)
    // Of what is no lake nothing may be said, least of all that it has not come to the events yet.
    throw new AppError('not_found', `there is no lake in ${lakeDir}`, {
      hint: 'Name the folder that holds events/_delta_log, as lake of the data folder does.',
    });
  const snapshot = dataset === leader ? log : await readSnapshot(tablePaths(lakeDir, dataset).table);
  const rows = await findRows(snapshot, dataset, receipt);
  const best = receipt.events.map((event) => findBest(event, rows, receipt, snapshot));
  const failed = best.includes(undefined) ? await findFailed(lakeDir, receipt) : new Map<string, string>();
  const absent = receipt.events.filter(({ eventId }, index) => best[index] === undefined && !failed.has(eventId));
  const absences = await judgeAbsent(lakeDir, receipt, absent, { log, table: snapshot });
  const versions = new Map<number, FirstVersion>();
  const search = createVersionSearch();
  const findSince = async ({ availableAtMs }: WholeRow): Promise<Partial<FoundEvent>> => {
    // A row of another engine's may have no time.
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
      const { row, ...judged } = fit;
      found.push({ eventId, ...judged, ...(await findSince(row)) });
    } else if (reason !== undefined) found.push({ eventId, state: 'failed', reason });
    else found.push({ eventId, state: 'missing', ...absences.get(eventId) });
  }
  return { table: dataset.table, version: Math.max(snapshot.version, 0), events: found, logVersion: log.version };
}

/** Looks that are made where events move from one place to another meanwhile. */
const maxLooks = 5;

/** Looks for the events of a receipt in a lake. Errors: `not_found` where there is none; those of `readSnapshot`, `log_damaged`. */
export async function findReceiptInLake(lakeDir: string, receipt: Receipt): Promise<ReceiptInLake> {
  const { kind } = getMethod(receipt.method);
  const dataset = importDatasets.find(({ kinds }) => kinds.includes(kind)) ?? leader;
  const { table } = tablePaths(lakeDir, leader);
  let looked = await lookOnce(lakeDir, dataset, receipt);
  for (
    let looks = 1;
    looks < maxLooks && looked.events.some(({ state }) => state === 'missing' || state === 'erased');
  ) {
    // One that failed may have been stored between the two looks, and the other way round.
    const { version } = await readSnapshot(table);
    if (version === looked.logVersion) break;
    looked = await lookOnce(lakeDir, dataset, receipt);
    looks += 1;
  }
  const { logVersion: _, ...answer } = looked;
  return answer;
}
