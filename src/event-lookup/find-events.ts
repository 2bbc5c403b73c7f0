import { type EventHead, readEventHead } from '../datasets/event-line.ts';
import { requestKeyOf } from '../datasets/event-id.ts';
import { listErased } from '../lake/event-index/erased-ids.ts';
import { findManyRows } from '../lake/event-index/find-many-rows.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import type { EventTarget } from '../stream/event-query-channel.ts';
import { isMarker } from '../stream/stream.ts';
import type { LookupSources } from './find-event.ts';
import {
  describeFailed,
  describeRow,
  describeWaiting,
  type EventLocation,
  type EventsLookupResult,
  type FoundEvent,
  type ListedEvent,
} from './lookup-result.ts';

/**
 * Looks up many events of an app at once: failed events, lake and stream are read once for all of them.
 * What cannot be searched in time is named, and an event that was not found then is `unknown`, not `never_seen`.
 */

export interface EventsLookupRequest {
  readonly idApp: number;
  /** Each with alternatives, the first known of which counts. */
  readonly queries: readonly (readonly EventTarget[])[];
  readonly deadlineMs: number;
}

const maxBacklogBytes = 64 * 1024 * 1024;
/** Share of the time for each source; the stream gets the rest. */
const failedShare = 0.25;
const lakeShare = 0.75;
/** Retries while the lake advances. */
const maxSearches = 5;

const startOf = (target: EventTarget): string => ('eventId' in target ? target.eventId : target.requestKey);
const startLength = requestKeyOf('x'.repeat(36)).length;
const lineStart = '{"event_id":"';

/** Events by the id, or start of ids, that was asked for. */
interface FoundEvents {
  readonly byStart: ReadonlyMap<string, readonly FoundEvent[]>;
  readonly unchecked: ReadonlySet<EventLocation>;
}

/** Reads the wanted events of an app from lines of the stream. */
function addWaiting(
  lines: Uint8Array,
  idApp: number,
  wanted: ReadonlySet<string>,
  found: Map<string, EventHead>,
): void {
  if (isMarker(lines)) return;
  const bytes = Buffer.from(lines.buffer, lines.byteOffset, lines.length);
  for (let at = bytes.indexOf(lineStart); at !== -1; at = bytes.indexOf(lineStart, at + 1)) {
    const id = bytes.toString('latin1', at + lineStart.length, at + lineStart.length + 36);
    if (!wanted.has(id) && !wanted.has(id.slice(0, startLength))) continue;
    const end = bytes.indexOf('\n', at);
    const event = readEventHead(bytes.toString('utf8', at, end === -1 ? bytes.length : end));
    if (event?.idApp === idApp && !found.has(event.eventId)) found.set(event.eventId, event);
  }
}

/** Searches all sources once. Undefined: events have left the stream meanwhile, and the next search finds them. */
async function searchOnce(
  { duckdb, tables, index, maxIndexedBytes, failed, readBacklog }: LookupSources,
  { idApp, queries, deadlineMs }: EventsLookupRequest,
): Promise<FoundEvents | undefined> {
  const targets = queries.flat();
  const wanted = new Set(targets.map(startOf));
  const byStart = new Map<string, FoundEvent[]>();
  const unchecked = new Set<EventLocation>();
  const seen = new Set<string>();
  const add = (event: FoundEvent): void => {
    if (seen.has(event.eventId)) return;
    seen.add(event.eventId);
    for (const start of [event.eventId, requestKeyOf(event.eventId)])
      if (wanted.has(start)) byStart.set(start, [...(byStart.get(start) ?? []), event]);
  };
  // In the order of findEvent: each source before the one that its events move to.
  const { streamId, position: after, failed: counted } = await tables.readPosition();
  const beganMs = performance.now();
  const untilMs = (share: number): number => beganMs + (deadlineMs - beganMs) * share;
  const failedEvents = await failed.findEach(targets, idApp, untilMs(failedShare)).catch((error: unknown) => {
    if (!isAppError(error, 'overloaded') && !isAppError(error, 'file_damaged')) throw error;
    unchecked.add('failed');
    return [];
  });
  if (failed.count() < counted) unchecked.add('failed');
  for (const table of await tables.read()) {
    const use = { index, deadlineMs: untilMs(lakeShare), maxIndexedBytes };
    const { rows, isComplete } = await findManyRows(duckdb, table, { idApp, idStarts: [...wanted] }, use);
    for (const row of rows) add(describeRow(row, table.dataset.table, undefined));
    if (!isComplete) unchecked.add('lake');
  }
  // The lake has a failed event that was replayed.
  for (const event of failedEvents) add(describeFailed(event));
  const isFound = (query: readonly EventTarget[]): boolean => query.some((target) => byStart.has(startOf(target)));
  if (queries.every(isFound)) return { byStart, unchecked };
  const waiting = new Map<string, EventHead>();
  const limits = { maxBytes: maxBacklogBytes, deadlineMs };
  const result = await readBacklog?.({ streamId, after }, limits, (lines) =>
    addWaiting(lines, idApp, wanted, waiting),
  ).catch(() => 'limited' as const);
  if (result === 'purged') return undefined;
  if (result !== 'complete') unchecked.add('stream');
  for (const event of waiting.values()) add(describeWaiting(event));
  return { byStart, unchecked };
}

/** Searches again if the lake has advanced, or has replaced a file. */
async function searchUntilStable(sources: LookupSources, request: EventsLookupRequest): Promise<FoundEvents> {
  for (let searches = 0; searches < maxSearches && performance.now() < request.deadlineMs; searches += 1) {
    const { version } = await sources.tables.readPosition();
    const found = await searchOnce(sources, request).catch(async (error: unknown) => {
      if ((await sources.tables.readPosition()).version === version) throw error;
      return undefined;
    });
    if (found !== undefined) return found;
  }
  throw new AppError('overloaded', 'lookup could not keep up with new commits', { hint: 'Retry the lookup.' });
}

/** Counts the events of a request by their state. */
function countStates(events: readonly FoundEvent[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { state } of events) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

/**
 * Looks up many events, in the order of the queries. Errors: `overloaded` while the lake advances, `file_damaged` for
 * damaged hashes of erased ids, the engine's.
 */
export async function findEvents(sources: LookupSources, request: EventsLookupRequest): Promise<EventsLookupResult> {
  const { idApp, queries } = request;
  // First: later reads include everything up to the watermark.
  const watermarkMs = await sources.readWatermarkMs();
  const { byStart, unchecked } = await searchUntilStable(sources, request);
  const missing = queries.flatMap((query) =>
    query.some((one) => byStart.has(startOf(one))) ? [] : query.map(startOf),
  );
  // Last: the hash is stored before the row is erased.
  const erased = await listErased(sources.duckdb, await sources.erasedIds(), idApp, missing);
  const listed = queries.map((query): ListedEvent => {
    const known = query.find((target) => byStart.has(startOf(target)));
    const [first, ...others] = known === undefined ? [] : (byStart.get(startOf(known)) ?? []);
    if (known === undefined || first === undefined) {
      const isErased = query.some((target) => erased.has(startOf(target)));
      return { state: isErased ? 'erased' : unchecked.size > 0 ? 'unknown' : 'never_seen' };
    }
    return 'eventId' in known ? first : { ...first, events: countStates([first, ...others]) };
  });
  return {
    events: listed,
    ...(unchecked.size === 0 ? {} : { unchecked: [...unchecked] }),
    ...(watermarkMs === undefined ? {} : { watermark: new Date(watermarkMs).toISOString() }),
  };
}
