import { constants, open, rm, type FileHandle } from 'node:fs/promises';
import { pause } from '../../../runtime/async/retry.ts';
import { isSystemError } from '../../../runtime/errors.ts';

/** How often a file is checked for growth, ms. */
const lookEveryMs = 10;

/** A file that is read while others append to it. */
interface GrowingFile {
  readonly path: string;
  /** Opens it once it exists, for reading or appending. Error: if it is given up. */
  open(flags: 'r' | 'a'): Promise<FileHandle>;
  /**
   * Fills a buffer from `position`: waits until the file has as much or is complete. Returns the number of bytes.
   * Error: if it is given up.
   */
  fill(handle: FileHandle, buffer: Buffer, position: number): Promise<number>;
  complete(): void;
  /** Fails its readers: it will never be complete. */
  giveUp(): void;
}

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
        // Checked before the read: bytes appended later are read next time.
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
 * A text in consecutive files, read by one reader while others write them. Read files are removed, except the first.
 */
export interface GrowingText {
  readonly files: number;
  /** Fills a buffer from one file; fewer bytes than its size end that file, 0 the text. Error: if it is given up. */
  read(buffer: Buffer): Promise<number>;
  /** Index of the file of the last `read`. */
  current(): number;
  /** Opens the first file to append to it when it is complete. Error: if the text is given up. */
  openFirst(): Promise<FileHandle>;
  /** Restarts with the first file, to which the read parts of the others were appended; those are not read again. */
  restart(): Promise<void>;
  close(): Promise<void>;
  /** Waits until all earlier files have been read. Error: if the text is given up. */
  reached(file: number): Promise<void>;
  complete(file: number): void;
  /** Fails its readers: it will never be complete. */
  giveUp(): void;
}

interface Waiter {
  readonly file: number;
  readonly settle: (error?: Error) => void;
}

/** Creates the reader of a text whose files may not exist yet. */
export function createGrowingText(paths: readonly [string, ...string[]]): GrowingText {
  const first = createGrowingFile(paths[0]);
  const files = [first, ...paths.slice(1).map(createGrowingFile)];
  let waiters: Waiter[] = [];
  let handle: FileHandle | undefined;
  let [at, position, furthest] = [0, 0, 0];
  /** Where to continue after the first file. */
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

/** Fills a buffer from several files of a text. Fewer bytes than its size end the text. */
export async function fillFrom(text: GrowingText, buffer: Buffer): Promise<number> {
  let length = 0;
  while (length < buffer.length) {
    const read = await text.read(buffer.subarray(length));
    if (read === 0) break;
    length += read;
  }
  return length;
}
