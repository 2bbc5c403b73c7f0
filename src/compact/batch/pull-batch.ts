import assert from 'node:assert/strict';
import path from 'node:path';
import { type AppError, isAppError } from '../../runtime/errors.ts';
import { type WorkFile, openWorkFile } from '../../runtime/files/work-files.ts';
import {
  countLines,
  hashMessage,
  isMarker,
  newline,
  type StreamMessage,
  type StreamReader,
} from '../../stream/stream.ts';
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
  readonly bytes: number;
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

/** Memory of two pulls: one is written while the next arrives. For one batch at a time. */
type PullMemory = readonly [Uint8Array, Uint8Array];

function createPullMemory(): PullMemory {
  return [Buffer.allocUnsafeSlow(pullMaxBytes), Buffer.allocUnsafeSlow(pullMaxBytes)];
}

async function spool(file: WorkFile, messages: readonly StreamMessage[]): Promise<void> {
  const end = Uint8Array.of(newline);
  const parts = messages.flatMap(({ payload }) =>
    isMarker(payload) ? [] : payload.at(-1) === newline ? [payload] : [payload, end],
  );
  await file.appendAll(parts);
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
  let last: StreamMessage | undefined;
  let [messages, events, bytes] = [0, 0, 0];
  const { lastSequence = Number.MAX_SAFE_INTEGER } = limits;
  let hasMore = true;
  let [into, other] = memory;
  let writing = Promise.resolve();
  try {
    do {
      const maxBytes = Math.min(pullMaxBytes, limits.maxBytes - bytes);
      const { pulled, gap } = await pullNext(reader, after + messages, {
        maxBytes,
        waitMs: Math.max(1, deadline - performance.now()),
        signal,
        into,
      });
      if (gap !== undefined && pulled.length === 0 && messages === 0) throw gap;
      hasMore = gap === undefined;
      if (pulled.length === 0) continue;
      // A pull may return more than its limit.
      const within =
        messages > 0 ? pulled : takeBounded(pulled, ({ payload }) => payload.length, pulled.length, maxBytes);
      const batchMessages = within.filter(({ sequence }) => sequence <= lastSequence);
      hasMore &&= batchMessages.length === pulled.length && batchMessages.at(-1)?.sequence !== lastSequence;
      await writing;
      [into, other] = [other, into];
      writing = spool(spoolFile, batchMessages);
      // Awaited later, unless another error ends the pull first.
      writing.catch(() => undefined);
      last = batchMessages.at(-1) ?? last;
      messages += batchMessages.length;
      for (const { payload } of batchMessages) {
        events += countLines(payload);
        bytes += payload.length;
      }
    } while (
      hasMore &&
      !signal.aborted &&
      bytes < limits.maxBytes &&
      events < limits.maxRows &&
      performance.now() < deadline
    );
    await writing;
  } finally {
    await spoolFile.close();
  }
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
