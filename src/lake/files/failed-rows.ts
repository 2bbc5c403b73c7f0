import { open } from 'node:fs/promises';
import path from 'node:path';
import { ensureFolder, moveFile, removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import { findLoadState } from '../log/load-state.ts';
import { readFailedFile, renderFailed, type FailedEvent } from './failed-events.ts';

/**
 * The rows of loaded files that could not be loaded, where that was allowed: a file for each load, in a folder for each
 * table below that of the failed events. It belongs to the commit of its load: it counts while the log says that this
 * load, in this generation, is in the table.
 */

const fileName = /^load-([0-9a-f]{32})-(\d+)\.ndjson(\.tmp)?$/;

/** The folder of a table's failed rows. */
export function failedRowsFolder(failedDir: string, tableDir: string): string {
  return path.join(failedDir, path.basename(tableDir));
}

const fileOf = (folder: string, loadId: string, generation: number): string =>
  path.join(folder, `load-${loadId}-${generation}.ndjson`);

/**
 * Writes the failed rows of a load whose commit is to come, durably and whole. The caller keeps other loads of the id
 * away (load-lock.ts).
 */
export async function writeFailedRows(
  folder: string,
  { loadId, generation }: { readonly loadId: string; readonly generation: number },
  events: readonly FailedEvent[],
): Promise<void> {
  await ensureFolder(folder);
  const file = fileOf(folder, loadId, generation);
  // What a killed load has left is written anew.
  const temporary = `${file}.tmp`;
  const handle = await open(temporary, 'w', 0o600);
  try {
    for (const event of events) await handle.appendFile(renderFailed([event]));
    await handle.sync();
  } finally {
    await handle.close();
  }
  await moveFile(temporary, file);
  await syncFolder(folder);
}

/** Lists the files whose rows count as failed by a state of the table's log, and those that do not. */
export async function listFailedRows(
  folder: string,
  txns: ReadonlyMap<string, number>,
): Promise<{ readonly files: readonly string[]; readonly stale: readonly string[] }> {
  const names = await findNames(folder);
  const files: string[] = [];
  const stale: string[] = [];
  for (const name of names.toSorted()) {
    const [, loadId = '', generation, temporary] = fileName.exec(name) ?? [];
    if (generation === undefined) continue;
    const state = findLoadState(txns, loadId);
    const isCounted = state?.generation === Number(generation) && state.status !== 'undone';
    const isLive = isCounted && temporary === undefined;
    (isLive ? files : stale).push(path.join(folder, name));
  }
  return { files, stale };
}

/** Removes the files of a load that do not count any more, or never did. */
export async function removeFailedRows(folder: string, files: readonly string[], loadId?: string): Promise<void> {
  const wanted = files.filter((file) => loadId === undefined || path.basename(file).startsWith(`load-${loadId}-`));
  for (const file of wanted) await removeFile(file);
  if (wanted.length > 0) await syncFolder(folder);
}

/** Counts the rows of some files of failed rows. */
export async function countFailedRows(files: readonly string[]): Promise<number> {
  let count = 0;
  for (const file of files) count += (await readFailedFile(file)).length;
  return count;
}
