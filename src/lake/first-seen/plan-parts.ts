import type { StoredFile } from '../../runtime/store/open-store.ts';
import type { DataFile } from '../log/snapshot.ts';

/**
 * Rules of first-seen parts: which are valid for a version, which are removed, created and merged.
 *
 * A part depends only on the bytes of the data files that it covers. So it is valid for every version that has all of
 * them, and for a reader of some apps also without the others' files. A rewrite of a file makes the parts that cover it
 * stale. Parts are merged within a day, a month or a year of
 * event times, by age: days are rewritten while they are young.
 */
export interface FirstSeenPart extends StoredFile {
  readonly id: string;
  readonly sizeBytes: number;
  /** The data files whose rows it has. */
  readonly covers: readonly Cover[];
  /** First and last date (UTC) of the events of those files. */
  readonly firstDate: string;
  readonly lastDate: string;
}

/** A data file whose rows a part has. */
export interface Cover {
  /** The hash of the file, shortened to `coverLength`. */
  readonly hash: string;
  /** The least and greatest `id_app` of its rows; absent if unknown. */
  readonly apps?: readonly [least: number, greatest: number];
}

/** A sealed file that no part covers. */
export interface UncoveredFile {
  readonly file: DataFile;
  readonly cover: Cover;
  readonly firstDate: string;
  readonly lastDate: string;
}

/** Digits of a file's hash in a part: 128 bits. */
const coverLength = 32;
const dayMs = 86_400_000;
/** Age above which parts of days are merged into those of months, and these into those of years, days. */
const [monthAfterDays, yearAfterDays] = [7, 70];
/** A larger part is not merged with others of its group, whose total is less than its size by this factor. */
const growth = 2;
/** Limit of parts that are merged: 28 million subjects, 13 s. */
const maxMergedBytes = 512 * 1024 ** 2;
/** Limits of the files of a new part: 15 s. */
const [maxFiles, maxRows] = [256, 8_000_000];

/** Returns the hash by which parts name a data file; undefined for a file of another engine, which no part covers. */
function hashOf({ sha256 }: DataFile): string | undefined {
  return sha256?.slice(0, coverLength);
}

function toCover({ minValues: { id_app: least }, maxValues: { id_app: greatest } }: DataFile, hash: string): Cover {
  return typeof least === 'number' && typeof greatest === 'number' ? { hash, apps: [least, greatest] } : { hash };
}

/** Returns the date of a statistic; undefined if it is unknown. */
function findDate(value: unknown): string | undefined {
  return typeof value === 'string' ? /^\d{4}-\d{2}-\d{2}/.exec(value)?.[0] : undefined;
}

/** The largest groups: an age limit makes a part stale each day, so months are not merged into years then. */
export type LargestGroup = 'month' | 'year';

/** Returns the group of parts with a last date: a day, a month or a year. Later, it is part of another group. */
export function groupOf(lastDate: string, today: string, largest: LargestGroup = 'year'): string {
  const ageDays = (Date.parse(today) - Date.parse(lastDate)) / dayMs;
  if (largest === 'year' && ageDays > yearAfterDays) return lastDate.slice(0, 4);
  return ageDays > monthAfterDays ? lastDate.slice(0, 7) : lastDate;
}

const mayHoldApp = ({ apps: [least, greatest] = [-Infinity, Infinity] }: Cover, idApps: readonly number[]): boolean =>
  idApps.some((idApp) => idApp >= least && idApp <= greatest);

const hashesOf = (files: readonly DataFile[]): Set<string> => new Set(files.flatMap((file) => hashOf(file) ?? []));
const hashesOfParts = (parts: readonly FirstSeenPart[]): Set<string> =>
  new Set(parts.flatMap(({ covers }) => covers.map(({ hash }) => hash)));

/** Finds the parts that cover a file that the table does not name, and those whose files other parts cover. */
export function findObsolete<P extends FirstSeenPart>(parts: readonly P[], files: readonly DataFile[]): P[] {
  const live = hashesOf(files);
  const covered = new Set<string>();
  return parts
    .toSorted((a, b) => b.covers.length - a.covers.length)
    .filter(({ covers }) => {
      const isStale = !covers.every(({ hash }) => live.has(hash));
      if (isStale || covers.every(({ hash }) => covered.has(hash))) return true;
      for (const { hash } of covers) covered.add(hash);
      return false;
    });
}

