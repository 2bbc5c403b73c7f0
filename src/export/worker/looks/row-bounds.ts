import type { Dataset, DatasetExport } from '../../../datasets/dataset.ts';
import { rowFields } from '../../../datasets/dictionaries.ts';
import type { StoredExport, Subject } from '../../../datasets/pipeline-file.ts';
import type { ExportApp, ExportSpec, SecondsSpan } from '../../jobs/export-spec.ts';
import { deviceColumnNames, isZeroUnknown } from '../conditions.ts';
import { all, any, none, sum, within, type Count } from './count.ts';
import type { ColumnFacts, RowGroup } from './row-groups.ts';

/**
 * How many rows of a row group fulfil a condition of a query, by statistics alone. Each mirrors one of conditions.ts,
 * and is allowed to know less, never more.
 */
export type Condition = (group: RowGroup) => Count;

type Value = bigint | string;

/** Texts are compared as Parquet does: by the bytes of their UTF-8. */
function isLess(a: Value, b: Value): boolean {
  if (typeof a === 'bigint' && typeof b === 'bigint') return a < b;
  return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b))) < 0;
}

/** How many values there are that are not NULL. */
function given({ rows }: RowGroup, { nulls }: ColumnFacts): Count {
  return nulls === undefined ? within(0, rows, rows) : within(rows - nulls, rows - nulls, rows - nulls);
}

function nullsOf({ rows }: RowGroup, { nulls }: ColumnFacts): Count {
  return nulls === undefined ? within(0, rows, 0) : within(nulls, nulls, nulls);
}

const maybe = ({ most }: Count, expected: number): Count => within(0, most, expected);

/** How many values there may be between two bounds. */
function widthOf({ min, max, chunk }: ColumnFacts): number {
  const distinct = chunk?.distinct ?? Infinity;
  const range = typeof min === 'bigint' && typeof max === 'bigint' ? Number(max - min) + 1 : 10;
  return Math.max(1, Math.min(range, distinct));
}

/** The value is one of a set. */
function inValues(column: string, values: readonly Value[]): Condition {
  return (group) => {
    const facts = group.column(column);
    const { min, max, isExact } = facts;
    const there = given(group, facts);
    if (min === undefined || max === undefined) return maybe(there, there.expected / 10);
    const possible = values.filter((value) => !isLess(value, min) && !isLess(max, value));
    if (possible.length === 0) return none;
    if (isExact && !isLess(min, max)) return there;
    // Every whole number between the bounds is wanted: apps that were registered one after the other.
    const isEvery = typeof min === 'bigint' && typeof max === 'bigint' && max - min < BigInt(new Set(possible).size);
    if (isEvery) return there;
    return maybe(there, (there.expected * possible.length) / widthOf(facts));
  };
}

/** The value is in a range of whole numbers, from `from` up to `before`. */
function inRange(column: string, from: bigint | undefined, before: bigint | undefined): Condition {
  return (group) => {
    const facts = group.column(column);
    const { min, max } = facts;
    const there = given(group, facts);
    if (typeof min !== 'bigint' || typeof max !== 'bigint') return maybe(there, there.expected);
    const [first, last] = [from ?? min, before === undefined ? max : before - 1n];
    if (max < first || min > last) return none;
    if (first <= min && max <= last) return there;
    const overlap = Number((max < last ? max : last) - (min > first ? min : first)) + 1;
    return maybe(there, (there.expected * overlap) / (Number(max - min) + 1));
  };
}

/** The text is neither NULL nor empty. */
function isFilled(column: string): Condition {
  return (group) => {
    const facts = group.column(column);
    const { min, max, isExact } = facts;
    const there = given(group, facts);
    if (min === undefined || max === undefined) return maybe(there, there.expected);
    if (isExact && max === '') return none;
    // A bound that was cut short is not empty either, unless it was cut to nothing.
    return min === '' ? maybe(there, there.expected) : there;
  };
}

const isGiven =
  (column: string): Condition =>
  (group) =>
    given(group, group.column(column));
const isNull =
  (column: string): Condition =>
  (group) =>
    nullsOf(group, group.column(column));
const unknowable: Condition = ({ rows }) => within(0, rows, rows / 2);

function oneOf(conditions: readonly Condition[]): Condition {
  return (group) =>
    any(
      group.rows,
      conditions.map((condition) => condition(group)),
    );
}

const micros = (seconds: number | undefined): bigint | undefined =>
  seconds === undefined ? undefined : BigInt(seconds) * 1_000_000n;

function inSpan(column: string, { fromSeconds, beforeSeconds }: SecondsSpan): Condition[] {
  return fromSeconds === undefined && beforeSeconds === undefined
    ? []
    : [inRange(column, micros(fromSeconds), micros(beforeSeconds))];
}

const hasColumn = ({ columns }: Dataset, name: string): boolean => columns.some((column) => column.name === name);

