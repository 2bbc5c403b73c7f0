import { execFileSync } from 'node:child_process';
import { chmodSync, lstatSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';

/** A folder that is read-only for a while. */
export interface ReadOnlyFolder {
  /** Makes it writable again, at the latest at the end of the test. */
  undo(): void;
}

function mount(...words: readonly string[]): void {
  execFileSync('mount', words, { stdio: 'ignore' });
}

function listFolders(folder: string): string[] {
  return [
    folder,
    ...readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .flatMap(({ name }) => listFolders(path.join(folder, name))),
  ];
}

/**
 * Makes a folder read-only with all below it, while processes use it. Root ignores permissions, so as root a read-only
 * mount of the folder on itself is used; otherwise its permissions change. Returns undefined if root may not mount.
 */
export function makeReadOnly(folder: string): ReadOnlyFolder | undefined {
  let isOver = false;
  const onceOver = (undo: () => void) => (): void => {
    if (!isOver) undo();
    isOver = true;
  };
  let undo: () => void;
  if (process.geteuid?.() === 0) {
    try {
      mount('--bind', folder, folder);
      mount('-o', 'remount,bind,ro', folder);
    } catch {
      return undefined;
    }
    undo = onceOver(() => void execFileSync('umount', ['--lazy', folder]));
  } else {
    const modes = listFolders(folder).map((name) => [name, lstatSync(name).mode & 0o7777] as const);
    for (const [name, mode] of modes) chmodSync(name, mode & ~0o222);
    undo = onceOver(() => modes.forEach(([name, mode]) => chmodSync(name, mode)));
  }
  onTestFinished(undo);
  return { undo };
}
