import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll } from 'vitest';

/** Makes a temporary folder for a test file; it is removed when the file's tests are over. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'tributary-test-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
