/**
 * Removes failed events of a table.
 *
 * In: a test of the events to remove. Out: a commit that counts them as erased, then files of the others.
 * Crash: atomic, by one change (files/change.ts).
 */
import path from 'node:path';
import { events, type Dataset } from '../datasets/dataset.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { writeNewFile } from '../runtime/files/durable-file.ts';
import { lakePaths, tablePaths } from './lake.ts';
import type { Snapshot } from './log/snapshot.ts';
import type { Change, Table } from './log/table.ts';
import { openChange, type FollowUp, type OpenChange } from './files/change.ts';
import {
  failedRowsFolder,
  listFailedRows,
  listPublishedFiles,
  readFailedFile,
  renderFailed,
  type FailedEvent,
} from './files/failed-events.ts';

/** Lists the files of a table's failed events, or of the bad rows of its loads for a secondary table. */
export async function listFailedOf(
  lakeDir: string,
  dataset: Dataset,
  { txns }: Pick<Snapshot, 'txns'>,
): Promise<string[]> {
  const { failed } = lakePaths(lakeDir);
  if (dataset === events) return listPublishedFiles(failed);
  return [...(await listFailedRows(failedRowsFolder(failed, tablePaths(lakeDir, dataset).table), txns)).files];
}

export interface RemoveFailedDependencies {
  readonly dataset: Dataset;
  readonly table: Table;
  readonly lakeDir: string;
  readonly crashPoint: CrashPoint;
}

/** Removes failed events of a table by one commit, which counts them as erased. Returns their number. */
export async function removeFailed(
  { dataset, table, lakeDir, crashPoint }: RemoveFailedDependencies,
  cause: 'erase' | 'drop' | 'expire',
  isRemoved: (event: FailedEvent) => boolean,
): Promise<number> {
  const changed: { file: string; events: readonly FailedEvent[] }[] = [];
  let erased = 0;
  for (const file of await listFailedOf(lakeDir, dataset, table.state())) {
    const failed = await readFailedFile(file);
    const remaining = failed.filter((event) => !isRemoved(event));
    if (remaining.length < failed.length) changed.push({ file, events: remaining });
    erased += failed.length - remaining.length;
  }
  if (erased === 0) return 0;
  const change: Change = {
    cause,
    actions: [],
    totals: { failed: -erased, erased },
    // Exports have no failed events.
    erasedApps: [],
    metrics: { failedEvents: erased },
  };
  const open = await openChange(table, tablePaths(lakeDir, dataset).staging, 'a removal of failed events', crashPoint);
  try {
    await open.commit([], () => change, await rewriteFailed(open, changed));
  } finally {
    await open.close();
  }
  return erased;
}

/** Rewrites files of failed events with the events that remain; returns the replacements for the commit. */
export async function rewriteFailed(
  { folder }: OpenChange,
  changed: readonly { readonly file: string; readonly events: readonly FailedEvent[] }[],
): Promise<FollowUp> {
  const moves: { name: string; to: string }[] = [];
  const unlink: string[] = [];
  for (const [index, { file, events: remaining }] of changed.entries()) {
    const name = `${index}.ndjson`;
    if (remaining.length === 0) unlink.push(file);
    else {
      await writeNewFile(path.join(folder, name), renderFailed(remaining));
      moves.push({ name, to: file });
    }
  }
  return { moves, unlink };
}
