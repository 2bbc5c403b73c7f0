import path from 'node:path';
import type { Problem } from '../conditions/problem.ts';
import { ensureFolder, removeFile, syncFolder, writeFileDurably } from './durable-file.ts';
import { exists } from './file-checks.ts';
import { findTree } from './folder-names.ts';

/**
 * The records that a data folder is known to have: for each an empty file, its mark, at the same path below `records/`.
 * A record whose mark is there and that is not is missing: nobody has removed it by a command.
 *
 * Order: a record is written before its mark, and loses its mark before it is removed. Crash: a record may lack its
 * mark, and the running service makes it; a mark never outlives a removal. A copy of the data folder has the marks; a
 * backup has none, so a restored folder misses nothing.
 */
const marksFolder = 'records';
const kinds = ['schedules', 'segments', 'titles', 'webhooks'];
const recordForm = /^(schedules\/\d+\/sc_\w+|segments\/\d+\/\d+|titles\/titles|webhooks\/\d+\/wh_\w+)\.json$/;
/** Missing records of a kind that are named one by one. */
const namedRecords = 10;

/** Lists the records below a folder by their paths in the data folder. */
async function listRecords(folder: string): Promise<string[]> {
  const names = await Promise.all(
    kinds.map(async (kind) => (await findTree(path.join(folder, kind))).map((name) => path.join(kind, name))),
  );
  return names.flat().filter((name) => recordForm.test(name));
}

/** Returns the mark of a record, where `kindFolder` is the folder of its kind in the data folder. */
function markOf(kindFolder: string, file: string): string {
  const dataDir = path.dirname(kindFolder);
  return path.join(dataDir, marksFolder, path.relative(dataDir, file));
}

/** Marks a record as known, durably. To be called when the record is durable. */
export async function markRecord(kindFolder: string, file: string): Promise<void> {
  const mark = markOf(kindFolder, file);
  await ensureFolder(path.dirname(mark));
  await writeFileDurably(mark, '');
}

/** Reports whether a record is there or missing. */
export async function isKnownRecord(kindFolder: string, file: string): Promise<boolean> {
  return (await exists(file)) || (await exists(markOf(kindFolder, file)));
}

/** Removes the mark of a record, durably, then the record by `remove`. */
export async function unmarkRecord(kindFolder: string, file: string, remove: () => Promise<void>): Promise<void> {
  const mark = markOf(kindFolder, file);
  const removeMark = async (): Promise<void> => {
    if (!(await exists(mark))) return;
    await removeFile(mark);
    await syncFolder(path.dirname(mark));
  };
  await removeMark();
  await remove();
  // The service may have marked it again meanwhile.
  await removeMark();
}

/** Marks the records that have no mark, such as those that an earlier version has written. */
export async function markRecords(dataDir: string): Promise<void> {
  const marks = new Set(await listRecords(path.join(dataDir, marksFolder)));
  for (const name of await listRecords(dataDir)) {
    if (marks.has(name)) continue;
    const file = path.join(dataDir, name);
    await markRecord(path.join(dataDir, name.split(path.sep)[0] ?? ''), file);
    // It may have been removed meanwhile.
    if (!(await exists(file))) await removeFile(path.join(dataDir, marksFolder, name));
  }
}

/** Lists the missing records by their paths in the data folder. */
export async function listMissingRecords(dataDir: string): Promise<string[]> {
  const marks = path.join(dataDir, marksFolder);
  const missing: string[] = [];
  for (const name of await listRecords(marks)) {
    // A record that is removed meanwhile has lost its mark before.
    if (!(await exists(path.join(dataDir, name))) && (await exists(path.join(marks, name)))) missing.push(name);
  }
  return missing.toSorted();
}

/** Describes the missing records, those of each kind together. */
export async function findMissingRecords(dataDir: string): Promise<Problem[]> {
  const missing = await listMissingRecords(dataDir);
  return kinds.flatMap((kind) => {
    const names = missing.filter((name) => name.startsWith(kind + path.sep));
    const others = names.length > namedRecords ? ` and ${names.length - namedRecords} more` : '';
    const problem: Problem = {
      code: 'record_missing',
      subject: kind,
      what: `records of the data folder are missing: ${names.slice(0, namedRecords).join(', ')}${others}`,
      todo: `Restore them from a backup, or remove them by their command, or remove their marks below ${marksFolder}/.`,
    };
    return names.length === 0 ? [] : [problem];
  });
}
