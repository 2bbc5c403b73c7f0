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
  /** Names of custom events. */
  readonly eventNames?: readonly string[];
  readonly eventTime?: TimeRange;
  readonly receivedAt?: TimeRange;
  readonly availableAt?: TimeRange;
}

/** Renders a text so that texts compare as their UTF-8 bytes do, which is the order of the statistics. */
const toBytes = (text: string): string => Buffer.from(text).toString('latin1');

/** Reports whether a file may have events of one of the names, which are from `toBytes`. */
function mayHoldName(file: DataFile, names: readonly string[] | undefined): boolean {
  const [min, max] = [file.minValues['custom_event_name'], file.maxValues['custom_event_name']];
  if (names === undefined || typeof min !== 'string' || typeof max !== 'string') return true;
  const [from, to] = [toBytes(min), toBytes(max)];
  return names.some((name) => name >= from && name <= to);
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
  const names = filter.eventNames?.map(toBytes);
  return files.filter(
    (file) =>
      file.numRecords !== 0 &&
      mayHoldOneOf(file, 'id_app', filter.idApps) &&
      mayHoldOneOf(file, 'kind', filter.kinds) &&
      mayHoldName(file, names) &&
      mayHoldTime(file, 'event_time', filter.eventTime) &&
      mayHoldTime(file, 'received_at', filter.receivedAt) &&
      mayHoldTime(file, 'available_at', filter.availableAt),
  );
}
