import { constants, open, type FileHandle } from 'node:fs/promises';
import { pause } from '../../../runtime/async/retry.ts';
import { isSystemError } from '../../../runtime/errors.ts';

/** How long until a file is asked again whether it has grown. */
const lookEveryMs = 10;

/** A file that somebody else appends to, read while it grows. What is read of it never changes any more. */
export interface GrowingFile {
  readonly path: string;
  /** Opens it, as soon as it is there: for reading, or for appending. Error: when it is given up. */
  open(flags: 'r' | 'a'): Promise<FileHandle>;
  /**
   * Fills a buffer with what the file has from `position` on: waits until it has as much, or is whole. Returns how many
   * bytes there were. Error: when the file is given up.
   */
  fill(handle: FileHandle, buffer: Buffer, position: number): Promise<number>;
  /** Says that nothing will be appended any more. */
  complete(): void;
  /** Says that it will never be whole: who reads it, or waits for it, gets an error. */
  giveUp(): void;
}

/** Creates the reader of a file that may not be there yet. */
export function createGrowingFile(file: string): GrowingFile {
  const whole = new AbortController();
  let isGivenUp = false;

  async function wait(): Promise<void> {
    await pause(lookEveryMs, whole.signal);
    if (isGivenUp) throw new Error(`${file} was given up`);
  }

  return {
    path: file,
    async open(flags) {
      for (;;) {
        const isWhole = whole.signal.aborted;
        try {
          return await open(file, flags === 'a' ? constants.O_WRONLY | constants.O_APPEND : flags);
        } catch (error) {
          if (isWhole || !isSystemError(error, 'ENOENT')) throw error;
        }
        await wait();
      }
    },
    async fill(handle, buffer, position) {
      for (let length = 0; ;) {
        // Asked before the read: what is appended after it is read the next time.
        const isWhole = whole.signal.aborted;
        const { bytesRead } = await handle.read(buffer, length, buffer.length - length, position + length);
        length += bytesRead;
        if (length === buffer.length) return length;
        if (bytesRead > 0) continue;
        if (isWhole && !isGivenUp) return length;
        await wait();
      }
    },
    complete: () => whole.abort(),
    giveUp() {
      isGivenUp = true;
      whole.abort();
    },
  };
}
