import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { isSystemError } from '../errors.ts';
import { folderIdOf } from './folder-id.ts';

/** Handles of open files, and synchronous access to small ones. Errors: the system's. */
export type { FileHandle } from 'node:fs/promises';

/** Opens an existing file for reading. With `isOwn`, a symbolic link is refused (ELOOP). */
export async function openForReading(file: string, isOwn = false): Promise<FileHandle> {
  return await open(file, isOwn ? constants.O_RDONLY | constants.O_NOFOLLOW : 'r');
}

/** Opens a new file for writing, mode 0600. Error: EEXIST. */
export async function openNewFile(file: string): Promise<FileHandle> {
  return await open(file, 'wx', 0o600);
}

/** Opens a new file for writing, or truncates one of its name, mode 0600. */
export async function openEmptyFile(file: string): Promise<FileHandle> {
  return await open(file, 'w', 0o600);
}

export async function openForAppending(file: string): Promise<FileHandle> {
  return await open(file, constants.O_WRONLY | constants.O_APPEND);
}

export function getTextSync(file: string): string {
  return readFileSync(file, 'utf8');
}

export function getLinkSync(link: string): string {
  return readlinkSync(link);
}

export function removeFileSync(file: string): void {
  rmSync(file, { force: true });
}

/** Writes a text that contains the id of the file, not durably: `render` gets the id. */
export function writeWithId(file: string, render: (id: string) => string): void {
  const fd = openSync(`${file}.tmp`, 'w', 0o600);
  try {
    writeFileSync(fd, render(folderIdOf(fstatSync(fd))));
  } finally {
    closeSync(fd);
  }
  renameSync(`${file}.tmp`, file);
}

/** Reads a text file and its id; undefined if there is none. */
export function findWithId(file: string): { readonly text: string; readonly id: string } | undefined {
  let fd: number | undefined;
  try {
    fd = openSync(file, 'r');
    return { text: readFileSync(fd, 'utf8'), id: folderIdOf(fstatSync(fd)) };
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}
