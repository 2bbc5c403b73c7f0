import { events as eventsDataset, importDatasets } from '../datasets/dataset.ts';
import { type EventHead, readEventHead } from '../datasets/event-line.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { hasTable, tablePaths } from '../lake/lake.ts';
import { openLogTailer, type LogTailer } from '../lake/log/log-tailer.ts';
import { commitName, logStore } from '../lake/log/log-files.ts';
import { type FindErasedIds, wasErased } from '../lake/event-index/erased-ids.ts';
import type { FailedIndex } from '../lake/event-index/failed-index.ts';
import {
  type DatasetTable,
  type LookupTarget,
  findRows,
  idStartOf,
  isLookupTarget,
} from '../lake/event-index/find-rows.ts';
import type { IdIndex } from '../lake/event-index/id-index.ts';
import { type VersionSearch, createVersionSearch } from '../lake/log/change-feed.ts';
import type { Statements } from '../lake/sql/duckdb.ts';
import { isMarker } from '../stream/stream.ts';
import type { BacklogReadResult, BacklogLimits } from '../stream/read-backlog.ts';
import {
  type EventLookupResult,
  type EventLocation,
  type FoundEvent,
  describeFailed,
  describeRow,
  describeWaiting,
} from './lookup-result.ts';

/** Passes the lines of each message of the stream after a sequence to `onMessage`. */
export type ReadBacklog = (
  from: { readonly streamId: string | undefined; readonly after: number },
  limits: BacklogLimits,
  onMessage: (lines: Uint8Array) => void,
) => Promise<BacklogReadResult>;

/** The sources that a lookup searches. */
export interface LookupSources {
  readonly duckdb: Statements;
  readonly tables: TailedTables;
  readonly index: IdIndex;
  /** Larger files are indexed by the maintenance only [no limit]. */
  readonly maxIndexedBytes?: number | undefined;
  readonly versions: Map<string, VersionSearch>;
  readonly failed: FailedIndex;
  readonly erasedIds: FindErasedIds;
  readonly readWatermarkMs: () => Promise<number | undefined>;
  /** Absent: the stream is not readable, and no event can be reported as never seen. */
  readonly readBacklog?: ReadBacklog;
}

export interface EventLookupRequest {
  readonly target: LookupTarget;
  /** Apps whose hashed ids and erased ids are searched. */
  readonly idApps: readonly number[];
  readonly deadlineMs: number;
}

/** Limits of reading the stream, and after an event was found already. */
const maxBacklogBytes = 64 * 1024 * 1024;
const maxExtraBacklogBytes = 8 * 1024 * 1024;
const maxExtraBacklogMs = 100;
/** Time reserved for the stream, ms. */
const backlogReserveMs = 250;
/** Retries while the lake advances: a flush takes longer than a lookup. */
const maxSearches = 5;
const maxWaiting = 256;

function addWaiting(lines: Uint8Array, lookupTarget: LookupTarget, found: Map<string, EventHead>): void {
  const bytes = Buffer.from(lines.buffer, lines.byteOffset, lines.length);
  const start = `{"event_id":"${idStartOf(lookupTarget)}`;
  if (isMarker(lines)) return;
  for (let at = bytes.indexOf(start); at !== -1 && found.size < maxWaiting; at = bytes.indexOf(start, at + 1)) {
    const end = bytes.indexOf('\n', at);
    const event = readEventHead(bytes.toString('utf8', at, end === -1 ? bytes.length : end));
    if (event === undefined || !isLookupTarget(lookupTarget, event.eventId)) continue;
    if (lookupTarget.idApp !== undefined && event.idApp !== lookupTarget.idApp) continue;
    // Duplicates in the stream are the same event.
    if (!found.has(event.eventId)) found.set(event.eventId, event);
  }
}

