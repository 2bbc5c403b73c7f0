import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { emptyFileName } from '../log/snapshot.ts';
import { logFolder } from '../log/log-files.ts';

/**
 * Lists every Parquet file in a table's folder that may hold events, relative to it, whether the log names it or not:
 * young, sealed, rewritten, and those of other engines. Not the checkpoints, nor the empty file.
 */
export async function listDataFiles(tableDir: string): Promise<string[]> {
  const log = `${path.basename(logFolder(tableDir))}${path.sep}`;
  const names = await readdir(tableDir, { recursive: true });
  return names.filter((name) => name.endsWith('.parquet') && !name.startsWith(log) && name !== emptyFileName);
}
