/**
 * LocalCache keeps verified copies of objects on the local disk, for SQL. Processes of a host may share its folder.
 *
 * Layout: `files/KEY`, the copies; `uses/ID`, a locked folder of each process, with a hard link per file in use.
 * Invariant: a copy has the size and the hash of its object when it gets its name. Its time of the last write is derived
 * from the hash, so that a copy which was written later is verified again. Removing a copy does not affect its uses in
 * any process: they have links. The copies without links have at most `maxBytes`; files in use may exceed that.
 * Crash: links and incomplete copies in `uses`, which the next process to open the cache removes.
 */
import { randomUUID } from 'node:crypto';
import { link, rename, stat, utimes } from 'node:fs/promises';
import path from 'node:path';
import { inParallel } from '../async/in-parallel.ts';
import { createKeyedSemaphore, createMutex } from '../async/semaphore.ts';
import { AppError, isDiskFull, isSystemError, unlessMissing } from '../errors.ts';
import { removeFile, syncFile } from '../files/durable-file.ts';
import { hashFile } from '../files/file-checks.ts';
import { findFiles } from '../files/folder-names.ts';
import { makeFolder } from '../files/make-folder.ts';
import { openScratchDir, removeTree } from '../files/work-files.ts';
import type { LocalFiles, StoredFile } from './open-store.ts';

export interface LocalCacheOptions {
  /** A folder on a local disk. */
  readonly folder: string;
  /** Maximum size of the copies that are not in use. */
  readonly maxBytes: number;
  /** Returns the key of a stored file. */
  readonly keyOf: (file: StoredFile) => string;
  /** Fetches an object into a new local file. Returns whether there is one. */
  readonly fetch: (key: string, localFile: string) => Promise<boolean>;
}

export interface LocalCache extends LocalFiles {
  /** Folder of the paths that this process uses. */
  readonly folder: string;
  /** Lists the keys of the copies. */
  keys(): Promise<readonly string[]>;
  /** Removes copies. Those in use stay until their use ends. */
  drop(keys: readonly string[]): Promise<void>;
  /** Removes the links of this process. No use may be active. */
  close(): Promise<void>;
}

/** Files of one use that are fetched or linked at a time. */
const filesAtOnce = 8;
/** Other processes add copies too: they are counted after this part of the limit was fetched here. */
const countedPart = 16;
const attempts = 2;

/** A file with a known hash. */
type HashedFile = StoredFile & { readonly sha256: string };

/** Returns the time of the last write of a verified copy, s: the first 28 bits of the hash. */
const verifiedTimeOf = (sha256: string): number => Number.parseInt(sha256.slice(0, 7), 16);

const isSound = async (file: string, { sizeBytes, sha256 }: StoredFile): Promise<boolean> =>
  (sizeBytes === undefined || (await stat(file)).size === sizeBytes) &&
  (sha256 === undefined || (await hashFile(file)) === sha256);

/** Runs work that creates a name; creates its folder if it is missing. */
async function inFolder(file: string, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    await makeFolder(path.dirname(file));
    await work();
  }
}

/** Creates the remover of copies: those without links, the least recently used first. */
function createBound(files: string, maxBytes: number) {
  const turn = createMutex();
  /** Counted after the first fetch: a process that fetches nothing reads no folder. */
  let [usedBytes, uncountedBytes] = [0, 0];
  let isCounted = false;

  async function trim(limit: number): Promise<void> {
    const names = await findFiles(files);
    const copies = await Promise.all(
      names.map(async (name) => {
        const place = path.join(files, name);
        const found = await unlessMissing(stat(place), undefined);
        return found === undefined ? [] : [{ place, size: found.size, links: found.nlink, usedMs: found.atimeMs }];
      }),
    );
    const known = copies.flat();
    isCounted = true;
    usedBytes = known.reduce((sum, { size }) => sum + size, 0);
    uncountedBytes = 0;
    const idle = known.filter(({ links }) => links === 1).toSorted((a, b) => a.usedMs - b.usedMs);
    for (const { place, size } of idle) {
      if (usedBytes <= limit) return;
      await removeFile(place);
      usedBytes -= size;
    }
  }

  return {
    add(bytes: number): void {
      usedBytes += bytes;
      uncountedBytes += bytes;
    },
    keep: (limit = maxBytes): Promise<void> =>
      turn.run(async () => {
        const isDue = isCounted ? uncountedBytes > maxBytes / countedPart : uncountedBytes > 0;
        if (isDue || usedBytes > limit) await trim(limit);
      }),
    trim: (limit = maxBytes): Promise<void> => turn.run(() => trim(limit)),
  };
}

