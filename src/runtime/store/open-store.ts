import path from 'node:path';
import { hashFile } from '../files/file-checks.ts';
import { createFolderStore, type FolderStoreOptions } from './folder-store.ts';
import type { Leases } from './leases.ts';
import type { ObjectStore } from './object-store.ts';

/** An immutable stored file, as the log names it. */
export interface StoredFile {
  readonly absolutePath: string;
  /** Undefined if unknown, as is the hash (hex). */
  readonly sizeBytes?: number | undefined;
  readonly sha256?: string | undefined;
}

/** Provides local paths of stored files for SQL. A folder has them; another store has to fetch and verify copies. */
export interface LocalFiles {
  /** Runs work with the paths of some files, in their order. The paths are valid until it ends. */
  use<T>(files: readonly StoredFile[], work: (paths: readonly string[]) => Promise<T>): Promise<T>;
}

/** A store in which the objects below a folder are kept. */
export interface Connection {
  /** Absolute path. It has local work files only. */
  readonly folder: string;
  /** Opens the objects below the folder by a relative path, empty or with `/`. Undefined: they are files there. */
  readonly open: ((below: string) => ObjectStore) | undefined;
  readonly files: LocalFiles;
  /** Folder of the paths that `files` passes. */
  readonly filesFolder: string;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** The options and variables with which a child process connects the same folders. */
export interface ConnectionOfChild {
  /** Options of `connectS3Folders`, as JSON; undefined if no folder is connected. */
  readonly options?: string;
  /** Variables with the credentials. */
  readonly environment: Environment;
}

/** Deepest folders first. Set once by a process, before it opens a store. */
let connections: readonly Connection[] = [];
let ofChild: ConnectionOfChild = { environment: {} };
let leases: Leases | undefined;

/**
 * Keeps the objects below some folders in other stores, for the whole process, until the next call. `shared`: the
 * leases among the hosts that use those stores.
 */
export function connectFolders(
  connected: readonly Connection[],
  child: ConnectionOfChild = { environment: {} },
  shared?: Leases,
): void {
  connections = connected.toSorted((a, b) => b.folder.length - a.folder.length);
  ofChild = child;
  leases = shared;
}

export const connectionOfChild = (): ConnectionOfChild => ofChild;

/** Returns the leases among the hosts that share the objects below a folder; undefined if only this one has them. */
export function findLeases(folder: string): Leases | undefined {
  return openStore(folder).isShared ? leases : undefined;
}

type Connected = Omit<Connection, 'open'> & { readonly store: () => ObjectStore };

/** Finds the connection of a path. */
function findConnection(place: string): Connected | undefined {
  if (connections.length === 0) return undefined;
  const absolute = path.resolve(place);
  const found = connections.find(({ folder }) => absolute === folder || absolute.startsWith(folder + path.sep));
  if (found?.open === undefined) return undefined;
  const { open, ...others } = found;
  return { ...others, store: () => open(path.relative(found.folder, absolute).replaceAll(path.sep, '/')) };
}

/** Opens the objects below a folder, which are files there unless the folder is connected to another store. */
export function openStore(folder: string, options: FolderStoreOptions = {}): ObjectStore {
  return findConnection(folder)?.store() ?? createFolderStore(folder, options);
}

export const localFiles: LocalFiles = {
  async use(files, work) {
    const placed = files.map(({ absolutePath }) => findConnection(absolutePath)?.files);
    const [first] = placed;
    if (placed.every((one) => one === undefined)) return await work(files.map(({ absolutePath }) => absolutePath));
    if (first !== undefined && placed.every((one) => one === first)) return await first.use(files, work);
    throw new Error('the files of one use are in several stores');
  },
};

/** Lists the local folders that have the files of a folder during their use: for an engine that reads nothing else. */
export function foldersOfFiles(folder: string): readonly string[] {
  const connection = findConnection(folder);
  return connection === undefined ? [folder] : [folder, connection.filesFolder];
}

/** Returns the size of a stored file, bytes; undefined if it is missing. */
export async function findStoredSize({ absolutePath }: Pick<StoredFile, 'absolutePath'>): Promise<number | undefined> {
  return await openStore(path.dirname(absolutePath)).findSize(path.basename(absolutePath));
}

/** Returns the SHA-256 of a stored file as it is, hex. */
export async function hashStored({ absolutePath }: Pick<StoredFile, 'absolutePath'>): Promise<string> {
  return await localFiles.use([{ absolutePath }], ([local = '']) => hashFile(local));
}
