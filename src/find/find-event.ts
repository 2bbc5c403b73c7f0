import path from 'node:path';
import { events as eventsDataset, importDatasets } from '../datasets/dataset.ts';
import { type EventHead, readEventHead } from '../datasets/event-line.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { hasTable, tablePaths } from '../lake/lake.ts';
import { openLogFollower, type LogFollower } from '../lake/log/log-follower.ts';
import { commitName, logFolder } from '../lake/log/log-files.ts';
import { type FindErasedIds, wasErased } from '../lake/find/erased-ids.ts';
import type { FailedIndex } from '../lake/find/failed-index.ts';
import { type DatasetTable, type Sought, findRows, idStartOf, isSought } from '../lake/find/find-rows.ts';
import type { IdIndex } from '../lake/find/id-index.ts';
import { type VersionSearch, createVersionSearch } from '../lake/log/change-feed.ts';
import type { Statements } from '../lake/sql/duckdb.ts';
import { isMarker } from '../stream/stream.ts';
import type { TailEnd, TailLimits } from '../stream/tail.ts';
import {
  type EventAnswer,
  type EventPlace,
  type FoundEvent,
  describeFailed,
  describeRow,
  describeWaiting,
} from './event-answer.ts';

/** Passes the messages of the stream after a sequence to `see`. */
export type ReadTail = (
  from: { readonly streamId: string | undefined; readonly after: number },
  limits: TailLimits,
  see: (payload: Uint8Array) => void,
) => Promise<TailEnd>;

export interface Places {
  readonly duckdb: Statements;
  readonly tables: FollowedTables;
  readonly index: IdIndex;
  /** Larger files are indexed by the maintenance only [no limit]. */
  readonly maxIndexedBytes?: number | undefined;
  readonly versions: Map<string, VersionSearch>;
  readonly failed: FailedIndex;
  readonly erasedIds: FindErasedIds;
  readonly readWatermarkMs: () => Promise<number | undefined>;
  /** Absent: the stream is not readable, and no event can be reported as never seen. */
  readonly readTail?: ReadTail;
}

export interface Question {
  readonly sought: Sought;
  /** Apps whose hashed ids and erased ids are searched. */
  readonly idApps: readonly number[];
  readonly deadlineMs: number;
}

/** Limits of reading the stream, and after an event was found already. */
const maxTailBytes = 64 * 1024 * 1024;
const maxMoreBytes = 8 * 1024 * 1024;
const maxMoreMs = 100;
/** Time reserved for the stream, ms. */
const tailMs = 250;
/** Retries while the lake advances: a flush takes longer than a lookup. */
const maxLooks = 5;
const maxWaiting = 256;

function addWaiting(payload: Uint8Array, sought: Sought, found: Map<string, EventHead>): void {
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
  const start = `{"event_id":"${idStartOf(sought)}`;
  if (isMarker(payload)) return;
  for (let at = bytes.indexOf(start); at !== -1 && found.size < maxWaiting; at = bytes.indexOf(start, at + 1)) {
    const end = bytes.indexOf('\n', at);
    const event = readEventHead(bytes.toString('utf8', at, end === -1 ? bytes.length : end));
    if (event === undefined || !isSought(sought, event.eventId)) continue;
    if (sought.idApp !== undefined && event.idApp !== sought.idApp) continue;
    // Duplicates in the stream are the same event.
    if (!found.has(event.eventId)) found.set(event.eventId, event);
  }
}

async function findInLake(places: Places, { sought, idApps, deadlineMs }: Question): Promise<FoundEvent[]> {
  const { duckdb, index, maxIndexedBytes, tables } = places;
  const versions = new Map<string, number | undefined>();
  const versionOf = async ({ dataset, snapshot }: DatasetTable, atMs: number | undefined) => {
    const key = `${dataset.table} ${atMs}`;
    if (atMs !== undefined && !versions.has(key)) {
      const search = places.versions.get(dataset.table) ?? createVersionSearch();
      places.versions.set(dataset.table, search);
      const { version, orEarlier } = await search.find(snapshot, atMs);
      versions.set(key, orEarlier ? undefined : version);
    }
    return versions.get(key);
  };
  const found: FoundEvent[] = [];
  for (const table of await tables.read())
    for (const row of await findRows(duckdb, table, sought, { index, idApps, deadlineMs, maxIndexedBytes }))
      found.push(describeRow(row, table.dataset.table, await versionOf(table, row.availableAtMs)));
  return found;
}