async function findInLake(
  lookupSources: LookupSources,
  { target, idApps, deadlineMs }: EventLookupRequest,
): Promise<FoundEvent[]> {
  const { duckdb, index, maxIndexedBytes, tables } = lookupSources;
  const versions = new Map<string, number | undefined>();
  const versionOf = async ({ dataset, snapshot }: DatasetTable, atMs: number | undefined) => {
    const key = `${dataset.table} ${atMs}`;
    if (atMs !== undefined && !versions.has(key)) {
      const search = lookupSources.versions.get(dataset.table) ?? createVersionSearch();
      lookupSources.versions.set(dataset.table, search);
      const { version, orEarlier } = await search.find(snapshot, atMs);
      versions.set(key, orEarlier ? undefined : version);
    }
    return versions.get(key);
  };
  const found: FoundEvent[] = [];
  for (const table of await tables.read())
    for (const row of await findRows(duckdb, table, target, { index, idApps, deadlineMs, maxIndexedBytes }))
      found.push(describeRow(row, table.dataset.table, await versionOf(table, row.availableAtMs)));
  return found;
}

const uncheckedReasons = {
  limited: 'and the backlog of the stream is too large to search',
  otherStream: 'and the lake is not yet compared with the stream',
} as const;

type SearchResult = Required<Pick<EventLookupResult, 'events' | 'unchecked'>>;

/** Searches all sources once. Undefined: the lake has advanced meanwhile, and the next search finds the event. */
async function searchOnce(
  lookupSources: LookupSources,
  eventLookupRequest: EventLookupRequest,
): Promise<SearchResult | undefined> {
  const { failed, tables, readBacklog } = lookupSources;
  const { target, idApps, deadlineMs } = eventLookupRequest;
  // The position first, then each source before the one that its events move to: a replay moves failed events to the
  // lake. Messages that leave the stream show: only messages up to the position are purged.
  const { streamId, position: after } = await tables.readPosition();
  const unchecked = new Map<EventLocation, AppError>();
  /** Failures of one source leave the others to be searched. */
  const searchSource = <T>(location: EventLocation, work: Promise<readonly T[]>): Promise<readonly T[]> =>
    work.catch((error: unknown) => {
      const isDamaged = location === 'failed' && isAppError(error, 'file_damaged');
      if (!isAppError(error, 'overloaded') && !isDamaged) throw error;
      unchecked.set(location, error);
      return [];
    });
  const toResult = (events: readonly FoundEvent[]): SearchResult => {
    const [failure] = unchecked.values();
    if (events.length === 0 && failure !== undefined) throw failure;
    // An id has one event, in one place.
    return { events, unchecked: 'eventId' in target ? [] : [...unchecked.keys()] };
  };
  const nowMs = performance.now();
  const failedEvents = await searchSource('failed', failed.find(target, idApps, nowMs + (deadlineMs - nowMs) / 2));
  const rows = await searchSource(
    'lake',
    findInLake(lookupSources, { ...eventLookupRequest, deadlineMs: deadlineMs - backlogReserveMs }),
  );
  const inLake = new Set(rows.map(({ eventId }) => eventId));
  const found = [...rows, ...failedEvents.map(describeFailed).filter(({ eventId }) => !inLake.has(eventId))];
  // Another request may have reused the key, and be in the stream.
  if (readBacklog === undefined || (found.length > 0 && 'eventId' in target)) return toResult(found);
  const waiting = new Map<string, EventHead>();
  const limits =
    found.length === 0
      ? { maxBytes: maxBacklogBytes, deadlineMs }
      : { maxBytes: maxExtraBacklogBytes, deadlineMs: Math.min(deadlineMs, performance.now() + maxExtraBacklogMs) };
  const backlogResult = await readBacklog({ streamId, after }, limits, (lines) =>
    addWaiting(lines, target, waiting),
  ).catch((error: unknown) => {
    if (found.length === 0) throw error;
    return 'limited' as const;
  });
  // Part of a request may be moving to a source that was searched before.
  if (backlogResult === 'purged' && (waiting.size === 0 || 'requestKey' in target)) return undefined;
  if (backlogResult === 'limited' || backlogResult === 'otherStream')
    unchecked.set(
      'stream',
      new AppError('overloaded', `not in the lake, ${uncheckedReasons[backlogResult]}`, { hint: 'Retry later.' }),
    );
  // The events of a request move together: duplicates in the stream are the same.
  for (const { eventId } of found) waiting.delete(eventId);
  return toResult([...found, ...[...waiting.values()].map(describeWaiting)]);
}

