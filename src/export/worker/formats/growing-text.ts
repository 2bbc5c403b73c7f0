import { pause } from '../../../runtime/async/retry.ts';
import { isSystemError } from '../../../runtime/errors.ts';
import { removeFile } from '../../../runtime/files/durable-file.ts';
import { openForAppending, openForReading, type FileHandle } from '../../../runtime/files/open-file.ts';

/** How often a file is checked for growth, ms. */
const pollIntervalMs = 10;

/** A file that is read while others append to it. */
interface GrowingFile {
  readonly path: string;
  /** Aborts when it is complete, or given up. */
  readonly ended: AbortController;
  isGivenUp: boolean;
}

const createGrowingFile = (file: string): GrowingFile => ({
  path: file,
  ended: new AbortController(),
  isGivenUp: false,
});

async function waitForGrowth(file: GrowingFile): Promise<void> {
  await pause(pollIntervalMs, file.ended.signal);
  if (file.isGivenUp) throw new Error(`${file.path} was given up`);
}

/** Opens a file once it exists, for reading or appending. Error: if it is given up. */
async function openGrowing(file: GrowingFile, flags: 'r' | 'a'): Promise<FileHandle> {
  for (;;) {
    const isWhole = file.ended.signal.aborted;
    try {
      return await (flags === 'a' ? openForAppending(file.path) : openForReading(file.path));
    } catch (error) {
      if (isWhole || !isSystemError(error, 'ENOENT')) throw error;
    }
    await waitForGrowth(file);
  }
}

/** Fills a buffer from `position`, when the file has as much or is complete; returns the bytes. Error: if given up. */
async function fillGrowing(file: GrowingFile, handle: FileHandle, buffer: Buffer, position: number): Promise<number> {
  for (let length = 0; ;) {
    // Checked before the read: bytes appended later are read next time.
    const isWhole = file.ended.signal.aborted;
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, position + length);
    length += bytesRead;
    if (length === buffer.length) return length;
    if (bytesRead > 0) continue;
    if (isWhole && !file.isGivenUp) return length;
    await waitForGrowth(file);
  }
}

export type GrowingText = ReturnType<typeof createGrowingText>;

interface Waiter {
  readonly file: number;
  readonly settle: (error?: Error) => void;
}

/** Creates a text in consecutive files, read while others write them. Read files are removed, except the first. */
export function createGrowingText(paths: readonly [string, ...string[]]) {
  const first = createGrowingFile(paths[0]);
  const files = [first, ...paths.slice(1).map(createGrowingFile)];
  let waiters: Waiter[] = [];
  let handle: FileHandle | undefined;
  let [at, position, furthest] = [0, 0, 0];
  /** Position to continue at after the first file. */
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
    if (at > 0 && ended !== undefined) await removeFile(ended.path);
    ({ at, position } = left ?? { at: at + 1, position: 0 });
    left = undefined;
    furthest = Math.max(furthest, at);
    wake();
  }

  return {
    files: files.length,
    /** Fills a buffer from one file; fewer bytes than its size end that file, 0 the text. Error: if it is given up. */
    async read(buffer: Buffer): Promise<number> {
      for (let file = files[at]; file !== undefined; file = files[at]) {
        handle ??= await openGrowing(file, 'r');
        const length = await fillGrowing(file, handle, buffer, position);
        position += length;
        if (length > 0) return length;
        await moveOn();
      }
      return 0;
    },
    /** Index of the file of the last `read`. */
    current: (): number => at,
    /** Opens the first file to append to it when it is complete. Error: if the text is given up. */
    openFirst: (): Promise<FileHandle> => openGrowing(first, 'a'),
    /** Restarts with the first file, to which the read parts of the others were appended; those are not read again. */
    async restart(): Promise<void> {
      await close();
      left = at === 0 ? undefined : { at, position };
      [at, position] = [0, 0];
    },
    close,
    reached(file: number): Promise<void> {
      return new Promise<void>((resolve, reject) => {
        waiters.push({ file, settle: (reason) => (reason === undefined ? resolve() : reject(reason)) });
        wake();
      });
    },
    complete: (file: number): void => files[file]?.ended.abort(),
    /** Fails its readers: it will never be complete. */
    giveUp(): void {
      isGivenUp = true;
      for (const file of files) {
        file.isGivenUp = true;
        file.ended.abort();
      }
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