const unseen = {
  cut: 'and the backlog of the stream is too large to search',
  other: 'and the lake is not yet compared with the stream',
} as const;

type Looked = Required<Pick<EventAnswer, 'events' | 'unchecked'>>;

/** Searches all sources once. Undefined: the lake has advanced meanwhile, and the next search finds the event. */
async function look(places: Places, question: Question): Promise<Looked | undefined> {
  const { failed, tables, readTail } = places;
  const { sought, idApps, deadlineMs } = question;
  // The position first, then each source before the one that its events move to: a replay moves failed events to the
  // lake. Messages that leave the stream show: only messages up to the position are purged.
  const { streamId, position: after } = await tables.readPosition();
  const unchecked = new Map<EventPlace, AppError>();
  /** Failures of one source leave the others to be searched. */
  const check = <T>(place: EventPlace, work: Promise<readonly T[]>): Promise<readonly T[]> =>
    work.catch((error: unknown) => {
      const isDamaged = place === 'failed' && isAppError(error, 'file_damaged');
      if (!isAppError(error, 'overloaded') && !isDamaged) throw error;
      unchecked.set(place, error);
      return [];
    });
  const end = (events: readonly FoundEvent[]): Looked => {
    const [missing] = unchecked.values();
    if (events.length === 0 && missing !== undefined) throw missing;
    // An id has one event, in one place.
    return { events, unchecked: 'eventId' in sought ? [] : [...unchecked.keys()] };
  };
  const nowMs = performance.now();
  const failedEvents = await check('failed', failed.find(sought, idApps, nowMs + (deadlineMs - nowMs) / 2));
  const rows = await check('lake', findInLake(places, { ...question, deadlineMs: deadlineMs - tailMs }));
  const inLake = new Set(rows.map(({ eventId }) => eventId));
  const found = [...rows, ...failedEvents.map(describeFailed).filter(({ eventId }) => !inLake.has(eventId))];
  // Another request may have reused the key, and be in the stream.
  if (readTail === undefined || (found.length > 0 && 'eventId' in sought)) return end(found);
  const waiting = new Map<string, EventHead>();
  const limits =
    found.length === 0
      ? { maxBytes: maxTailBytes, deadlineMs }
      : { maxBytes: maxMoreBytes, deadlineMs: Math.min(deadlineMs, performance.now() + maxMoreMs) };
  const tail = await readTail({ streamId, after }, limits, (payload) => addWaiting(payload, sought, waiting)).catch(
    (error: unknown) => {
      if (found.length === 0) throw error;
      return 'cut' as const;
    },
  );
  // Part of a request may be moving to a source that was searched before.
  if (tail === 'moved' && (waiting.size === 0 || 'requestKey' in sought)) return undefined;
  if (tail === 'cut' || tail === 'other')
    unchecked.set('stream', new AppError('overloaded', `not in the lake, ${unseen[tail]}`, { hint: 'Retry later.' }));
  // The events of a request move together: duplicates in the stream are the same.
  for (const { eventId } of found) waiting.delete(eventId);
  return end([...found, ...[...waiting.values()].map(describeWaiting)]);
}

