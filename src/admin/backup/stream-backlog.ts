import { throwIfStopped } from './backup-folder.ts';
import { AppError, isAppError } from '../../runtime/errors.ts';
import { openEmptyFile, openForReading, type FileHandle } from '../../runtime/files/open-file.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { StreamMessage, StreamReader } from '../../stream/stream.ts';

/**
 * The tail of the stream: the messages that are not in the lake yet, in a file.
 *
 * It is read before the version of the lake for the backup is chosen, and without a consumer that acknowledges: the
 * compactor continues. It commits messages before it purges them, so a newer position of the lake covers a gap at the
 * beginning. A message is framed by its sequence (8 bytes) and its length (4 bytes), both big-endian. The highest bit of
 * the length marks a compressed message, which begins with the size of its lines (4 bytes). The message at the lake's
 * position, the anchor, comes first: its hash lets a restored lake verify that the two belong together.
 */

export interface CapturedBacklog {
  readonly file: string;
  readonly stream: string;
  /** Last sequence of the stream at the start, not before any acknowledged event. */
  readonly lastSequence: number;
}

/** Returns the lake's position in the stream; undefined if it has followed none. */
type FindEpoch = () => Promise<Epoch | undefined>;

const frameHeadBytes = 12;
const sizeBytes = 4;
/** Programs before 0.4 cannot read a message with this mark, and end a restore. */
const compressedMark = 0x8000_0000;
const pullBytes = 16 * 1024 * 1024;
/** A pull ends after this time without a message, ms; the end is known, so this is rare. */
const pullWaitMs = 250;
/** A broker that returns none of its messages for this time counts as stalled, ms. */
const stalledMs = 30_000;

function renderFrames(messages: readonly StreamMessage[]): Buffer {
  return Buffer.concat(
    messages.flatMap(({ sequence, payload, linesBytes }) => {
      const isCompressed = linesBytes !== undefined;
      const head = Buffer.alloc(frameHeadBytes + (isCompressed ? sizeBytes : 0));
      head.writeBigUInt64BE(BigInt(sequence));
      head.writeUInt32BE(isCompressed ? compressedMark + sizeBytes + payload.length : payload.length, 8);
      if (isCompressed) head.writeUInt32BE(linesBytes, frameHeadBytes);
      return [head, payload];
    }),
  );
}

interface BacklogFrame {
  readonly sequence: number;
  readonly at: number;
  readonly length: number;
  readonly isCompressed: boolean;
}

