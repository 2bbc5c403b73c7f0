import { randomUUID } from 'node:crypto';
import { AsyncLocalStorage } from 'node:async_hooks';
import { watch, type FSWatcher } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { createKeyedSemaphore } from '../async/semaphore.ts';
import { isSystemError } from '../errors.ts';
import {
  createExclusive,
  ensureFolder,
  removeFile,
  syncFile,
  syncFolder,
  syncFolders,
  writeFileDurably,
  writeNewFile,
  ensureFolders,
  moveFile,
  linkFile,
} from '../files/durable-file.ts';
import { findStamp, stampOf, findSize, findChangeMs, assertHardLinks } from '../files/file-checks.ts';
import { findFiles, findNames } from '../files/folder-names.ts';
import { waitForLock } from '../files/lock.ts';
import type { ObjectStore, StoredObject, Tag } from './object-store.ts';

/** A backup holds a store while it copies it. */
const lockWaitMs = 30_000;
/** Changes of a folder within this time may leave the same time of the last change, ms. */
const sameTimeMs = 1000;
/** Queues the work of this process: polling for a lock would starve some. */
const turns = createKeyedSemaphore();
/** Folders that the current work has locked: nested changes need no other lock. */
const held = new AsyncLocalStorage<readonly string[]>();

/** Runs one piece of work on a folder at a time, across processes. Creates the folder. Error: `locked`. */
async function inTurn<T>(folder: string, work: () => Promise<T>): Promise<T> {
  const outer = held.getStore() ?? [];
  if (outer.includes(folder)) return await work();
  return await turns.run(folder, async () => {
    await ensureFolder(folder);
    const lock = await waitForLock(folder, 'a change of records', lockWaitMs);
    try {
      return await held.run([...outer, folder], work);
    } finally {
      lock.release();
    }
  });
}

const findTag = (file: string): Tag | undefined => {
  const stamp = findStamp(file);
  return stamp === undefined ? undefined : `#${stamp}`;
};

/** Watches a folder if the kernel can: it has a limit per user. */
function watchFolder(folder: string, listener: () => void): FSWatcher | undefined {
  try {
    const watcher = watch(folder, { persistent: false }, listener);
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}

async function readObject(file: string): Promise<StoredObject | undefined> {
  try {
    // One open: the tag belongs to the bytes even if the file is replaced concurrently.
    const handle = await open(file);
    try {
      return { tag: `#${stampOf(await handle.stat({ bigint: true }))}`, bytes: await handle.readFile() };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw error;
  }
}

/** Writes into a folder that usually exists: ensuring it first would sync each of its parents. */
async function inItsFolder<T>(file: string, change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    await ensureFolder(path.dirname(file));
    return await change();
  }
}

export interface FolderStoreOptions {
  /** The folder that comparing changes lock; the store's own by default. */
  readonly lockFolder?: string;
  readonly mode?: number;
  readonly folderMode?: number;
  /** Whether objects change without comparison: removals take no lock, and a lost folder is not created again. */
  readonly isGrowing?: boolean;
}

const localPathOf = (file: string): string =>
  path.join(path.dirname(file), `.${path.basename(file)}.${randomUUID()}.tmp`);

async function removeFiles(files: readonly string[]): Promise<void> {
  for (const file of files) await removeFile(file);
  await syncFolders(files.map((file) => path.dirname(file)));
}

type Reads = 'nameOf' | 'get' | 'getIfChanged' | 'findSize' | 'onHint' | 'list' | 'findListTag';

function createReads(folder: string, fileOf: (key: string) => string): Pick<ObjectStore, Reads> {
  return {
    nameOf: fileOf,
    get: (key) => readObject(fileOf(key)),
    async getIfChanged(key, tag) {
      const file = fileOf(key);
      return findTag(file) === tag ? 'unchanged' : await readObject(file);
    },
    findSize: (key) => findSize(fileOf(key)),
    onHint(keys, listener) {
      const folders = new Set(keys.map((key) => path.dirname(fileOf(key))));
      const watchers = [...folders].map((parent) => watchFolder(parent, listener));
      return () => watchers.forEach((watcher) => watcher?.close());
    },
    async list(prefix) {
      const names = await findFiles(path.join(folder, prefix));
      return names
        .map((name) => prefix + name.split(path.sep).join('/'))
        .filter((key) => !key.endsWith('.tmp') && !key.startsWith('.', key.lastIndexOf('/') + 1));
    },
    async findListTag(prefix) {
      const changedMs = findChangeMs(path.join(folder, prefix));
      return changedMs === undefined || Date.now() - changedMs <= sameTimeMs ? undefined : `#${changedMs}`;
    },
  };
}

/** Creates a store over a folder, which is created with its first object. */
export function createFolderStore(
  folder: string,
  { lockFolder = folder, mode = 0o600, folderMode = 0o700, isGrowing = false }: FolderStoreOptions = {},
): ObjectStore {
  const fileOf = (key: string): string => path.join(folder, key);
  const writing: typeof inItsFolder = isGrowing ? async (_file, change) => await change() : inItsFolder;

  async function writeObject(file: string, bytes: Uint8Array): Promise<Tag> {
    await writing(file, () => writeFileDurably(file, bytes, mode));
    return findTag(file) ?? '#';
  }

  return {
    ...createReads(folder, fileOf),
    isShared: false,
    async create(key, bytes, { onWritten, onCreated } = {}) {
      const file = fileOf(key);
      const steps = {
        mode,
        temporary: localPathOf(file),
        ...(onWritten === undefined ? {} : { onWritten }),
        ...(onCreated === undefined ? {} : { onLinked: onCreated }),
      };
      return await writing(file, () => createExclusive(file, bytes, steps));
    },
    async add(key, bytes) {
      const file = fileOf(key);
      await writing(file, () => writeNewFile(file, bytes, mode));
      await syncFolder(path.dirname(file));
    },
    async replace(key, bytes, ifTag) {
      const file = fileOf(key);
      if (ifTag === 'any') return await writeObject(file, bytes);
      return await inTurn(lockFolder, async () =>
        findTag(file) === ifTag ? await writeObject(file, bytes) : 'conflict',
      );
    },
    localPath: (key) => localPathOf(fileOf(key)),
    async upload(key, localFile) {
      const file = fileOf(key);
      await syncFile(localFile);
      await writing(file, () => moveFile(localFile, file));
      await syncFolder(path.dirname(file));
    },
    async publish(objects, onEach) {
      const folders = objects.map(({ key }) => path.dirname(fileOf(key)));
      await ensureFolders(folders, folderMode);
      for (const { key, file } of objects) {
        await linkFile(file, fileOf(key));
        await onEach?.();
      }
      await syncFolders(folders);
    },
    move: (key, to) => moveFile(fileOf(key), fileOf(to)),
    async remove(keys) {
      const files = keys.map(fileOf);
      if (!files.some((file) => findTag(file) !== undefined)) return;
      await (isGrowing ? removeFiles(files) : inTurn(lockFolder, () => removeFiles(files)));
    },
    async sweep(prefix) {
      const parent = path.join(folder, prefix);
      for (const name of await findNames(parent)) if (name.endsWith('.tmp')) await removeFile(path.join(parent, name));
    },
    hold: (name, work) => inTurn(name === '' ? lockFolder : fileOf(name), work),
    probe: () => assertHardLinks(folder),
  };
}
