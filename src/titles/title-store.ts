/**
 * Titles: what ids of campaigns, partners, links and the like are called in an export's `...Title` columns.
 *
 * In: a Parquet file with the columns `field`, `id`, `title` (sorted by field and id, each pair once), which
 * operate/lists makes of an operator's lists and the titles before. Out: that file, and which fields have titles.
 * Layout: `titles/titles.json`, the record, and the file that it names (runtime/store/file-records.ts).
 * Invariant: the titles change as a whole; a reader has those of one record or an error.
 */
import { openFileRecords, type FileRecords, type RecordedFile } from '../runtime/store/file-records.ts';
import { isInteger, shapeOf } from '../runtime/store/shape.ts';

/** How many titles each field has, by the field's name; fields without titles are absent. */
export type TitleCounts = Readonly<Record<string, number>>;

interface TitleFacts {
  readonly counts: TitleCounts;
}

/** The titles at rest. */
export interface Titles extends RecordedFile, TitleFacts {}

/** Titles to put in the place of those that are there. */
export interface NewTitles extends TitleFacts {
  /** A finished file, on the same file system, which is moved. */
  readonly file: string;
}

const recordId = 'titles';

const isCounts = (counts: unknown): boolean =>
  typeof counts === 'object' && counts !== null && Object.values(counts).every(isInteger);

/** Opens the file of the titles. */
export function openTitles(titlesDir: string): FileRecords<TitleFacts> {
  const damaged = {
    code: 'record_damaged',
    hint: "Restore the folder from a backup; or remove it, and load the titles anew by 'tributary load titles'.",
  } as const;
  return openFileRecords(
    titlesDir,
    { isValid: shapeOf<TitleFacts>({ counts: isCounts }), idForm: /^titles$/, damaged },
    true,
  );
}

/** Finds the titles; undefined when none were ever loaded. Error: `record_damaged`. */
export async function findTitles(titlesDir: string): Promise<Titles | undefined> {
  const found = await openTitles(titlesDir).get(recordId);
  if (found === undefined) return undefined;
  const { facts, ...file } = found;
  return { ...file, ...facts };
}

/**
 * Replaces the titles by what `change` makes of those that are there: durable when it returns. Errors: `locked`,
 * `record_damaged`, those of `change`.
 */
export async function changeTitles(
  titlesDir: string,
  change: (before: Titles | undefined) => Promise<NewTitles>,
): Promise<TitleCounts> {
  const titles = openTitles(titlesDir);
  return await titles.hold(async () => {
    const { file, counts } = await change(await findTitles(titlesDir));
    await titles.publish(recordId, file, { counts });
    return counts;
  });
}
