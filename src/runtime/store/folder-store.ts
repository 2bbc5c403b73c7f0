import { AsyncLocalStorage } from 'node:async_hooks';
import { watch, type FSWatcher } from 'node:fs';
import { open, rename } from 'node:fs/promises';
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
} from '../files/durable-file.ts';
import { findStamp, stampOf } from '../files/file-checks.ts';
import { findFiles, findNames } from '../files/folder-names.ts';
import { waitForLock } from '../files/lock.ts';
import type { ObjectStore, StoredObject, Tag } from './object-store.ts';

/** A backup holds a store while it copies it. */
const lockWaitMs = 30_000;
/** The turns of this process: of many that ask for a lock again and again, some would never get it. */
const turns = createKeyedSemaphore();
/** The folders whose turn the running work has: a change within it needs no other. */
const held = new AsyncLocalStorage<readonly string[]>();

/** Runs one piece of work on a folder at a time, whichever process runs it; creates the folder. Error: `locked`. */
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

/** Has the kernel tell of changes in a folder, if it does: it watches only so many for a user. */
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
    // Opened once: the tag is that of the bytes, also if the file is replaced meanwhile.
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

/** Writes into a folder that is there as a rule: making sure of it first costs a sync of each of its parents. */
async function inItsFolder<T>(file: string, change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
    await ensureFolder(path.dirname(file));
    return await change();
  }
}

async function writeObject(file: string, bytes: Uint8Array): Promise<Tag> {
  await inItsFolder(file, () => writeFileDurably(file, bytes));
  return findTag(file) ?? '#';
}

/**
 * Creates a store over a folder, which is made with its first object. Objects are files of mode 0600. What compares
 * before it changes does so under the lock of `lockFolder`.
 */
export function createFolderStore(folder: string, lockFolder = folder): ObjectStore {
  const fileOf = (key: string): string => path.join(folder, key);

  return {
    nameOf: fileOf,
    create: (key, bytes) => inItsFolder(fileOf(key), () => createExclusive(fileOf(key), bytes)),
    async replace(key, bytes, ifTag) {
      const file = fileOf(key);
      if (ifTag === 'any') return await writeObject(file, bytes);
      return await inTurn(lockFolder, async () =>
        findTag(file) === ifTag ? await writeObject(file, bytes) : 'conflict',
      );
    },
    async upload(key, localFile) {
      const file = fileOf(key);
      await syncFile(localFile);
      await inItsFolder(file, () => rename(localFile, file));
      await syncFolder(path.dirname(file));
    },
    get: (key) => readObject(fileOf(key)),
    async getIfChanged(key, tag) {
      const file = fileOf(key);
      return findTag(file) === tag ? 'unchanged' : await readObject(file);
    },
    onHint(keys, listener) {
      const folders = new Set(keys.map((key) => path.dirname(fileOf(key))));
      const watchers = [...folders].map((parent) => watchFolder(parent, listener));
      return () => watchers.forEach((watcher) => watcher?.close());
    },
    async list(prefix) {
      const names = await findFiles(path.join(folder, prefix));
      return names
        .map((name) => prefix + name.split(path.sep).join('/'))
        .filter((key) => !key.endsWith('.tmp') && !path.basename(key).startsWith('.'));
    },
    async remove(keys) {
      if (!keys.some((key) => findTag(fileOf(key)) !== undefined)) return;
      await inTurn(lockFolder, async () => {
        for (const key of keys) await removeFile(fileOf(key));
        await syncFolders(keys.map((key) => path.dirname(fileOf(key))));
      });
    },
    async sweep(prefix) {
      const parent = path.join(folder, prefix);
      for (const name of await findNames(parent)) if (name.endsWith('.tmp')) await removeFile(path.join(parent, name));
    },
    hold: (name, work) => inTurn(name === '' ? lockFolder : fileOf(name), work),
  };
}
