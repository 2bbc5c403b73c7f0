import { createHash } from 'node:crypto';

/**
 * The stream: where an acknowledged event rests until the lake has it.
 *
 * In: groups of event lines (NDJSON, at most `maxMessageBytes`), one JetStream message a group, from ingest.
 * Out: the messages in order of their stream sequence, to the compactor, which purges what the lake's log has.
 * Invariant: a message whose publish was confirmed is fsynced (`sync_interval: always`) and stays until it is purged.
 * Crash: an unconfirmed publish may or may not be stored; nothing confirmed is lost.
 */

/** Name of the JetStream stream that carries imported events, unless TRIBUTARY_STREAM names another. */
export const streamName = 'TRIBUTARY_EVENTS';
/** The subject of the messages of a stream that no service has claimed (lease.ts). */
export const eventSubject = 'tributary.events';
/**
 * Upper bound of one message's payload, bytes: below nats-server's default max_payload of 1 MiB, with room for headers.
 */
export const maxMessageBytes = 900 * 1024;

/** Proof that a message is durable in the stream. */
export interface PublishAck {
  readonly stream: string;
  /** Stream sequence, starting at 1. */
  readonly sequence: number;
  /** The stream's id, as `StreamState` has it; absent where no service has claimed it. */
  readonly streamId?: string | undefined;
}

/** The id of a stream: its name and when it was made, by which it is told from one of the same name. */
export function streamIdOf(name: string, created: string): string {
  return `${name}@${created}`;
}

/**
 * Writes messages to the stream. Errors: `publish_unknown` (no answer: may be stored), `stream_full`, `stream_shut`,
 * `broker_refused` and `broker_away` (not stored).
 */
export interface StreamPublisher {
  publish(payload: Uint8Array, timeoutMs: number): Promise<PublishAck>;
  /** Round trip to the broker; throws `broker_away` when it does not answer in time. */
  ping(timeoutMs: number): Promise<void>;
  close(): Promise<void>;
}

/** One message as the compactor reads it. */
export interface StreamMessage {
  readonly sequence: number;
  readonly payload: Uint8Array;
  /**
   * When it was stored, by the broker's clock, Unix milliseconds, rounded down; never later than that clock showed.
   * Absent where it is not known.
   */
  readonly storedAtMs?: number | undefined;
}

/**
 * What the broker says of the stream. `id` (name and creation time) distinguishes a stream from one of the
 * same name that was made later.
 */
export interface StreamState {
  readonly id: string;
  readonly firstSequence: number;
  readonly lastSequence: number;
  readonly messages: number;
  readonly bytes: number;
  /** Most bytes that it may hold; absent where nothing bounds it. */
  readonly maxBytes?: number | undefined;
  /** Absent where the broker does not say, or is cut off from the others of its cluster. */
  readonly clock?: BrokerClock | undefined;
}

/** What the broker's clock showed when the state of the stream was read, Unix milliseconds. */
export interface BrokerClock {
  /** No later than when it was read: what was acknowledged before this is counted. */
  readonly fromMs: number;
  /** When the broker answered. */
  readonly toMs: number;
}

/** Reads the stream for the compactor. Position is the caller's: nothing here is remembered by the broker. */
export interface StreamReader {
  /** Errors: `stream_shut` when the stream is another service's; nothing of it may then be taken or purged. */
  state(): Promise<StreamState>;
  /** Throws `stream_shut` when the stream is another service's. */
  assertOwner?(): Promise<void>;
  /** The message at a sequence, or undefined when it is not there. */
  findMessage(sequence: number): Promise<StreamMessage | undefined>;
  /**
   * Pulls the messages after `afterSequence`, in order, until `maxBytes` are there, `waitMs` have passed since the
   * call, or the signal aborts. Sequences are contiguous from afterSequence + 1: a gap throws `stream_gap`. Payloads lie
   * in `into` as far as it has room, and belong to whoever gave it.
   */
  pull(
    afterSequence: number,
    limits: { maxBytes: number; waitMs: number; signal?: AbortSignal; into?: Uint8Array },
  ): Promise<StreamMessage[]>;
  /**
   * Grows with each message that a pull brings, the moment it comes, and whenever a pull was cut off or the connection
   * lost, after which there may be messages that did not come. Absent where that is not known.
   */
  arrivals?(): number;
  /** Removes every message below `sequence`; the message at `sequence` stays. */
  purgeBelow(sequence: number): Promise<void>;
  close(): Promise<void>;
}

/** Ends each event line. */
export const newline = 0x0a;

/** The hash by which a message is known again, hex. */
export function hashMessage(payload: Uint8Array): string {
  return createHash('sha256').update(payload).digest('hex');
}

/**
 * A message that carries no event, only its place in the stream: whoever sees the position pass it knows that all
 * before is in the lake.
 */
export const markerPayload = Uint8Array.of(newline);

/** No event line is empty: a message that begins with an empty line is a marker, whatever follows. */
export function isMarker(payload: Uint8Array): boolean {
  return payload.length === 0 || payload[0] === newline;
}

/** Counts the event lines of a message; a marker has none. */
export function countLines(payload: Uint8Array): number {
  if (isMarker(payload)) return 0;
  // A Buffer looks for a byte several times as fast as a Uint8Array.
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
  let lines = bytes.at(-1) === newline ? 0 : 1;
  for (let at = bytes.indexOf(newline); at !== -1; at = bytes.indexOf(newline, at + 1)) lines += 1;
  return lines;
}
