import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { AsyncLocalStorage } from 'node:async_hooks';
import { watch, type FSWatcher } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { createKeyedSemaphore, type KeyedSemaphore } from '../async/semaphore.ts';
import { isSystemError, unlessMissing } from '../errors.ts';
import { openAppendedFile } from '../files/appended-file.ts';
import {
  createExclusive,
  ensureFolder,
  removeEmptyFolder,
  removeFile,
  replaceFile,
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
import { findFiles, findFolders, findNames } from '../files/folder-names.ts';
import { waitForLock } from '../files/lock.ts';
import { makeFolder } from '../files/make-folder.ts';
import { openForReading, type FileHandle } from '../files/open-file.ts';
import type { ObjectStore, OpenObject, StoredObject, Tag } from './object-store.ts';

/** A backup holds a store while it copies it. */
const lockWaitMs = 30_000;
/** Changes of a folder within this time may leave the same time of the last change, ms. */
const sameTimeMs = 1000;
const blockBytes = 1024 * 1024;
/** Queues the work of this process: polling for a lock would starve some. */
const turns = createKeyedSemaphore();
/** Folders that the current work has locked: nested changes need no other lock. */
const held = new AsyncLocalStorage<readonly string[]>();

/**
 * Runs one piece of work on a folder at a time, across processes, or by the owner's own turns (`owned`). Creates the
 * folder. Error: `locked`.
 */
async function inTurn<T>(folder: string, work: () => Promise<T>, owned?: KeyedSemaphore): Promise<T> {
  const outer = held.getStore() ?? [];
  if (outer.includes(folder)) return await work();
  return await (owned ?? turns).run(folder, async () => {
    if (owned !== undefined) return await held.run([...outer, folder], work);
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

async function readAt(handle: FileHandle, from: number, length: number): Promise<Uint8Array> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, from);
  return buffer.subarray(0, bytesRead);
}

async function* readBlocks(handle: FileHandle): AsyncGenerator<Uint8Array> {
  const block = Buffer.allocUnsafe(blockBytes);
  for (let position = 0; ;) {
    const { bytesRead } = await handle.read(block, 0, blockBytes, position);
    if (bytesRead === 0) return;
    yield block.subarray(0, bytesRead);
    position += bytesRead;
  }
}

async function openObject(file: string): Promise<OpenObject | undefined> {
  const handle = await unlessMissing(openForReading(file, true), undefined, 'ELOOP');
  if (handle === undefined) return undefined;
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
    return {
      sizeBytes: Number(size),
      version: [dev, ino, size, mtimeNs, ctimeNs].join(':'),
      read: (from, length) => readAt(handle, from, length),
      blocks: () => readBlocks(handle),
      stream: ({ first, last } = { first: 0, last: Infinity }) => handle.createReadStream({ start: first, end: last }),
      close: () => handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Writes the bytes after the first `from` of a file durably, in place. */
async function appendDurably(file: string, bytes: Uint8Array, from: number, mode: number): Promise<void> {
  const opened = await openAppendedFile(file, from, mode);
  try {
    await opened.append(bytes);
    await opened.sync();
  } finally {
    await opened.close();
  }
  // A power failure could lose a new file.
  await syncFolder(path.dirname(file));
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

/** Lists a folder and its parents below `root`, the deepest first. */
const listFolders = (root: string, folder: string): string[] =>
  folder === root ? [] : [folder, ...listFolders(root, path.dirname(folder))];

/** Writes into a folder below `root`, and creates it if only the root exists. */
async function inFolderBelow<T>(root: string, file: string, change: () => Promise<T>): Promise<T> {
  try {
    return await change();
  } catch (error) {
    if (!isSystemError(error, 'ENOENT') || findChangeMs(root) === undefined) throw error;
    const parents = listFolders(root, path.dirname(file));
    await makeFolder(path.dirname(file));
    // All: a killed process may have created some and not synced them.
    await syncFolders([root, ...parents.slice(1)]);
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
  /**
   * Whether this process has locked the folder: changes take no lock, and a lost folder is not created again. Folders
   * below it are created and removed with their objects.
   */
  readonly isOwned?: boolean;
}

const localPathOf = (file: string): string =>
  path.join(path.dirname(file), `.${path.basename(file)}.${randomUUID()}.tmp`);

async function removeFiles(files: readonly string[]): Promise<void> {
  for (const file of files) await removeFile(file);
  await syncFolders(files.map((file) => path.dirname(file)));
}

/** Removes files and the folders below `root` that they leave empty. A repeated removal is durable too. */
async function removeWithFolders(root: string, files: readonly string[]): Promise<void> {
  for (const file of files) await removeFile(file);
  for (const folder of new Set(files.map((file) => path.dirname(file)))) {
    await unlessMissing(syncFolder(folder), undefined);
    for (const parent of listFolders(root, folder)) await removeEmptyFolder(parent);
  }
}

function createReads(folder: string, fileOf: (key: string) => string) {
  return {
    isShared: false,
    nameOf: fileOf,
    get: (key) => readObject(fileOf(key)),
    async getIfChanged(key, tag) {
      const file = fileOf(key);
      return findTag(file) === tag ? 'unchanged' : await readObject(file);
    },
    open: (key) => openObject(fileOf(key)),
    findSize: (key) => findSize(fileOf(key)),
    findTag: async (key) => findTag(fileOf(key)),
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
    async listUnfinished(prefix) {
      const names = await findNames(path.join(folder, prefix));
      return names.filter((name) => name.endsWith('.tmp')).map((name) => prefix + name);
    },
    folders: (prefix) => findFolders(path.join(folder, prefix)),
    async findListTag(prefix) {
      const changedMs = findChangeMs(path.join(folder, prefix));
      return changedMs === undefined || Date.now() - changedMs <= sameTimeMs ? undefined : `#${changedMs}`;
    },
  } satisfies Partial<ObjectStore>;
}

function createMoves(fileOf: (key: string) => string, writing: typeof inItsFolder, folderMode: number) {
  return {
    localPath: (key) => localPathOf(fileOf(key)),
    async upload(key, localFile, { isSynced = false } = {}) {
      const file = fileOf(key);
      if (!isSynced) await syncFile(localFile);
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
    async move(key, to) {
      const [file, target] = [fileOf(key), fileOf(to)];
      const rename = (): Promise<void> => moveFile(file, target);
      // With the object, its store exists: only the folder of the new key may be missing.
      await rename().catch(async (error: unknown) => {
        if (findTag(file) === undefined || !isSystemError(error, 'ENOENT')) throw error;
        await ensureFolder(path.dirname(target), folderMode);
        await rename();
      });
    },
    sync: (keys) => syncFolders(keys.map((key) => path.dirname(fileOf(key)))),
  } satisfies Partial<ObjectStore>;
}

interface UpkeepOptions extends Required<Pick<FolderStoreOptions, 'lockFolder' | 'isGrowing'>> {
  readonly owned: KeyedSemaphore | undefined;
}

type Upkeep = 'remove' | 'sweep' | 'hold' | 'keepsVersions' | 'probe';

function createUpkeep(
  folder: string,
  fileOf: (key: string) => string,
  { lockFolder, isGrowing, owned }: UpkeepOptions,
): Pick<ObjectStore, Upkeep> {
  return {
    async remove(keys) {
      const files = keys.map(fileOf);
      if (owned !== undefined) return await removeWithFolders(path.dirname(fileOf('object')), files);
      const present = files.filter((file) => findTag(file) !== undefined);
      if (present.length === 0) return;
      await (isGrowing ? removeFiles(present) : inTurn(lockFolder, () => removeFiles(present)));
    },
    async sweep(prefix) {
      const parent = path.join(folder, prefix);
      const names = await findNames(parent);
      const left = names.filter((name) => name.endsWith('.tmp'));
      for (const name of left) await removeFile(path.join(parent, name));
      if (owned !== undefined && prefix !== '' && left.length === names.length) await removeEmptyFolder(parent);
    },
    hold: (name, work) => inTurn(name === '' ? lockFolder : fileOf(name), work, owned),
    keepsVersions: async () => false,
    probe: () => assertHardLinks(folder),
  };
}

/** Creates a store over a folder, which is created with its first object. */
export function createFolderStore(
  folder: string,
  {
    lockFolder = folder,
    mode = 0o600,
    folderMode = 0o700,
    isGrowing = false,
    isOwned = false,
  }: FolderStoreOptions = {},
): ObjectStore {
  const fileOf = (key: string): string => {
    assert(!key.split('/').includes('..'), 'a key names an object of its store');
    return path.join(folder, key);
  };
  const root = path.dirname(fileOf('object'));
  const owned = isOwned ? createKeyedSemaphore() : undefined;
  const writing: typeof inItsFolder = async (file, change) => {
    if (isOwned) return await inFolderBelow(root, file, change);
    return await (isGrowing ? change() : inItsFolder(file, change));
  };

  async function writeObject(file: string, bytes: Uint8Array): Promise<Tag> {
    await writing(file, () => writeFileDurably(file, bytes, mode));
    return findTag(file) ?? '#';
  }

  return {
    folder,
    ...createReads(folder, fileOf),
    ...createMoves(fileOf, writing, folderMode),
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
      const compareAndWrite = async (): Promise<Tag | 'conflict'> =>
        findTag(file) === ifTag ? await writeObject(file, bytes) : 'conflict';
      return await inTurn(isOwned ? file : lockFolder, compareAndWrite, owned);
    },
    async append(key, bytes, from, ifTag) {
      const file = fileOf(key);
      if ((findTag(file) ?? 'absent') !== ifTag) return 'conflict';
      await writing(file, () => appendDurably(file, bytes, from, mode));
      return findTag(file) ?? '#';
    },
    async note(key, bytes) {
      const file = fileOf(key);
      await writing(file, () => replaceFile(file, bytes, mode));
    },
    ...createUpkeep(folder, fileOf, { lockFolder, isGrowing, owned }),
  };
}
