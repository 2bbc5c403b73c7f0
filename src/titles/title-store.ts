/**
 * Titles: names of the ids of campaigns, partners, links and others, for the `...Title` columns of exports.
 *
 * In: a Parquet file with the columns `field`, `id`, `title` (sorted, each pair once) from admin/lists. Out: that file,
 * and the number of titles by field.
 * Layout: `titles/titles.json`, the record, and its file (runtime/store/file-records.ts).
 * Invariant: a reader gets the titles of one record or an error.
 * Crash: the previous or the new record is current; the next change removes files without a record.
 */
import { openFileRecords, type FileRecords, type RecordedFile } from '../runtime/store/file-records.ts';
import { isInteger, shapeOf } from '../runtime/store/shape.ts';

/** Number of titles by field, without zeros. */
export type TitleCounts = Readonly<Record<string, number>>;

interface TitleStats {
  readonly counts: TitleCounts;
}

export interface Titles extends RecordedFile, TitleStats {}

export interface NewTitles extends TitleStats {
  /** A finished file on the same file system, which is moved. */
  readonly file: string;
}

const recordId = 'titles';

const isCounts = (counts: unknown): boolean =>
  typeof counts === 'object' && counts !== null && Object.values(counts).every(isInteger);

export function openTitles(titlesDir: string): FileRecords<TitleStats> {
  const damaged = {
    code: 'record_damaged',
    hint: "Restore the folder from a backup; or remove it, and load the titles again by 'tributary load titles'.",
  } as const;
  return openFileRecords(
    titlesDir,
    { isValid: shapeOf<TitleStats>({ counts: isCounts }), idForm: /^titles$/, damaged },
    true,
  );
}

/** Finds the titles; undefined if none were loaded. Error: `record_damaged`. */
export async function findTitles(titlesDir: string): Promise<Titles | undefined> {
  const found = await openTitles(titlesDir).get(recordId);
  if (found === undefined) return undefined;
  const { facts, ...file } = found;
  return { ...file, ...facts };
}

/** Replaces the titles by the result of `change`, durably. Errors: `locked`, `record_damaged`, those of `change`. */
export async function changeTitles(
  titlesDir: string,
  change: (before: Titles | undefined) => Promise<NewTitles>,
): Promise<TitleCounts> {
  let counts: TitleCounts = {};
  await openTitles(titlesDir).change(recordId, async (found) => {
    const after = await change(found === undefined ? undefined : { ...found, ...found.facts });
    counts = after.counts;
    return { file: after.file, facts: { counts } };
  });
  return counts;
}
