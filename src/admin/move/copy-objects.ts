import { createHash, randomUUID } from 'node:crypto';
import path from 'node:path';
import { inParallel } from '../../runtime/async/in-parallel.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { AppError, isAppError, isSystemError } from '../../runtime/errors.ts';
import { removeFile } from '../../runtime/files/durable-file.ts';
import type { ObjectStore } from '../../runtime/store/object-store.ts';
import { writeStored } from '../backup/backup-manifest.ts';
import type { MovedObject } from './moved-objects.ts';

export interface CopyOptions {
  /** A local folder for files on their way from a bucket or to a folder. */
  readonly scratchDir: string;
  readonly signal: AbortSignal;
  readonly crashPoint: CrashPoint;
  /** Called for each object that is in the target, with its size. */
  readonly onCopied: (bytes: number) => void;
}

/** Objects that are copied at a time: files, which are read in large parts, and others. */
const width = { files: 4, others: 16 } as const;

const damaged = (name: string, fault: string): AppError =>
  new AppError('file_damaged', `${name} ${fault}`, {
    hint: "Run 'tributary lake check', and restore what it lists; 'tributary lake repair' removes missing files from the log.",
  });

/** Returns the SHA-256 of an object, hex. Error: `file_damaged` if it is missing. */
async function hashObject(store: ObjectStore, key: string): Promise<string> {
  const object = await store.open(key);
  if (object === undefined) throw damaged(store.nameOf(key), 'is missing');
  try {
    const hash = createHash('sha256');
    for await (const block of object.blocks()) hash.update(block);
    return hash.digest('hex');
  } finally {
    await object.close();
  }
}

/** Creates an object from a local file. Error: `conflict` if another process has written it. */
async function publishFile(to: ObjectStore, key: string, file: string, sha256: string): Promise<void> {
  try {
    await to.publish([{ key, file, sha256 }]);
  } catch (error) {
    if (!isSystemError(error, 'EEXIST')) throw error;
    throw new AppError('conflict', `another process has written ${to.nameOf(key)}`, { hint: 'Repeat the command.' });
  }
}

/** Reads an object into a local file, and brings that into another store. Returns its hash. */
async function fetchObject(
  from: ObjectStore,
  to: ObjectStore,
  { key, sha256 }: MovedObject,
  scratchDir: string,
): Promise<string> {
  const object = await from.open(key);
  if (object === undefined) throw damaged(from.nameOf(key), 'is missing');
  const local = path.join(scratchDir, randomUUID());
  try {
    const stored = await writeStored(object.blocks(), local);
    if (sha256 !== undefined && stored.sha256 !== sha256)
      throw damaged(from.nameOf(key), 'is damaged: checksum mismatch');
    if (to.folder === undefined) await publishFile(to, key, local, stored.sha256);
    else await to.upload(key, local, { isSynced: true });
    return stored.sha256;
  } finally {
    await object.close();
    await removeFile(local);
  }
}

/** Sends the file of an object in a folder. Returns its hash. */
async function sendObject(from: ObjectStore, to: ObjectStore, { key, sha256 }: MovedObject): Promise<string> {
  const hash = sha256 ?? (await hashObject(from, key));
  try {
    await publishFile(to, key, from.nameOf(key), hash);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) throw damaged(from.nameOf(key), 'is missing');
    throw error;
  }
  return hash;
}

/**
 * Opens the copy of the objects of one store to another. `list` lists the keys of a store that belong to the copy.
 */
export async function openCopy(
  from: ObjectStore,
  to: ObjectStore,
  list: (store: ObjectStore) => Promise<readonly string[]>,
  { scratchDir, signal, crashPoint, onCopied }: CopyOptions,
) {
  const present = new Set(await list(to));
  const named = new Set<string>();

  /** Reports whether an earlier run has copied an object, and it has not changed since. */
  async function isCopied({ key, sha256, isImmutable }: MovedObject, sizeBytes: number): Promise<boolean> {
    if (!present.has(key) || (await to.findSize(key)) !== sizeBytes) return false;
    return isImmutable === true || (await hashObject(to, key)) === (sha256 ?? (await hashObject(from, key)));
  }

  async function copyObject(object: MovedObject): Promise<void> {
    if (signal.aborted)
      throw new AppError('stopping', 'the move was stopped', { hint: 'Repeat the command; it continues.' });
    const { key, sha256 } = object;
    const sizeBytes = object.sizeBytes ?? (await from.findSize(key));
    if (sizeBytes === undefined) throw damaged(from.nameOf(key), 'is missing');
    if (!(await isCopied(object, sizeBytes))) {
      if (present.has(key)) await to.remove([key]);
      const isFile = from.folder !== undefined && to.folder === undefined;
      const hash = await (isFile ? sendObject(from, to, object) : fetchObject(from, to, object, scratchDir));
      if (sha256 === undefined && (await hashObject(to, key)) !== hash)
        throw damaged(to.nameOf(key), 'has other bytes than its source');
    }
    onCopied(sizeBytes);
    await crashPoint('object-copied');
  }

  return {
    /** Copies objects, started in their order. `onDamaged`: what is damaged is left out. Error: `file_damaged`. */
    async copy(objects: readonly MovedObject[], onDamaged?: (error: AppError) => void): Promise<void> {
      for (const { key } of objects) named.add(key);
      const isOfFiles = objects.some(({ sha256 }) => sha256 !== undefined);
      await inParallel(objects, isOfFiles ? width.files : width.others, async (object) => {
        try {
          await copyObject(object);
        } catch (error) {
          if (onDamaged === undefined || !isAppError(error, 'file_damaged')) throw error;
          onDamaged(error);
        }
      });
    },
    /** Removes what an earlier run has copied and the source does not have any more. */
    async removeOthers(): Promise<void> {
      await to.remove((await list(to)).filter((key) => !named.has(key)));
    },
  };
}
