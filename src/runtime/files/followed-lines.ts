import { stat } from 'node:fs/promises';
import { StringDecoder } from 'node:string_decoder';
import { pause } from '../async/retry.ts';
import { unlessMissing } from '../errors.ts';
import { openForReading, type FileHandle } from './open-file.ts';

/** Lines of a text that grows; `caughtUp`: all lines so far were read. */
export type FollowedLine = string | typeof caughtUp;
export const caughtUp = Symbol('caught up');

const blockBytes = 64 * 1024;
/** A longer line is returned in pieces, characters. */
const maxLineLength = 1024 * 1024;
const lineEnd = Buffer.from('\n');
const pollIntervalMs = 300;

/** Splits pieces of bytes into lines. The last line may lack its end; `caughtUp` is passed on. */
export async function* splitLines(
  pieces: AsyncIterable<Uint8Array | typeof caughtUp>,
): AsyncGenerator<FollowedLine, void, void> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  for await (const piece of pieces) {
    if (piece === caughtUp) yield caughtUp;
    else {
      const lines = (rest + decoder.write(Buffer.from(piece))).split('\n');
      rest = lines.pop() ?? '';
      yield* lines;
      if (rest.length > maxLineLength) {
        yield rest;
        rest = '';
      }
    }
  }
  rest += decoder.end();
  if (rest !== '') yield rest;
}

async function* readBlocks(handle: FileHandle, from: number): AsyncGenerator<Uint8Array, number, void> {
  for (let position = from; ;) {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(blockBytes), 0, blockBytes, position);
    if (bytesRead === 0) return position;
    yield buffer.subarray(0, bytesRead);
    position += bytesRead;
  }
}

/**
 * Reads a file, and what is appended to it until the signal aborts. Continues with the new file after a rotation, and
 * from the start after a truncation. Errors: the system's, at the start only for a missing file.
 */
export async function* followFile(
  file: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array | typeof caughtUp, void, void> {
  let handle = await openForReading(file);
  try {
    for (let position = 0; !signal.aborted; await pause(pollIntervalMs, signal)) {
      position = yield* readBlocks(handle, position);
      yield caughtUp;
      const now = await unlessMissing(stat(file), undefined);
      const { ino, dev, size } = await handle.stat();
      if (now !== undefined && (now.ino !== ino || now.dev !== dev)) {
        const next = await unlessMissing(openForReading(file), undefined);
        if (next === undefined) continue;
        // Lines that were appended before the rotation.
        yield* readBlocks(handle, position);
        await handle.close();
        [handle, position] = [next, 0];
        yield lineEnd;
      } else if (size < position) {
        position = 0;
        yield lineEnd;
      }
    }
  } finally {
    await handle.close();
  }
}
