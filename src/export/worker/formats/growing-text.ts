import { constants, open, rm, type FileHandle } from 'node:fs/promises';
import { pause } from '../../../runtime/async/retry.ts';
import { isSystemError } from '../../../runtime/errors.ts';

/** How long until a file is asked again whether it has grown. */
const lookEveryMs = 10;

/** A file that somebody else appends to, read while it grows. What is read of it never changes any more. */
interface GrowingFile {
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
function createGrowingFile(file: string): GrowingFile {
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

/**
 * A text that lies in some files, one after the other, read while others write them. What was read is removed, but for
 * the first file. One reader.
 */
export interface GrowingText {
  /** How many files it has. */
  readonly files: number;
  /**
   * Fills a buffer with what comes next, from one file: fewer bytes than it has room for end the file. 0: the text is
   * over. Error: when it is given up.
   */
  read(buffer: Buffer): Promise<number>;
  /** The file that `read` has read last, from 0. */
  current(): number;
  /** Opens the first file for what is appended to it when it is whole. Error: when the text is given up. */
  openFirst(): Promise<FileHandle>;
  /**
   * Begins anew with the first file, to which what was read of the others has been appended: that is not read twice.
   */
  restart(): Promise<void>;
  /** Lets go of the file that is read. */
  close(): Promise<void>;
  /** Waits until all files before this one have been read. Error: when the text is given up. */
  reached(file: number): Promise<void>;
  /** Says that nothing will be appended to a file any more. */
  complete(file: number): void;
  /** Says that it will never be whole: who reads it, or waits for it, gets an error. */
  giveUp(): void;
}

interface Waiter {
  readonly file: number;
  readonly settle: (error?: Error) => void;
}

/** Creates the reader of a text whose files may not be there yet. */
export function createGrowingText(paths: readonly [string, ...string[]]): GrowingText {
  const first = createGrowingFile(paths[0]);
  const files = [first, ...paths.slice(1).map(createGrowingFile)];
  let waiters: Waiter[] = [];
  let handle: FileHandle | undefined;
  let [at, position, furthest] = [0, 0, 0];
  /** Where to go on behind the first file. */
  let left: { readonly at: number; readonly position: number } | undefined;
  let isGivenUp = false;

  async function close(): Promise<void> {
    const closing = handle?.close();
    handle = undefined;
    await closing;
  }

  function isDone({ file }: Waiter): boolean {
    return isGivenUp || file <= furthest;
  }

  function wake(): void {
    const done = waiters.filter(isDone);
    waiters = waiters.filter((waiter) => !isDone(waiter));
    for (const { settle } of done) settle(isGivenUp ? new Error('the text was given up') : undefined);
  }

  async function moveOn(): Promise<void> {
    await close();
    const ended = files[at];
    if (at > 0 && ended !== undefined) await rm(ended.path, { force: true });
    ({ at, position } = left ?? { at: at + 1, position: 0 });
    left = undefined;
    furthest = Math.max(furthest, at);
    wake();
  }

  return {
    files: files.length,
    async read(buffer) {
      for (let file = files[at]; file !== undefined; file = files[at]) {
        handle ??= await file.open('r');
        const length = await file.fill(handle, buffer, position);
        position += length;
        if (length > 0) return length;
        await moveOn();
      }
      return 0;
    },
    current: () => at,
    openFirst: () => first.open('a'),
    async restart() {
      await close();
      left = at === 0 ? undefined : { at, position };
      [at, position] = [0, 0];
    },
    close,
    reached(file) {
      return new Promise((resolve, reject) => {
        waiters.push({ file, settle: (reason) => (reason === undefined ? resolve() : reject(reason)) });
        wake();
      });
    },
    complete: (file) => files[file]?.complete(),
    giveUp() {
      isGivenUp = true;
      for (const file of files) file.giveUp();
      wake();
    },
  };
}

/** Fills a buffer from as many files of a text as it takes. Fewer bytes than it has room for end the text. */
export async function fillFrom(text: GrowingText, buffer: Buffer): Promise<number> {
  let length = 0;
  while (length < buffer.length) {
    const read = await text.read(buffer.subarray(length));
    if (read === 0) break;
    length += read;
  }
  return length;
}