/** As `storedConditions`. */
function ofStored({ fields, ...dataset }: Dataset, { kind, where = {} }: StoredExport): Condition[] {
  const ofFields = Object.entries(where).flatMap(([name, value]) => {
    const schema = fields.find((known) => known.name === name)?.schema;
    if (schema === undefined) return [unknowable];
    const { 'x-column': column, default: absent } = schema;
    const wanted = inValues(column, [typeof value === 'number' ? BigInt(value) : value]);
    if (!hasColumn({ fields, ...dataset }, column)) return absent === value ? [] : [() => none];
    return [absent === value ? oneOf([wanted, isNull(column)]) : wanted];
  });
  return [...(kind === undefined ? [] : [inValues('kind', [kind])]), ...ofFields];
}

/** As `fieldConditions`. */
function ofFilters(dataset: Dataset, { filters }: ExportSpec): Condition[] {
  return Object.entries(filters).flatMap(([name, values]) => {
    const schema = rowFields.get(name);
    if (schema === undefined) return [unknowable];
    const column = schema['x-column'];
    const emptyPasses = isZeroUnknown(schema) && values.includes('0');
    // A table of an earlier version may lack what its dataset has.
    if (!hasColumn(dataset, column)) return emptyPasses ? [] : [() => none];
    const isText = schema['x-column-type'] === 'VARCHAR';
    const wanted = inValues(
      column,
      values.map((value) => (isText ? value : BigInt(value))),
    );
    return [emptyPasses ? oneOf([wanted, isNull(column)]) : wanted];
  });
}

function ofEventNames({ eventName, eventNameInvert }: ExportSpec): Condition[] {
  if (eventName === undefined) return [];
  const column = 'custom_event_name';
  const named = inValues(column, eventName);
  if (!eventNameInvert) return [named];
  return [
    (group) => {
      const [there, out] = [given(group, group.column(column)), named(group)];
      return within(Math.max(0, there.least - out.most), there.most - out.least, there.expected - out.expected);
    },
  ];
}

/** As `paramConditions`: a row has the parameter at most once. */
function ofParams({ params = [] }: ExportSpec): Condition[] {
  const place = 'custom_event_params, key_value,';
  return params.map(({ name, values }) => (group) => {
    const keys = group.column(`${place} key`);
    const isThere = [inValues(`${place} key`, [name]), inValues(`${place} value`, values)].every(
      (condition) => condition({ ...group, rows: keys.chunk?.values ?? group.rows }).most > 0,
    );
    if (!isThere) return none;
    const entries = keys.chunk === undefined ? group.rows : keys.chunk.values - (keys.nulls ?? 0);
    return within(0, Math.min(group.rows, entries), Math.min(group.rows, entries) / 10);
  });
}

function ofSubject(subject: Subject): Condition {
  return subject === 'user' ? isFilled('custom_user_id') : oneOf(deviceColumnNames.map(isFilled));
}

function ofRequirement({ requires }: StoredExport): Condition[] {
  if (requires === 'user') return [isFilled('custom_user_id')];
  return requires === 'device' ? [oneOf(deviceColumnNames.map(isGiven))] : [];
}

/** The row is one of these apps. */
export function ofApps(apps: readonly ExportApp[]): Condition {
  const isOne = inValues(
    'id_app',
    apps.map(({ idApp }) => BigInt(idApp)),
  );
  return (group) => (group.ofApps === undefined ? isOne(group) : within(group.ofApps, group.ofApps, group.ofApps));
}

/** The conditions that every row of a result fulfils, or of a derived one the event that it begins with. */
export function rowConditions(
  request: ExportSpec,
  { dataset, event }: DatasetExport,
  apps: readonly ExportApp[],
  sinceMs: number | undefined,
): Condition[] {
  return [
    ofApps(apps),
    ...inSpan('event_time', request.eventTime),
    ...inSpan('available_at', request.availableAt),
    ...ofFilters(dataset, request),
    ...(request.localDates === undefined ? [] : [unknowable]),
    ...('derive' in event
      ? [ofSubject(event.of)]
      : [
          ...ofStored(dataset, event),
          ...ofRequirement(event),
          ...(sinceMs === undefined ? [] : [inRange('available_at', BigInt(sinceMs) * 1000n + 1n, undefined)]),
          ...ofEventNames(request),
          ...ofParams(request),
          ...(request.idSegment === undefined ? [] : [unknowable]),
        ]),
  ];
}

/**
 * How many rows of each row group a result has, from those that fulfil its conditions. Of several events one is derived:
 * how many are left, no statistics tell.
 */
export function countRows(
  request: ExportSpec,
  { event }: DatasetExport,
  groups: readonly RowGroup[],
  conditions: readonly Condition[],
): { readonly ofGroups: readonly Count[]; readonly rows: Count } {
  const fulfilling = groups.map((group) =>
    all(
      group.rows,
      conditions.map((condition) => condition(group)),
    ),
  );
  if (!('derive' in event)) return { ofGroups: fulfilling, rows: sum(fulfilling) };
  const ofGroups = fulfilling.map(({ most, expected }) => within(0, most, expected / 5));
  const { fromSeconds, beforeSeconds } = request.availableAt;
  const isCut = [request.eventTime.fromSeconds, fromSeconds, beforeSeconds, request.localDates].some(
    (bound) => bound !== undefined,
  );
  // Without a beginning, the first of all those events begins something.
  const least = !isCut && sum(fulfilling).least > 0 ? 1 : 0;
  const { most, expected } = sum(ofGroups);
  return { ofGroups, rows: within(least, most, expected) };
}
