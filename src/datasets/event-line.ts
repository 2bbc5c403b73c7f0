import type { EventKind } from './event-kinds.ts';

/**
 * One event as it travels in the stream and the spool: a line of NDJSON whose keys are column names of the `events`
 * table. Beside these four, every imported field under its column name: strings as JSON strings, numbers as JSON
 * numbers, 64-bit values (sezam_user_id, hwid) as strings of digits, custom_event_params as an object of strings.
 * `date` and `available_at` are added by the compactor.
 */
export interface EventLine {
  /** UUID text, 36 characters. Version 7: unique. Version 8: derived from an Idempotency-Key (see ingest/event-id.ts). */
  readonly event_id: string;
  readonly kind: EventKind;
  readonly id_app: number;
  /** Unix seconds. */
  readonly event_time: number;
  /** Unix milliseconds. */
  readonly received_at: number;
  readonly [column: string]: unknown;
}