/** Links a copy, if there is a sound one. Returns whether there is. */
async function tryLink(copy: string, pin: string, file: HashedFile): Promise<boolean> {
  try {
    await inFolder(pin, () => link(copy, pin));
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return false;
    throw error;
  }
  const { mtimeMs, size } = await stat(pin);
  const verifiedS = verifiedTimeOf(file.sha256);
  const isVerified = size === (file.sizeBytes ?? size) && mtimeMs === verifiedS * 1000;
  if (isVerified || (await isSound(pin, file))) {
    await utimes(pin, Date.now() / 1000, verifiedS);
    return true;
  }
  await removeFile(pin);
  return false;
}

const damagedFile = ({ absolutePath }: StoredFile, fault: string): AppError =>
  new AppError('file_damaged', `${absolutePath} ${fault}`, { hint: 'Restore it from a backup.' });

/** Fetches an object into a new file and verifies it. Errors: `file_damaged`, those of `fetch`. */
async function fetchSound(
  place: string,
  file: StoredFile,
  fetch: () => Promise<boolean>,
  onDiskFull: () => Promise<void>,
): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      if (!(await fetch())) throw damagedFile(file, 'is missing');
      if (await isSound(place, file)) return;
      if (attempt === attempts) throw damagedFile(file, 'failed checksum verification');
    } catch (error) {
      await removeFile(place);
      if (!isDiskFull(error) || attempt === attempts) throw error;
      await onDiskFull();
    }
    await removeFile(place);
  }
}

interface Pin {
  readonly path: string;
  readonly release: () => Promise<void>;
}

type Bound = ReturnType<typeof createBound>;

/** Creates the links of one process in its folder. */
function createPins(dir: string, files: string, bound: Bound, fetch: LocalCacheOptions['fetch']) {
  const turns = createKeyedSemaphore();
  const uses = new Map<string, number>();

  async function fetchFile(key: string, file: StoredFile): Promise<string> {
    const place = path.join(dir, `${randomUUID()}.tmp`);
    await fetchSound(
      place,
      file,
      () => fetch(key, place),
      () => bound.trim(0),
    );
    return place;
  }

  async function fetchCopy(key: string, copy: string, pin: string, file: HashedFile): Promise<void> {
    const fetched = await fetchFile(key, file);
    await syncFile(fetched);
    await utimes(fetched, Date.now() / 1000, verifiedTimeOf(file.sha256));
    // Linked before it is a copy: no process can remove it in between.
    await inFolder(pin, () => link(fetched, pin));
    await inFolder(copy, () => rename(fetched, copy));
    bound.add((await stat(pin)).size);
    await bound.keep();
  }

  return {
    async pinHashed(key: string, file: HashedFile): Promise<Pin> {
      // An object that was replaced has another hash: both states may be in use.
      const pin = path.join(dir, file.sha256.slice(0, 16), key);
      const copy = path.join(files, key);
      const used = (): number => uses.get(pin) ?? 0;
      await turns.run(key, async () => {
        if (used() === 0 && !(await tryLink(copy, pin, file))) await fetchCopy(key, copy, pin, file);
        uses.set(pin, used() + 1);
      });
      const release = async (): Promise<void> => {
        await turns.run(key, async () => {
          uses.set(pin, used() - 1);
          if (used() > 0) return;
          uses.delete(pin);
          await removeFile(pin);
        });
        await bound.keep();
      };
      return { path: pin, release };
    },
    /** Fetches a file whose hash is unknown, for one use. */
    async pinOther(key: string, file: StoredFile): Promise<Pin> {
      const fetched = await fetchFile(key, file);
      const ownFolder = path.join(dir, randomUUID());
      const pin = path.join(ownFolder, key);
      await inFolder(pin, () => rename(fetched, pin));
      return { path: pin, release: () => removeTree(ownFolder) };
    },
  };
}

/** Opens a cache, and removes what killed processes left. Errors: `locked`, the system's. */
export async function openLocalCache({ folder, maxBytes, keyOf, fetch }: LocalCacheOptions): Promise<LocalCache> {
  const files = path.join(folder, 'files');
  await makeFolder(files);
  const scratch = await openScratchDir(path.join(folder, 'uses'), 'cache');
  const bound = createBound(files, maxBytes);
  const pinned = createPins(scratch.dir, files, bound, fetch);
  return {
    folder: scratch.dir,
    keys: () => findFiles(files),
    async drop(keys) {
      for (const key of keys) await removeFile(path.join(files, key));
    },
    async use(wanted, work) {
      const pins: (readonly [number, Pin])[] = [];
      try {
        await inParallel(wanted.entries(), filesAtOnce, async ([place, file]) => {
          const { sha256 } = file;
          const key = keyOf(file);
          const pin = sha256 === undefined ? pinned.pinOther(key, file) : pinned.pinHashed(key, { ...file, sha256 });
          pins.push([place, await pin]);
        });
        return await work(pins.toSorted(([a], [b]) => a - b).map(([, pin]) => pin.path));
      } finally {
        for (const [, { release }] of pins) await release();
      }
    },
    close: () => scratch.close(),
  };
}
