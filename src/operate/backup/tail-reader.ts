import { open } from 'node:fs/promises';
import { AppError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { StreamMessage, StreamReader } from '../../stream/stream.ts';
import { listFrames, readPayload, type TailFrame } from './stream-tail.ts';

/** Between two looks of a reader that waits for more than the tail has, milliseconds: nothing comes. */
const idleMs = 20;

/**
 * Opens the tail in a backup as the stream that it was read from, so that a compactor takes it in by the same rules:
 * the anchor is compared, a stream that the lake does not know begins an epoch. Nothing is purged. Memory: some bytes a
 * message.
 */
export async function openTailReader(file: string, stream: string): Promise<StreamReader> {
  const handle = await open(file, 'r');
  const frames: TailFrame[] = [];
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

  /** Index of the first message at or after a sequence. */
  function indexOf(sequence: number): number {
    let [low, high] = [0, frames.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((frames[middle]?.sequence ?? 0) < sequence) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  async function read(frame: TailFrame): Promise<StreamMessage> {
    return { sequence: frame.sequence, payload: await readPayload(handle, frame) };
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
      return frame?.sequence === sequence ? read(frame) : undefined;
    },
    async pull(afterSequence, { maxBytes, waitMs, signal }) {
      const pulled: StreamMessage[] = [];
      let taken = 0;
      for (let index = indexOf(afterSequence + 1); taken < maxBytes; index += 1) {
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
        pulled.push(await read(frame));
        taken += frame.length;
      }
      if (pulled.length === 0) await pause(Math.min(waitMs, idleMs), signal);
      return pulled;
    },
    purgeBelow: () => Promise.resolve(),
    close: () => handle.close(),
  };
}
