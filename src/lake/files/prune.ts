import type { DataFile } from '../log/snapshot.ts';

/** A closed range of Unix ms. An absent bound is open. */
export interface TimeRange {
  readonly fromMs?: number;
  readonly toMs?: number;
}

/** The filter of a reader. All members must hold. An empty set matches no row. */
export interface FileFilter {
  readonly idApps?: readonly number[];
  readonly kinds?: readonly string[];
  readonly eventTime?: TimeRange;
  readonly receivedAt?: TimeRange;
  readonly availableAt?: TimeRange;
}

/** Reports whether a value may be within a file's minimum and maximum. Unknown statistics match. */
function mayHoldOneOf(file: DataFile, column: string, values: readonly (string | number)[] | undefined): boolean {
  if (values === undefined) return true;
  const min = file.minValues[column];
  const max = file.maxValues[column];
  return values.some((value) =>
    typeof value === 'number'
      ? !(typeof min === 'number' && value < min) && !(typeof max === 'number' && value > max)
      : !(typeof min === 'string' && value < min) && !(typeof max === 'string' && value > max),
  );
}

function parseTime(value: unknown): number {
  return typeof value === 'string' ? Date.parse(value) : Number.NaN;
}

function mayHoldTime(file: DataFile, column: string, range: TimeRange | undefined): boolean {
  if (range === undefined) return true;
  // The log keeps milliseconds: a maximum may stand for up to one more. NaN compares as a match.
  const endsBefore = parseTime(file.maxValues[column]) + 1 < (range.fromMs ?? -Infinity);
  const startsAfter = parseTime(file.minValues[column]) > (range.toMs ?? Infinity);
  return !endsBefore && !startsAfter;
}

/** Returns the files that may have rows of a filter, by their statistics in the log. */
export function pruneFiles(files: readonly DataFile[], filter: FileFilter): DataFile[] {
  return files.filter(
    (file) =>
      file.numRecords !== 0 &&
      mayHoldOneOf(file, 'id_app', filter.idApps) &&
      mayHoldOneOf(file, 'kind', filter.kinds) &&
      mayHoldTime(file, 'event_time', filter.eventTime) &&
      mayHoldTime(file, 'received_at', filter.receivedAt) &&
      mayHoldTime(file, 'available_at', filter.availableAt),
  );
}
