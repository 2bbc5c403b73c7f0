import { createFolderStore, type FolderStoreOptions } from './folder-store.ts';
import type { ObjectStore } from './object-store.ts';
/** Opens the store at an address. The only kind of address is a folder's path; others are to be distinguished here. */
export function openStore(address: string, options: FolderStoreOptions = {}): ObjectStore {
  return createFolderStore(address, options);
}