async function readExactly(handle: FileHandle, at: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  let read = 0;
  while (read < length) {
    const { bytesRead } = await handle.read(bytes, read, length - read, at + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return bytes.subarray(0, read);
}

/** Reads one message. Error: `backup_damaged` if the file ends too early. */
async function readFrame(
  handle: FileHandle,
  { sequence, at, length, isCompressed }: BacklogFrame,
): Promise<StreamMessage> {
  const bytes = await readExactly(handle, at, length);
  if (bytes.length < length)
    throw new AppError('backup_damaged', 'the tail of the stream in the backup ends within a message', {
      hint: 'Restore another backup.',
    });
  if (!isCompressed) return { sequence, payload: bytes };
  return { sequence, payload: bytes.subarray(sizeBytes), linesBytes: bytes.readUInt32BE() };
}

/** Lists the messages in the file of a tail, reading their heads in chunks. Error: `backup_damaged`. */
async function* listFrames(handle: FileHandle): AsyncGenerator<BacklogFrame> {
  const chunkBytes = 1024 * 1024;
  let chunk: Buffer = Buffer.alloc(0);
  let chunkAt = 0;
  for (let at = 0; ;) {
    if (at < chunkAt || at + frameHeadBytes > chunkAt + chunk.length)
      [chunk, chunkAt] = [await readExactly(handle, at, chunkBytes), at];
    if (chunk.length === 0) return;
    if (chunk.length < frameHeadBytes)
      throw new AppError('backup_damaged', 'the tail of the stream in the backup ends within the head of a message', {
        hint: 'Restore another backup.',
      });
    const head = chunk.subarray(at - chunkAt);
    const marked = head.readUInt32BE(8);
    const isCompressed = marked >= compressedMark;
    const length = isCompressed ? marked - compressedMark : marked;
    const frame = { sequence: Number(head.readBigUInt64BE()), at: at + frameHeadBytes, length, isCompressed };
    yield frame;
    at = frame.at + frame.length;
  }
}

/** Returns the frames of the messages from a sequence on. */
export async function* copyFrames(file: string, from: number): AsyncGenerator<Uint8Array> {
  const handle = await openForReading(file);
  try {
    for await (const frame of listFrames(handle)) {
      if (frame.sequence >= from) yield renderFrames([await readFrame(handle, frame)]);
    }
  } finally {
    await handle.close();
  }
}

export async function countFrames(file: string, after: number): Promise<number> {
  const handle = await openForReading(file);
  let count = 0;
  try {
    for await (const frame of listFrames(handle)) if (frame.sequence > after) count += 1;
  } finally {
    await handle.close();
  }
  return count;
}

interface CaptureOptions {
  readonly findEpoch: FindEpoch;
  readonly file: string;
  readonly signal: AbortSignal;
  readonly logger: Logger;
}

/**
 * Reads the messages that the lake lacks into a file, without fsync, concurrently with a compactor. Memory: one pull.
 * Errors: `broker_away`, also if the broker stalls, `stopping`, the file system's.
 */
export async function captureBacklog(
  reader: StreamReader,
  { findEpoch, file, signal, logger }: CaptureOptions,
): Promise<CapturedBacklog> {
  const { id, firstSequence, lastSequence } = await reader.state();
  const findPosition = async (): Promise<number | undefined> => {
    const epoch = await findEpoch();
    return epoch?.streamId === id ? epoch.position : undefined;
  };
  const handle = await openEmptyFile(file);
  try {
    /** Last sequence that was read, and size of the file. */
    const reached = { after: 0, end: 0 };
    const append = async (messages: readonly StreamMessage[]): Promise<void> => {
      const bytes = renderFrames(messages);
      for (let at = 0; at < bytes.length;)
        at += (await handle.write(bytes, at, bytes.length - at, reached.end + at)).bytesWritten;
      reached.end += bytes.length;
      reached.after = messages.at(-1)?.sequence ?? reached.after;
    };
    /** Starts over after a position, with the message at it. */
    const beginAfter = async (position: number): Promise<void> => {
      await handle.truncate(0);
      reached.end = 0;
      const anchor = position === 0 ? undefined : await reader.findMessage(position);
      await append(anchor === undefined ? [] : [anchor]);
      reached.after = position;
    };
    /** The next messages are missing: the lake has them, or others have purged them, which the compactor reports. */
    const passGap = async (): Promise<void> => {
      const position = await findPosition();
      if (position !== undefined && position > reached.after) return beginAfter(position);
      for (
        let next = await reader.findMessage(reached.after + 1);
        next !== undefined;
        next = await reader.findMessage(reached.after + 1)
      )
        await append([next]);
      const from = reached.after + 1;
      while (reached.after < lastSequence && (await reader.findMessage(reached.after + 1)) === undefined)
        reached.after += 1;
      if (reached.after >= from)
        logger.warn(
          { firstMissing: from, lastMissing: reached.after },
          'messages missing in the stream and in the backup',
        );
    };

    await beginAfter((await findPosition()) ?? Math.max(0, firstSequence - 1));
    let movedMs = performance.now();
    while (reached.after < lastSequence) {
      throwIfStopped(signal);
      const before = reached.after;
      try {
        await append(await reader.pull(reached.after, { maxBytes: pullBytes, waitMs: pullWaitMs, signal }));
      } catch (error) {
        if (!isAppError(error, 'stream_gap')) throw error;
        await passGap();
      }
      if (reached.after > before) movedMs = performance.now();
      else if (performance.now() - movedMs < stalledMs) await pause(pullWaitMs, signal);
      else
        throw new AppError('broker_away', `the broker returned no message for ${stalledMs / 1000} s but has some`, {
          hint: "Check the broker with 'tributary status', then run the backup again.",
        });
    }
  } finally {
    await handle.close();
  }
  return { file, stream: id, lastSequence };
}

/** Poll interval of a reader at the end of the tail, ms. */
const idleMs = 20;

/**
 * Opens the tail of a backup as the stream that it was read from, so that a compactor follows its usual rules: it
 * compares the anchor, and begins an epoch for an unknown stream. Nothing is purged. Memory: a few bytes per message.
 */
export async function openBacklogReader(file: string, stream: string): Promise<StreamReader> {
  const handle = await openForReading(file);
  const frames: BacklogFrame[] = [];
  let bytes = 0;
  try {
    for await (const frame of listFrames(handle)) {
      frames.push(frame);
      bytes += frame.length;
    }
  } catch (error) {
    await handle.close();
    throw error;
  }

  /** Returns the index of the first message from a sequence on. */
  function indexOf(sequence: number): number {
    let [low, high] = [0, frames.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((frames[middle]?.sequence ?? 0) < sequence) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  return {
    state: async () => ({
      id: stream,
      firstSequence: frames[0]?.sequence ?? 1,
      lastSequence: frames.at(-1)?.sequence ?? 0,
      messages: frames.length,
      bytes,
    }),
    async findMessage(sequence) {
      const frame = frames[indexOf(sequence)];
      return frame?.sequence === sequence ? readFrame(handle, frame) : undefined;
    },
    async pull(afterSequence, { maxBytes, waitMs, signal }) {
      const pulled: StreamMessage[] = [];
      let pulledBytes = 0;
      for (let index = indexOf(afterSequence + 1); pulledBytes < maxBytes; index += 1) {
        const frame = frames[index];
        if (frame === undefined) break;
        if (frame.sequence !== afterSequence + pulled.length + 1) {
          if (pulled.length > 0) break;
          throw new AppError(
            'stream_gap',
            `the tail of the stream has message ${frame.sequence} where ${afterSequence + 1} should be`,
            { hint: 'Restore another backup.' },
          );
        }
        pulled.push(await readFrame(handle, frame));
        pulledBytes += frame.length;
      }
      if (pulled.length === 0) await pause(Math.min(waitMs, idleMs), signal);
      return pulled;
    },
    purgeBelow: () => Promise.resolve(),
    close: () => handle.close(),
  };
}
