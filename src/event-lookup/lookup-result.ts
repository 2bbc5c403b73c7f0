import type { EventHead } from '../datasets/event-line.ts';
import type { FailureReason } from '../lake/files/failed-events.ts';
import type { FoundFailed } from '../lake/event-index/failed-index.ts';
import type { FoundRow } from '../lake/event-index/find-rows.ts';
import { defined } from '../runtime/files/checksummed-json.ts';

/** State of an event. `never_seen` also stands for old erased events whose ids are not kept. */
type EventState = 'in_stream' | 'in_lake' | 'failed' | 'erased' | 'never_seen';

export interface FoundEvent {
  readonly state: 'in_stream' | 'in_lake' | 'failed';
  readonly eventId: string;
  readonly kind?: string;
  readonly eventTime?: string;
  readonly receivedAt?: string;
  /** Of an event in the lake: when it became readable. */
  readonly availableAt?: string;
  readonly table?: string;
  /** First version of the table that has it; absent if the log does not reach back so far. */
  readonly version?: number;
  /** Of a failed event: the reason, and the time of failure. */
  readonly reason?: FailureReason;
  readonly failedAt?: string;
}

const eventLocations = ['lake', 'failed', 'stream'] as const;
export type EventLocation = (typeof eventLocations)[number];

export interface EventLookupResult {
  /** State of the first event; `erased` or `never_seen` without any. */
  readonly state: EventState;
  readonly events: readonly FoundEvent[];
  /** Sources that could not be searched for further events of a request; absent: none. */
  readonly unchecked?: readonly EventLocation[];
  /** Of `never_seen`: the lake's watermark, ISO 8601, if known. */
  readonly watermark?: string;
}

/** One of many looked up events. `unknown`: not found, but not every source could be searched. */
export type ListedEvent =
  | { readonly state: 'erased' | 'never_seen' | 'unknown' }
  /** The event, or the first one of a request, with the number of the request's events by state. */
  | (FoundEvent & { readonly events?: Readonly<Record<string, number>> });

export interface EventsLookupResult {
  /** In the order of the queries. */
  readonly events: readonly ListedEvent[];
  /** Sources that could not be searched completely; absent: none. */
  readonly unchecked?: readonly EventLocation[];
  /** As in `EventLookupResult`, for each event that was never seen. */
  readonly watermark?: string;
}

const iso = (ms: number | undefined): string | undefined =>
  ms === undefined || !Number.isFinite(ms) ? undefined : new Date(ms).toISOString();

const describe = ({ eventId, kind, eventTimeMs, receivedAtMs }: EventHead) => ({
  eventId,
  ...defined({ kind, eventTime: iso(eventTimeMs), receivedAt: iso(receivedAtMs) }),
});

export function describeRow(row: FoundRow, table: string, version: number | undefined): FoundEvent {
  return { state: 'in_lake', ...describe(row), ...defined({ availableAt: iso(row.availableAtMs), table, version }) };
}

export function describeFailed({ reason, failedAt, ...event }: FoundFailed): FoundEvent {
  return { state: 'failed', ...describe(event), reason, failedAt };
}

export function describeWaiting(event: EventHead): FoundEvent {
  return { state: 'in_stream', ...describe(event) };
}
