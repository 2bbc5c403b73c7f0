import type { AddFilter } from '../log/actions.ts';
import type { DataFile } from '../log/snapshot.ts';
import { sqlText } from '../sql/literals.ts';

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

/** Number of apps that are compared one by one; of more, only the range. */
const maxApps = 32;
/** Its texts have the same order in SQL as in JavaScript. */
const asciiOnly = /^[ -~]*$/;
/** The form of the log's times, which are ordered as texts, for LIKE. Times of other years have more digits. */
const timeForm = '____-__-__T__:__:__.___Z';

/** Returns the text of a time in the log; undefined for other years. */
function timeText(ms: number): string | undefined {
  const text = Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : '';
  return text.length === timeForm.length ? text : undefined;
}

/** A range of values in SQL. */
type SqlRange = readonly [low: string | number, high: string | number];

function appRanges(idApps: readonly number[]): readonly SqlRange[] {
  if (idApps.length <= maxApps) return idApps.map((idApp) => [idApp, idApp]);
  return [[Math.min(...idApps), Math.max(...idApps)]];
}

/**
 * Returns the condition of `pruneFiles` in SQL. It leaves out no file that `pruneFiles` returns, and may keep others.
 * Undefined if it would keep all.
 */
export function toAddFilter({ idApps, kinds, ...times }: FileFilter): AddFilter | undefined {
  const columns: string[] = [];
  const conditions: string[] = [];
  const boundsOf = (column: string): readonly [min: string, max: string] => {
    columns.push(column);
    return [`bounds."minValues".${column}`, `bounds."maxValues".${column}`];
  };
  const addRanges = ([min, max]: readonly [min: string, max: string], ranges: readonly SqlRange[]): void => {
    const touches = ([low, high]: SqlRange): string =>
      `(coalesce(${min} <= ${high}, true) AND coalesce(${max} >= ${low}, true))`;
    conditions.push(ranges.length === 0 ? 'false' : `(${ranges.map(touches).join(' OR ')})`);
  };
  if (idApps !== undefined) {
    const [min, max] = boundsOf('id_app');
    addRanges([`TRY_CAST(${min} AS DOUBLE)`, `TRY_CAST(${max} AS DOUBLE)`], appRanges(idApps));
  }
  if (kinds?.every((kind) => asciiOnly.test(kind)) === true)
    addRanges(
      boundsOf('kind'),
      kinds.map((kind) => [sqlText(kind), sqlText(kind)]),
    );
  const timeRanges = { event_time: times.eventTime, received_at: times.receivedAt, available_at: times.availableAt };
  for (const [column, { fromMs = -Infinity, toMs = Infinity } = {}] of Object.entries(timeRanges)) {
    const [from, to] = [timeText(Math.floor(fromMs - 1)), timeText(Math.ceil(toMs))];
    if (from === undefined && to === undefined) continue;
    const [min, max] = boundsOf(column);
    const prune = (bound: string, comparison: string): void =>
      void conditions.push(`coalesce(NOT (${bound} LIKE '${timeForm}' AND ${bound} ${comparison}), true)`);
    if (from !== undefined) prune(max, `< ${sqlText(from)}`);
    if (to !== undefined) prune(min, `> ${sqlText(to)}`);
  }
  return conditions.length === 0 ? undefined : { columns, condition: conditions.join(' AND ') };
}
