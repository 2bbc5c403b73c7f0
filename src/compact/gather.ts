import { createHash } from 'node:crypto';
import { open, type FileHandle } from 'node:fs/promises';
import type { StreamMessage, StreamReader } from '../stream/stream.ts';

/** The messages of one flush, spooled as NDJSON in the order of the stream. */
export interface Batch {
  /** Path of the spool file; not durable, swept at start. */
  readonly file: string;
  readonly firstSequence: number;
  readonly lastSequence: number;
  /** SHA-256 of the last message, hex: the anchor of the position after this batch. */
  readonly lastHash: string;
  readonly messages: number;
  /** Lines, one for each event. */
  readonly events: number;
  readonly bytes: number;
}

export interface GatherLimits {
  readonly maxBytes: number;
  readonly maxRows: number;
  /** How long the oldest message may wait for others, milliseconds. */
  readonly maxAgeMs: number;
}

/** One pull: what is held in memory at once. */
const pullMaxBytes = 16 * 1024 * 1024;
const newline = 0x0a;

/** The hash by which a message is known again, hex. */
export function hashMessage(payload: Uint8Array): string {
  return createHash('sha256').update(payload).digest('hex');
}

function countLines(payload: Uint8Array): number {
  let lines = payload.length > 0 && payload.at(-1) !== newline ? 1 : 0;
  for (let at = payload.indexOf(newline); at !== -1; at = payload.indexOf(newline, at + 1)) lines += 1;
  return lines;
}

async function spool(handle: FileHandle, messages: readonly StreamMessage[]): Promise<void> {
  const end = Uint8Array.of(newline);
  const buffers = messages.flatMap(({ payload }) => (payload.length === 0 || payload.at(-1) === newline ? [payload] : [payload, end]));
  await handle.appendFile(Buffer.concat(buffers));
}

/**
 * Pulls messages after a sequence into a spool file until there are bytes or rows enough, or `maxAgeMs` have passed since
 * the first pull. Undefined when nothing came, or the signal aborted: what was pulled is still in the stream. Memory: one
 * pull. Errors: the reader's, and those of the file system.
 */
export async function gatherBatch(reader: StreamReader, after: number, limits: GatherLimits, file: string, signal: AbortSignal): Promise<Batch | undefined> {
  const deadline = performance.now() + limits.maxAgeMs;
  const handle = await open(file, 'w', 0o600);
  let last: StreamMessage | undefined;
  let [messages, events, bytes] = [0, 0, 0];
  try {
    do {
      const maxBytes = Math.min(pullMaxBytes, limits.maxBytes - bytes);
      const pulled = await reader.pull(after + messages, { maxBytes, waitMs: Math.max(1, deadline - performance.now()), signal });
      if (pulled.length === 0) continue;
      await spool(handle, pulled);
      last = pulled.at(-1);
      messages += pulled.length;
      for (const { payload } of pulled) {
        events += countLines(payload);
        bytes += payload.length;
      }
    } while (!signal.aborted && bytes < limits.maxBytes && events < limits.maxRows && performance.now() < deadline);
  } finally {
    await handle.close();
  }
  if (last === undefined || signal.aborted) return undefined;
  return { file, firstSequence: after + 1, lastSequence: last.sequence, lastHash: hashMessage(last.payload), messages, events, bytes };
}
