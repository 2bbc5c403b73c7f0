import type { FailureReason } from '../lake/files/failed-events.ts';
import type { FoundFailed } from '../lake/find/failed-index.ts';
import type { FoundRow } from '../lake/find/find-rows.ts';

/**
 * Where an event is. `never_seen`: nothing of what the service has acknowledged is it, as far as that is known: nothing
 * is remembered of other apps' events, nor of ids that were erased beyond the bound that is kept.
 */
export type EventState = 'in_stream' | 'in_lake' | 'failed' | 'erased' | 'never_seen';

/** One event that was found: what its sender knows of it, and where it is. Times are ISO 8601. */
export interface FoundEvent {
  readonly state: 'in_stream' | 'in_lake' | 'failed';
  readonly eventId: string;
  readonly kind?: string;
  readonly eventTime?: string;
  readonly receivedAt?: string;
  /** Of an event in the lake: since when it can be read there. */
  readonly availableAt?: string;
  /** Of an event in the lake: its table. */
  readonly table?: string;
  /** The first version of that table that has it; absent where the log does not reach back so far. */
  readonly version?: number;
  /** Of a failed event: why it could not be written, and since when it is kept aside. */
  readonly reason?: FailureReason;
  readonly failedAt?: string;
}

/** Where an event may be. */
const eventPlaces = ['lake', 'failed', 'stream'] as const;
export type EventPlace = (typeof eventPlaces)[number];

/** The answer to a question. A request under an Idempotency-Key has an event for each that was found of it. */
export interface EventAnswer {
  /** That of the first event; `erased` or `never_seen` where there is none. */
  readonly state: EventState;
  readonly events: readonly FoundEvent[];
  /** Where more events of a request may be, since it could not be looked through; absent: nowhere. */
  readonly unchecked?: readonly EventPlace[];
  /** Of one never seen: the watermark of the lake that was looked through, ISO 8601, where one is known. */
  readonly watermark?: string;
}

const iso = (ms: number | undefined): string | undefined =>
  ms === undefined || !Number.isFinite(ms) ? undefined : new Date(ms).toISOString();

/** Leaves out what is not known. */
function known<T extends object>(fields: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}

/** An event that waits in the stream, by its line. */
export interface WaitingEvent {
  readonly eventId: string;
  readonly kind: string;
  readonly eventTimeMs: number;
  readonly receivedAtMs: number;
}

const describe = ({ eventId, kind, eventTimeMs, receivedAtMs }: Partial<FoundRow> & { readonly eventId: string }) =>
  known({ eventId, kind, eventTime: iso(eventTimeMs), receivedAt: iso(receivedAtMs) });

/** Describes a row of a table. */
export function describeRow(row: FoundRow, table: string, version: number | undefined): FoundEvent {
  return { state: 'in_lake', ...describe(row), ...known({ availableAt: iso(row.availableAtMs), table, version }) };
}

/** Describes an event that could not be written. */
export function describeFailed({ reason, failedAt, ...event }: FoundFailed): FoundEvent {
  return { state: 'failed', ...describe(event), reason, failedAt };
}

/** Describes an event that waits in the stream. */
export function describeWaiting(event: WaitingEvent): FoundEvent {
  return { state: 'in_stream', ...describe(event) };
}