/** Lists the sealed files that no part covers, newest dates first, each content once. */
export function listUncovered(parts: readonly FirstSeenPart[], files: readonly DataFile[]): UncoveredFile[] {
  const covered = hashesOfParts(parts);
  const uncovered: UncoveredFile[] = [];
  for (const file of files) {
    const hash = hashOf(file);
    if (file.young || hash === undefined || covered.has(hash)) continue;
    const [firstDate, lastDate] = [findDate(file.minValues['event_time']), findDate(file.maxValues['event_time'])];
    if (firstDate === undefined || lastDate === undefined) continue;
    covered.add(hash);
    uncovered.push({ file, cover: toCover(file, hash), firstDate, lastDate });
  }
  return uncovered.toSorted((a, b) => Number(a.lastDate < b.lastDate) - Number(a.lastDate > b.lastDate));
}

/** Returns the files of the next part, which are all of one group; at least one if there are any. */
export function takeBatch(uncovered: readonly UncoveredFile[], today: string, largest?: LargestGroup): UncoveredFile[] {
  const [first] = uncovered;
  if (first === undefined) return [];
  const group = groupOf(first.lastDate, today, largest);
  const batch: UncoveredFile[] = [];
  let rows = 0;
  for (const each of uncovered) {
    if (groupOf(each.lastDate, today, largest) !== group) continue;
    rows += each.file.numRecords ?? 0;
    if (batch.length > 0 && (rows > maxRows || batch.length >= maxFiles)) break;
    batch.push(each);
  }
  return batch;
}

/** Returns the smallest parts of a group that together are not much smaller than the next larger one. */
function planMergeOfGroup<P extends FirstSeenPart>(parts: readonly P[]): P[] {
  const smallestFirst = parts.toSorted((a, b) => a.sizeBytes - b.sizeBytes);
  let [bytes, count] = [0, 0];
  for (const [index, { sizeBytes }] of smallestFirst.entries()) {
    if (index > 0 && sizeBytes <= growth * bytes && bytes + sizeBytes <= maxMergedBytes) count = index + 1;
    bytes += sizeBytes;
  }
  return smallestFirst.slice(0, count);
}

/**
 * Plans the next merge of parts; undefined if there is none. The sizes of what is left in a group at least double, so
 * that there are few and a row is rarely rewritten.
 */
export function planMerge<P extends FirstSeenPart>(
  parts: readonly P[],
  today: string,
  largest?: LargestGroup,
): P[] | undefined {
  const groups = new Map<string, P[]>();
  for (const part of parts) {
    const group = groupOf(part.lastDate, today, largest);
    groups.set(group, [...(groups.get(group) ?? []), part]);
  }
  for (const group of groups.values()) {
    const some = planMergeOfGroup(group);
    if (some.length > 1) return some;
  }
  return undefined;
}

/** The parts that are valid for a version, and the files whose rows they have. */
export interface ValidParts<P extends FirstSeenPart> {
  readonly parts: readonly P[];
  readonly covered: ReadonlySet<DataFile>;
}

/**
 * Chooses the parts of a version for a reader of some apps. `files`: at least all files of the version that may have
 * rows of these apps. A part is valid if the version has each covered file that may have such rows. Parts without events
 * of these apps before a time, Unix s, are left out.
 */
export function chooseParts<P extends FirstSeenPart>(
  all: readonly P[],
  files: readonly DataFile[],
  { beforeSeconds, idApps }: { readonly beforeSeconds: number; readonly idApps: readonly number[] },
): ValidParts<P> {
  const live = hashesOf(files);
  const parts = all.filter(
    ({ firstDate, covers }) =>
      Date.parse(firstDate) < beforeSeconds * 1000 &&
      covers.some((cover) => mayHoldApp(cover, idApps)) &&
      covers.every((cover) => live.has(cover.hash) || !mayHoldApp(cover, idApps)),
  );
  const hashes = hashesOfParts(parts);
  return { parts, covered: new Set(files.filter((file) => hashes.has(hashOf(file) ?? ''))) };
}
