import { createHash } from 'node:crypto';

/**
 * The stream: where acknowledged events are stored until the lake has them.
 *
 * In: groups of event lines (NDJSON, at most `maxMessageBytes`) from ingest, one JetStream message per group, plain or
 * compressed (message-compression.ts).
 * Out: messages in order of their stream sequence, to the compactor, which purges what the lake's log has.
 * Invariant: a confirmed message is fsynced (`sync_interval: always`) and stays until it is purged.
 * Crash: an unconfirmed publish may or may not be stored; nothing confirmed is lost.
 */

export const streamName = 'TRIBUTARY_EVENTS';
/** Subject of a stream that no service has claimed (claim.ts). */
export const eventSubject = 'tributary.events';
/** Largest payload of a message, bytes: below nats-server's default max_payload of 1 MiB, with space for headers. */
export const maxMessageBytes = 900 * 1024;

export interface PublishAck {
  readonly stream: string;
  /** Stream sequence, starting at 1. */
  readonly sequence: number;
  /** As in `StreamState`; absent if no service has claimed the stream. */
  readonly streamId?: string | undefined;
  /** Size of the stored message, bytes; absent if it was not compressed. */
  readonly compressedBytes?: number | undefined;
}

/** Returns the id of a stream: its name and creation time, which distinguish it from a later one of the same name. */
export function streamIdOf(name: string, created: string): string {
  return `${name}@${created}`;
}

/** Writes messages. Errors: `publish_unknown` (may be stored), and others if a message is not stored. */
export interface StreamPublisher {
  /** `traceparents`: contexts of the sampled requests of the message (trace-header.ts). */
  publish(payload: Uint8Array, timeoutMs: number, traceparents?: readonly string[]): Promise<PublishAck>;
  ping(timeoutMs: number): Promise<void>;
  close(): Promise<void>;
}

export interface StreamMessage {
  readonly sequence: number;
  /** The stored bytes: event lines, or their compressed form (message-compression.ts). */
  readonly payload: Uint8Array;
  /** Size of the event lines if they are compressed, bytes; 0 if the message names an invalid size. */
  readonly linesBytes?: number | undefined;
  /** When it was stored, by the broker's clock, Unix ms, rounded down; absent if unknown. */
  readonly storedAtMs?: number | undefined;
  /** Contexts of its sampled requests, unchecked; absent without one. */
  readonly traceparents?: readonly string[] | undefined;
}

export interface StreamState {
  readonly id: string;
  readonly firstSequence: number;
  readonly lastSequence: number;
  readonly messages: number;
  readonly bytes: number;
  /** Most bytes that it may hold; absent if unbounded. */
  readonly maxBytes?: number | undefined;
  /** Absent if the broker does not report it, or is isolated from its cluster. */
  readonly clock?: BrokerClock | undefined;
}

/** The broker's clock at a check of the stream, Unix ms. */
export interface BrokerClock {
  /** No later than the check: what was acknowledged before is counted. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** Reads the stream for the compactor. The caller keeps the position; the broker remembers none. */
export interface StreamReader {
  /** Error: `stream_shut` if the stream is another service's: then nothing of it may be read or purged. */
  state(): Promise<StreamState>;
  assertOwner?(): Promise<void>;
  findMessage(sequence: number): Promise<StreamMessage | undefined>;
  /**
   * Pulls messages after `afterSequence` in order, until `maxBytes`, `waitMs` or an abort, into `into` as far as it has
   * space. Error: `stream_gap` unless the sequences are contiguous.
   */
  pull(
    afterSequence: number,
    limits: { maxBytes: number; waitMs: number; signal?: AbortSignal; into?: Uint8Array },
  ): Promise<StreamMessage[]>;
  /** Returns a count that grows with each pulled message, and when some may have been missed. Absent if unknown. */
  arrivals?(): number;
  /** Removes every message below `sequence`; the message at `sequence` stays. */
  purgeBelow(sequence: number): Promise<void>;
  close(): Promise<void>;
}

export const newline = 0x0a;

/** Returns the hash of the stored bytes of a message, hex. */
export function hashMessage(payload: Uint8Array): string {
  return createHash('sha256').update(payload).digest('hex');
}

/** A message without events: once the position has passed it, everything before it is in the lake. */
export const markerPayload = Uint8Array.of(newline);

/** Reports whether a message is a marker: no event line is empty. */
export function isMarker(payload: Uint8Array): boolean {
  return payload.length === 0 || payload[0] === newline;
}

export function countLines(payload: Uint8Array): number {
  if (isMarker(payload)) return 0;
  // A Buffer finds a byte several times as fast as a Uint8Array.
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
  let lines = bytes.at(-1) === newline ? 0 : 1;
  for (let at = bytes.indexOf(newline); at !== -1; at = bytes.indexOf(newline, at + 1)) lines += 1;
  return lines;
}
