import assert from 'node:assert/strict';
import path from 'node:path';
import { type AppError, isAppError } from '../../runtime/errors.ts';
import { type WorkFile, openWorkFile } from '../../runtime/files/work-files.ts';
import {
  countLines,
  hashMessage,
  isMarker,
  maxMessageBytes,
  newline,
  type StreamMessage,
  type StreamReader,
} from '../../stream/stream.ts';
import { readLines } from '../../stream/message-compression.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import { takeBounded } from '../compact-options.ts';

/** Messages of one flush, spooled as NDJSON in stream order. */
export interface Batch {
  /** Path of the spool; not durable, removed at start. */
  readonly file: string;
  readonly firstSequence: number;
  readonly lastSequence: number;
  /** SHA-256 of the last message, hex: the anchor of the position after the batch. */
  readonly lastHash: string;
  /** By the broker's clock, Unix ms; undefined: unknown. */
  readonly lastStoredAtMs?: number | undefined;
  readonly messages: number;
  readonly events: number;
  /** Size of the lines, bytes. */
  readonly bytes: number;
  /** Contexts of traced requests, at most `maxTraces`; absent without one. */
  readonly traceparents?: readonly string[];
}

export interface BatchLimits {
  readonly maxBytes: number;
  readonly maxRows: number;
  /** Maximum age of the oldest message, ms. */
  readonly maxAgeMs: number;
  readonly lastSequence?: number | undefined;
}

type PullLimits = Parameters<StreamReader['pull']>[1];

const pullMaxBytes = 8 * 1024 * 1024;
/** Traced requests of a batch: half of the queue of spans. The others have no span of their flush. */
const maxTraces = 1024;

/** Memory of two pulls: one is written while the next arrives. For one batch at a time. */
type PullMemory = readonly [Uint8Array, Uint8Array];

function createPullMemory(): PullMemory {
  return [Buffer.allocUnsafeSlow(pullMaxBytes), Buffer.allocUnsafeSlow(pullMaxBytes)];
}

const isCompressed = ({ linesBytes }: StreamMessage): boolean => linesBytes !== undefined;

/** Returns the size of a message as lines, bytes. A damaged one may claim less than it has. */
const sizeOf = ({ payload, linesBytes = 0 }: StreamMessage): number => Math.max(payload.length, linesBytes);

async function writeLines(file: WorkFile, messages: readonly Uint8Array[]): Promise<void> {
  const end = Uint8Array.of(newline);
  const parts = messages.flatMap((lines) => (isMarker(lines) ? [] : lines.at(-1) === newline ? [lines] : [lines, end]));
  await file.appendAll(parts);
}

/** Creates the spool of a batch. Memory: the lines of two parts, each of a pull's size. */
function createSpool(file: WorkFile, limits: Pick<BatchLimits, 'maxBytes' | 'maxRows'>) {
  let last: StreamMessage | undefined;
  let [messages, events, bytes, storedBytes] = [0, 0, 0, 0];
  const traceparents: string[] = [];
  let writing = Promise.resolve();
  const isFull = (): boolean => bytes >= limits.maxBytes || events >= limits.maxRows;

  async function addPart(part: readonly StreamMessage[]): Promise<void> {
    const read = part.some(isCompressed) ? await Promise.all(part.map(readLines)) : part.map(({ payload }) => payload);
    await writing;
    writing = writeLines(file, read);
    // Awaited later, unless another error ends the pull first.
    writing.catch(() => undefined);
    last = part.at(-1);
    messages += part.length;
    for (const lines of read) {
      events += countLines(lines);
      bytes += lines.length;
    }
    for (const { payload, traceparents: ofMessage } of part) {
      storedBytes += payload.length;
      if (ofMessage !== undefined) traceparents.push(...ofMessage.slice(0, maxTraces - traceparents.length));
    }
  }

  return {
    isFull,
    counts: () => ({ last, messages, events, bytes }),
    traces: () => (traceparents.length === 0 ? {} : { traceparents }),
    /** Returns the size of the next pull, bytes: compressed messages expand about as the earlier ones. */
    nextPullBytes(): number {
      const share = bytes === 0 ? 1 : Math.min(1, storedBytes / bytes);
      return Math.ceil(Math.min(pullMaxBytes, limits.maxBytes - bytes) * share);
    },
    /** Adds pulled messages in parts. Returns whether all fit: they may expand to more than the limits. */
    async add(pulled: readonly StreamMessage[]): Promise<boolean> {
      for (let rest = pulled; rest.length > 0;) {
        if (isFull()) return false;
        // The broker may exceed a small limit by one message. The first part never does: a batch that exceeded the
        // memory must get smaller.
        const room = limits.maxBytes - bytes + (messages === 0 ? 0 : maxMessageBytes);
        const part = takeBounded(rest, sizeOf, rest.length, Math.min(pullMaxBytes, room));
        await addPart(part);
        rest = rest.slice(part.length);
        if (rest.length > 0 && room < pullMaxBytes) return false;
      }
      return true;
    },
    written: () => writing,
  };
}

