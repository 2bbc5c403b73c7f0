import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, onTestFinished } from 'vitest';

function makeFolder(): string {
  return mkdtempSync(path.join(tmpdir(), 'tributary-test-'));
}

function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}

/** Creates a temporary folder for a test file; it is removed after the file's tests. */
export function temporaryFolder(): string {
  const folder = makeFolder();
  afterAll(() => removeFolder(folder));
  return folder;
}

/** Creates a temporary folder in a running test; it is removed at the end of that test. */
export function testFolder(): string {
  const folder = makeFolder();
  onTestFinished(() => removeFolder(folder));
  return folder;
}

/** Copies the data folder of a running service as a tool would: starts over if a file is removed during the copy. */
export function copyRunningFolder(from: string, to: string): void {
  for (let tries = 1; ; tries += 1) {
    try {
      cpSync(from, to, { recursive: true });
      return;
    } catch (error) {
      if (tries === 20 || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      removeFolder(to);
    }
  }
}
