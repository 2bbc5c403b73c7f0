import type { DataFile } from '../../lake/log/snapshot.ts';
import { isMergedPath } from '../../lake/log/young-folder.ts';

/**
 * Chooses the sealed files of a day that are merged. It depends on the log alone.
 *
 * Bound: after its first merge, files are merged with a larger one only if they have a quarter of its bytes. A byte
 * that is rewritten is then in a merge that grew by a quarter: 10 times for a day that grows tenfold. More than
 * three merges and late files lead to a merge of the smallest, which have less than a sixteenth of the day's bytes.
 */

type Candidate = Pick<DataFile, 'publishedPath' | 'path' | 'sizeBytes'>;

/** Files that one merge has written, or a file of a seal. */
interface Unit<T> {
  readonly files: T[];
  bytes: number;
  readonly isMerged: boolean;
}

/** Limits a unit, in multiples of the bytes of all smaller ones, for a merge with them. */
const growth = 4;
/** Number of units that a merged day may have. */
const maxUnits = 3;

/** Groups the files of a day by the merge that wrote them, largest first. */
function listUnits<T extends Candidate>(files: readonly T[]): Unit<T>[] {
  const units = new Map<string, Unit<T>>();
  for (const file of files) {
    const { publishedPath = file.path } = file;
    const isMerged = isMergedPath(publishedPath);
    const key = isMerged ? publishedPath.replace(/-\d+\.parquet$/, '') : publishedPath;
    const unit = units.get(key) ?? { files: [], bytes: 0, isMerged };
    unit.files.push(file);
    unit.bytes += file.sizeBytes;
    units.set(key, unit);
  }
  return [...units.values()].toSorted((a, b) => b.bytes - a.bytes);
}

/** Returns the files of a day to merge: none if it does not pay. */
export function chooseInputs<T extends Candidate>(files: readonly T[]): T[] {
  const units = listUnits(files);
  if (units.length < 2) return [];
  if (!units.some(({ isMerged }) => isMerged)) return files.slice();
  let from = units.length > maxUnits ? maxUnits - 1 : units.length;
  let smaller = 0;
  for (const [index, { bytes }] of [...units.entries()].toReversed()) {
    if (index < units.length - 1 && bytes <= growth * smaller) from = Math.min(from, index);
    smaller += bytes;
  }
  return units.slice(from).flatMap((unit) => unit.files);
}

const dayMs = 86_400_000;

/** Reports whether a day ended `afterMs` ago. Without a date, nothing is ever due. */
export function isDayOver(date: string | undefined, nowMs: number, afterMs: number): boolean {
  return nowMs - Date.parse(`${date}T00:00:00Z`) >= dayMs + afterMs;
}

/** Rows that must be in one file: those of an app, or of an app and a second. */
export interface Portion {
  readonly rows: number;
  /** Estimated size in a file, bytes. */
  readonly bytes: number;
  /** Memory of its wide rows, bytes. */
  readonly wideBytes: number;
}

/** Limits of a merged file. */
type PortionLimit = Pick<Portion, 'bytes' | 'wideBytes'>;

export function fits({ bytes, wideBytes }: PortionLimit, limit: PortionLimit): boolean {
  return bytes <= limit.bytes && wideBytes <= limit.wideBytes;
}

/** Cuts ordered portions into files within the limit. A larger portion gets its own file. */
export function cutPortions<T extends Portion>(portions: readonly T[], limit: PortionLimit): T[][] {
  const files: T[][] = [];
  let size = { bytes: 0, wideBytes: 0 };
  for (const portion of portions) {
    const grown = { bytes: size.bytes + portion.bytes, wideBytes: size.wideBytes + portion.wideBytes };
    const file = files.at(-1);
    if (file === undefined || !fits(grown, limit)) {
      files.push([portion]);
      size = portion;
    } else {
      file.push(portion);
      size = grown;
    }
  }
  return files;
}