/** Reads messages one by one up to the first gap: a pull across a gap returns none. */
async function pullToGap(reader: StreamReader, after: number, maxBytes: number): Promise<StreamMessage[]> {
  const messages: StreamMessage[] = [];
  for (let bytes = 0; bytes < maxBytes;) {
    const message = await reader.findMessage(after + messages.length + 1);
    if (message === undefined) break;
    messages.push(message);
    bytes += message.payload.length;
  }
  return messages;
}

/** Pulls once; returns the messages before a gap, and its error. */
async function pullNext(
  reader: StreamReader,
  after: number,
  limits: PullLimits,
): Promise<{ pulled: StreamMessage[]; gap?: AppError }> {
  try {
    return { pulled: await reader.pull(after, limits) };
  } catch (error) {
    if (!isAppError(error, 'stream_gap')) throw error;
    return { pulled: await pullToGap(reader, after, limits.maxBytes), gap: error };
  }
}

/**
 * Pulls messages after a sequence into a spool until a limit is reached. Undefined if none came or the signal aborted.
 * Errors: `stream_gap` if the very next message is missing; those of the reader and the file system.
 */
async function pullBatch(
  reader: StreamReader,
  after: number,
  limits: BatchLimits,
  file: string,
  signal: AbortSignal,
  memory = createPullMemory(),
): Promise<Batch | undefined> {
  const deadline = performance.now() + limits.maxAgeMs;
  const spoolFile = await openWorkFile(file);
  const spool = createSpool(spoolFile, limits);
  const { lastSequence = Number.MAX_SAFE_INTEGER } = limits;
  let hasMore = true;
  let [into, other] = memory;
  try {
    do {
      const { messages } = spool.counts();
      const { pulled, gap } = await pullNext(reader, after + messages, {
        maxBytes: spool.nextPullBytes(),
        waitMs: Math.max(1, deadline - performance.now()),
        signal,
        into,
      });
      if (gap !== undefined && pulled.length === 0 && messages === 0) throw gap;
      hasMore = gap === undefined;
      if (pulled.length === 0) continue;
      const within = pulled.filter(({ sequence }) => sequence <= lastSequence);
      hasMore &&= within.length === pulled.length && within.at(-1)?.sequence !== lastSequence;
      if (!(await spool.add(within))) hasMore = false;
      [into, other] = [other, into];
    } while (hasMore && !signal.aborted && !spool.isFull() && performance.now() < deadline);
    await spool.written();
  } finally {
    await spoolFile.close();
  }
  const { last, messages, events, bytes } = spool.counts();
  if (last === undefined || signal.aborted) return undefined;
  assert.equal(last.sequence, after + messages, 'the batch has every message after the position, once');
  return {
    file,
    firstSequence: after + 1,
    lastSequence: last.sequence,
    lastHash: hashMessage(last.payload),
    lastStoredAtMs: last.storedAtMs,
    messages,
    events,
    bytes,
    ...spool.traces(),
  };
}

type SpoolPosition = Pick<Epoch, 'appId' | 'position'>;

interface Pulling {
  readonly after: SpoolPosition;
  readonly batch: Promise<Batch | undefined>;
  readonly aborter: AbortController;
}

/** Creates a puller of spool files in a folder, two at a time. `onPulled` follows each pull that is not aborted. */
export function createPrefetcher(
  reader: StreamReader,
  folder: string,
  name: string,
  signal: AbortSignal,
  onPulled: (batch: Batch | undefined, limits: BatchLimits) => void = () => undefined,
) {
  let ahead: Pulling | undefined;
  let spools = 0;
  const memory = createPullMemory();

  function start(after: SpoolPosition, limits: BatchLimits): Pulling {
    spools += 1;
    const file = path.join(folder, `${name}.${spools % 2}.ndjson`);
    const aborter = new AbortController();
    const end = (): void => aborter.abort();
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const batch = pullBatch(reader, after.position, limits, file, aborter.signal, memory)
      .then((pulled) => {
        if (!aborter.signal.aborted) onPulled(pulled, limits);
        return pulled;
      })
      .finally(() => signal.removeEventListener('abort', end));
    // It may never be awaited.
    batch.catch(() => undefined);
    return { after, batch, aborter };
  }

  async function stop(): Promise<void> {
    ahead?.aborter.abort();
    await ahead?.batch.catch(() => undefined);
    ahead = undefined;
  }

  return {
    async pull(after: SpoolPosition, limits: BatchLimits) {
      const isNext = ahead?.after.position === after.position && ahead.after.appId === after.appId;
      if (!isNext) await stop();
      const { batch } = ahead ?? start(after, limits);
      ahead = undefined;
      return batch;
    },
    prefetch(after: SpoolPosition, limits: BatchLimits) {
      ahead = start(after, limits);
    },
    stop,
  };
}

/** Pulls one batch ahead of the flush, and pulls again if it is not the next one. */
export type Prefetcher = ReturnType<typeof createPrefetcher>;
