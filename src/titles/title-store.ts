/**
 * Titles: what ids of campaigns, partners, links and the like are called in an export's `...Title` columns.
 *
 * In: a Parquet file with the columns `field`, `id`, `title` (sorted by field and id, each pair once), which
 * operate/lists has made of an operator's lists and the titles before. Out: where that file is, and which fields have
 * titles. Layout: `titles/titles.json`, the record, and the file that it names (runtime/files/recorded-file.ts).
 * Invariant: the titles change as a whole; a reader has those of one record or an error.
 * Crash: the titles before, or those after; a file that the record does not name goes with the next change.
 */
import { AppError } from '../runtime/errors.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { markRecord } from '../runtime/files/known-records.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { findRecord, publishRecord, recordPath, type RecordedFile } from '../runtime/files/recorded-file.ts';

/** How many titles each field has, by the field's name; fields without titles are absent. */
export type TitleCounts = Readonly<Record<string, number>>;

/** The titles at rest. */
export interface Titles extends RecordedFile {
  readonly counts: TitleCounts;
}

/** Titles to put in the place of those that are there. */
export interface NewTitles {
  /** A finished file, on the same file system, which is moved. */
  readonly file: string;
  readonly counts: TitleCounts;
}

const recordName = 'titles';
/** How long a change waits for another one, or for a backup that copies the titles, milliseconds. */
const lockWaitMs = 30_000;

function isCounts(value: unknown): value is TitleCounts {
  return typeof value === 'object' && value !== null && Object.values(value).every((count) => Number.isInteger(count));
}

/** Reads which titles there are; undefined when none were ever loaded. Error: `record_damaged`. */
export async function findTitles(titlesDir: string): Promise<Titles | undefined> {
  const damaged = (cause?: unknown): AppError =>
    new AppError('record_damaged', `the record of the titles in ${titlesDir} is damaged`, {
      cause,
      hint: "Restore the folder from a backup; or remove it, and load the titles anew by 'tributary load titles'.",
    });
  const record = await findRecord(titlesDir, recordName).catch((error: unknown) => {
    throw damaged(error);
  });
  if (record === undefined) return undefined;
  const { facts, ...file } = record;
  if (!isCounts(facts['counts'])) throw damaged();
  return { ...file, counts: facts['counts'] };
}

/** Does one change, or one backup, of the titles at a time. Error: `locked`. */
export async function withTitlesLock<T>(titlesDir: string, holder: string, work: () => Promise<T>): Promise<T> {
  const lock = await waitForLock(titlesDir, holder, lockWaitMs);
  try {
    return await work();
  } finally {
    lock.release();
  }
}

/**
 * Replaces the titles by what `change` makes of those that are there: durable when it returns. Errors: `locked`,
 * `record_damaged`, those of `change`.
 */
export async function changeTitles(
  titlesDir: string,
  change: (before: Titles | undefined) => Promise<NewTitles>,
): Promise<TitleCounts> {
  await ensureFolder(titlesDir);
  return withTitlesLock(titlesDir, 'load titles', async () => {
    const { file, counts } = await change(await findTitles(titlesDir));
    await publishRecord(titlesDir, recordName, file, { counts });
    await markRecord(titlesDir, recordPath(titlesDir, recordName));
    return counts;
  });
}
