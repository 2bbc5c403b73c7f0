import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** Lists every file below a folder, relative to it, sorted. */
export function listFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .toSorted();
}

/** Returns the hash of every file below a folder by name: two equal results mean the same files with the same bytes. */
export function hashFiles(folder: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    listFiles(folder).map((name) => [
      name,
      createHash('sha256')
        .update(readFileSync(path.join(folder, name)))
        .digest('hex'),
    ]),
  );
}

/** Lists the files below a folder that have a text among their bytes. */
export function filesNaming(folder: string, text: string): string[] {
  return listFiles(folder).filter((name) => readFileSync(path.join(folder, name)).includes(text));
}
