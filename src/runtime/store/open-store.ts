import path from 'node:path';
import { hashFile } from '../files/file-checks.ts';
import { createFolderStore, type FolderStoreOptions } from './folder-store.ts';
import type { ObjectStore } from './object-store.ts';

/** Opens the store at an address. The only kind of address is the path of a folder. */
export function openStore(address: string, options: FolderStoreOptions = {}): ObjectStore {
  return createFolderStore(address, options);
}

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

export const localFiles: LocalFiles = {
  use: async (files, work) => await work(files.map(({ absolutePath }) => absolutePath)),
};

/** Returns the size of a stored file, bytes; undefined if it is missing. */
export async function findStoredSize({ absolutePath }: Pick<StoredFile, 'absolutePath'>): Promise<number | undefined> {
  return await openStore(path.dirname(absolutePath)).findSize(path.basename(absolutePath));
}

/** Returns the SHA-256 of a stored file as it is, hex. */
export async function hashStored({ absolutePath }: Pick<StoredFile, 'absolutePath'>): Promise<string> {
  return await localFiles.use([{ absolutePath }], ([local = '']) => hashFile(local));
}