/** Searches again if the lake has advanced, or has replaced a file. */
async function searchUntilStable(
  lookupSources: LookupSources,
  eventLookupRequest: EventLookupRequest,
): Promise<SearchResult> {
  let failure: unknown;
  for (let searches = 0; searches < maxSearches && performance.now() < eventLookupRequest.deadlineMs; searches += 1) {
    try {
      const version = (await lookupSources.tables.readPosition()).version;
      const found = await searchOnce(lookupSources, eventLookupRequest).catch(async (error: unknown) => {
        // A file of an older version may be missing; one of the newest may not.
        if ((await lookupSources.tables.readPosition()).version === version || isAppError(error, 'overloaded'))
          throw error;
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
async function assertFailedEventsComplete(
  { tables, failed }: LookupSources,
  { target, idApps, deadlineMs }: EventLookupRequest,
): Promise<void> {
  for (;;) {
    const { version, failed: counted } = await tables.readPosition();
    await failed.find(target, idApps, deadlineMs);
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
export async function findEvent(
  lookupSources: LookupSources,
  eventLookupRequest: EventLookupRequest,
): Promise<EventLookupResult> {
  // First: later reads include everything up to the watermark.
  const watermarkMs = await lookupSources.readWatermarkMs();
  const { events, unchecked } = await searchUntilStable(lookupSources, eventLookupRequest);
  const [first] = events;
  if (first !== undefined) return { state: first.state, events, ...(unchecked.length === 0 ? {} : { unchecked }) };
  // Last: the hash is stored before the row is erased.
  const isErased = await wasErased(
    lookupSources.duckdb,
    await lookupSources.erasedIds(),
    eventLookupRequest.target,
    eventLookupRequest.idApps,
  );
  if (isErased) return { state: 'erased', events };
  if (lookupSources.readBacklog === undefined)
    throw new AppError('broker_away', 'not in the lake, and the stream cannot be searched', {
      hint: 'Start the service, then retry.',
    });
  await assertFailedEventsComplete(lookupSources, eventLookupRequest);
  return {
    state: 'never_seen',
    events,
    ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
  };
}

/** Returns whether the follower has the newest version; with trimmed commits it may not. Ignores foreign commits. */
async function refresh(tailer: LogTailer, tableDir: string): Promise<boolean> {
  try {
    await tailer.refresh();
  } catch (error) {
    if (isAppError(error, 'log_damaged')) return false;
    if (!isAppError(error, 'foreign_commit')) throw error;
  }
  return (await logStore(tableDir).findSize(commitName(tailer.state.version))) !== undefined;
}

export function openTailedTables(lakeDir: string) {
  const tailers = new Map<string, LogTailer>();

  async function open(dataset: (typeof importDatasets)[number]): Promise<LogTailer | undefined> {
    const { table: tableDir } = tablePaths(lakeDir, dataset);
    const known = tailers.get(dataset.table);
    if (known !== undefined && (await refresh(known, tableDir))) return known;
    if (!(await hasTable(lakeDir, dataset))) return undefined;
    const opened = await openLogTailer(tableDir);
    tailers.set(dataset.table, opened);
    return opened;
  }

  return {
    /** Returns the newest version of each existing table, the events table first. */
    async read() {
      const tables: DatasetTable[] = [];
      for (const dataset of importDatasets) {
        const tailer = await open(dataset);
        if (tailer !== undefined) tables.push({ dataset, snapshot: tailer.snapshot() });
      }
      return tables;
    },
    async readPosition() {
      const tailer = await open(eventsDataset);
      const { epoch, totals } = tailer?.lake() ?? {};
      return {
        version: tailer?.state.version ?? -1,
        streamId: epoch?.streamId,
        position: epoch?.position ?? 0,
        failed: totals?.failed ?? 0,
      };
    },
  };
}

/** The tables of imported events, followed by commit. For one caller at a time. */
type TailedTables = ReturnType<typeof openTailedTables>;