/** Searches again if the lake has advanced, or has replaced a file. */
async function lookUntilStill(places: Places, question: Question): Promise<Looked> {
  let failure: unknown;
  for (let looks = 0; looks < maxLooks && performance.now() < question.deadlineMs; looks += 1) {
    try {
      const version = (await places.tables.readPosition()).version;
      const found = await look(places, question).catch(async (error: unknown) => {
        // A file of an older version may be missing; one of the newest may not.
        if ((await places.tables.readPosition()).version === version || isAppError(error, 'overloaded')) throw error;
        return undefined;
      });
      if (found !== undefined) return found;
    } catch (error) {
      failure = error;
      break;
    }
  }
  throw (
    failure ?? new AppError('overloaded', 'lookup could not keep up with new commits', { hint: 'Retry the lookup.' })
  );
}

/** Throws `file_damaged` if files have fewer failed events than the log: the event may be missing. */
async function assertFailedThere({ tables, failed }: Places, { sought, idApps, deadlineMs }: Question): Promise<void> {
  for (;;) {
    const { version, failed: counted } = await tables.readPosition();
    await failed.find(sought, idApps, deadlineMs);
    const missing = counted - failed.count();
    if (missing <= 0) return;
    if ((await tables.readPosition()).version === version)
      throw new AppError('file_damaged', `${missing} failed events are missing in lake/failed`, {
        hint: "Run 'tributary lake check' and restore the files of lake/failed from a backup.",
      });
  }
}

/**
 * Finds an event, or the events of a request. Correct also while events move between stream, lake and failed events,
 * are sealed or erased. Errors: `overloaded` with the reason, `broker_away`, `file_damaged`, the engine's.
 */
export async function findEvent(places: Places, question: Question): Promise<EventAnswer> {
  // First: later reads include everything up to the watermark.
  const watermarkMs = await places.readWatermarkMs();
  const { events, unchecked } = await lookUntilStill(places, question);
  const [first] = events;
  if (first !== undefined) return { state: first.state, events, ...(unchecked.length === 0 ? {} : { unchecked }) };
  // Last: the hash is stored before the row is erased.
  const isErased = await wasErased(places.duckdb, await places.erasedIds(), question.sought, question.idApps);
  if (isErased) return { state: 'erased', events };
  if (places.readTail === undefined)
    throw new AppError('broker_away', 'not in the lake, and the stream cannot be searched', {
      hint: 'Start the service, then retry.',
    });
  await assertFailedThere(places, question);
  return {
    state: 'never_seen',
    events,
    ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
  };
}

/** Returns whether the follower has the newest version; with trimmed commits it may not. Ignores foreign commits. */
async function refresh(follower: LogFollower, tableDir: string): Promise<boolean> {
  try {
    await follower.refresh();
  } catch (error) {
    if (isAppError(error, 'log_damaged')) return false;
    if (!isAppError(error, 'foreign_commit')) throw error;
  }
  return exists(path.join(logFolder(tableDir), commitName(follower.state.version)));
}

export function createFollowedTables(lakeDir: string) {
  const followers = new Map<string, LogFollower>();

  async function open(dataset: (typeof importDatasets)[number]): Promise<LogFollower | undefined> {
    const { table: tableDir } = tablePaths(lakeDir, dataset);
    const known = followers.get(dataset.table);
    if (known !== undefined && (await refresh(known, tableDir))) return known;
    if (!(await hasTable(lakeDir, dataset))) return undefined;
    const opened = await openLogFollower(tableDir);
    followers.set(dataset.table, opened);
    return opened;
  }

  return {
    /** Returns the newest version of each existing table, the events table first. */
    async read() {
      const tables: DatasetTable[] = [];
      for (const dataset of importDatasets) {
        const follower = await open(dataset);
        if (follower !== undefined) tables.push({ dataset, snapshot: follower.snapshot() });
      }
      return tables;
    },
    async readPosition() {
      const follower = await open(eventsDataset);
      const { epoch, totals } = follower?.lake() ?? {};
      return {
        version: follower?.state.version ?? -1,
        streamId: epoch?.streamId,
        position: epoch?.position ?? 0,
        failed: totals?.failed ?? 0,
      };
    },
  };
}

/** The tables of imported events, followed by commit. For one caller at a time. */
export type FollowedTables = ReturnType<typeof createFollowedTables>;
