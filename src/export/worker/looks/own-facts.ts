import { sqlName } from '../../../lake/sql/literals.ts';
import type { FileFormat } from '../../jobs/export-spec.ts';
import { filesSql } from '../export-query.ts';
import type { QueryEngine } from '../query-engine.ts';
import { partsSql, partsOf, type Placed } from './count-apps.ts';
import { listSql, measuredCells, textSql, toLengths } from './text-lengths.ts';
import { columnOf, unknown, type ColumnFacts, type RowGroup, type TypeOf } from './row-groups.ts';

/** Values that are looked at, at most: some seconds at low priority. */
const mostValues = 200_000_000;
/** Texts in which it is looked for what JSON escapes, at most: a second. */
const mostEscaped = 10_000_000;
/** What a map costs beside a number or a text. */
const mapValues = 5;

type Row = Readonly<Record<string, unknown>>;

/** How the facts of one path of a footer are found: SQL of what a row says of it, and what is made of the answer. */
interface Look {
  readonly path: string;
  readonly cells: Readonly<Record<string, string>>;
  readonly toFacts: (cell: (name: string) => unknown, rows: number) => ColumnFacts;
}

const numberOf = (value: unknown): number =>
  typeof value === 'bigint' || typeof value === 'number' ? Number(value) : 0;
const boundOf = (value: unknown): bigint | string | undefined =>
  typeof value === 'bigint' || typeof value === 'string' ? value : undefined;

/** Texts: `values`, those that are NULL included, of which `given` are not. */
function textFacts(cell: (name: string) => unknown, values: number): ColumnFacts {
  const given = numberOf(cell('given'));
  const lengths = toLengths(cell);
  const bytes = (lengths?.total ?? 0) + 4 * given;
  return {
    min: boundOf(cell('min')),
    max: boundOf(cell('max')),
    isExact: true,
    nulls: values - given,
    chunk: { values, bytes, encoding: 'plain', distinct: undefined, dictionary: undefined },
    ...(lengths === undefined ? {} : { lengths }),
  };
}

/** The keys or values of a map; a row without any counts as one that is NULL, as footers have it. */
function ofMap(name: string, part: 'key' | 'value', format: FileFormat | undefined): Look {
  const items = `map_${part}s(events.${sqlName(name)})`;
  return {
    path: `${name}, key_value, ${part}`,
    cells: {
      min: `min(list_min(${items}))`,
      max: `max(list_max(${items}))`,
      values: `sum(greatest(1, coalesce(len(${items}), 0)))::BIGINT`,
      given: `sum(coalesce(list_count(${items}), 0))::BIGINT`,
      ...measuredCells(listSql(items, format)),
    },
    toFacts: (cell) => textFacts(cell, numberOf(cell('values'))),
  };
}

function ofNumber(path: string, given: string, [min, max]: readonly [string, string]): Look {
  return {
    path,
    cells: { min, max, given },
    toFacts: (cell, rows) => ({
      min: boundOf(cell('min')),
      max: boundOf(cell('max')),
      isExact: true,
      nulls: rows - numberOf(cell('given')),
    }),
  };
}

/** What is looked at of a path; undefined where the table has no such column. */
function lookAt(path: string, typeOf: TypeOf, format: FileFormat | undefined): Look | undefined {
  const name = columnOf(path);
  const column = `events.${sqlName(name)}`;
  const given = `count(${column})`;
  switch (typeOf(name)) {
    case undefined:
      return undefined;
    case 'MAP(VARCHAR, VARCHAR)':
      return ofMap(name, path.endsWith(', key') ? 'key' : 'value', format);
    case 'VARCHAR': {
      const cells = { min: `min(${column})`, max: `max(${column})`, given, ...measuredCells(textSql(column, format)) };
      return { path, cells, toFacts: textFacts };
    }
    case 'BIGINT':
    case 'SMALLINT':
      return ofNumber(path, given, [`min(${column})::BIGINT`, `max(${column})::BIGINT`]);
    case 'TIMESTAMPTZ':
      return ofNumber(path, given, [`epoch_us(min(${column}))`, `epoch_us(max(${column}))`]);
    default:
      return ofNumber(path, given, ['NULL', 'NULL']);
  }
}

/** The paths of footers that some work asks a row group for. */
export function findAsked(work: (group: RowGroup) => void): readonly string[] {
  const asked = new Set<string>();
  work({
    rows: 1,
    isOwn: true,
    column(path) {
      asked.add(path);
      return unknown;
    },
  });
  return [...asked];
}

/** What is read, of a table whose empty file has all columns. */
export interface OwnFactsRead {
  /** The paths that a row group will be asked for. */
  readonly asked: readonly string[];
  readonly format: FileFormat;
  readonly emptyFile: string;
  readonly typeOf: TypeOf;
}

/** A row group in which rows of the apps lie beside those of others. */
function isShared(group: RowGroup): group is Placed & { readonly ofApps: number } {
  return group.place !== undefined && group.ofApps !== undefined && group.ofApps < group.rows;
}

/** A row group that has the rows of the apps alone. */
function ownGroup(
  { isOwn }: RowGroup,
  rows: number,
  facts: ReadonlyMap<string, ColumnFacts>,
  typeOf: TypeOf,
): RowGroup {
  const others = (path: string): ColumnFacts =>
    typeOf(columnOf(path)) === undefined ? { ...unknown, nulls: rows } : unknown;
  return { rows, ofApps: rows, isOwn, column: (path) => facts.get(path) ?? others(path) };
}

/**
 * Puts in the place of row groups that others share what the rows of the apps say by themselves. What a footer says of
 * all its rows would tell an account what others have: whoever asks which values there may be, again and again, would
 * find out the least and the greatest of them. Of groups that would be too much to read nothing is known but their number
 * of rows. Errors: `sql` where a file cannot be read.
 */
export async function readOwnFacts(
  engine: QueryEngine,
  groups: readonly RowGroup[],
  { asked, format, emptyFile, typeOf }: OwnFactsRead,
): Promise<RowGroup[]> {
  const shared = groups.reduce((rows, group) => rows + (isShared(group) ? group.rows : 0), 0);
  const looksFor = format === 'jsonl' && shared * asked.length > mostEscaped ? undefined : format;
  const looks = asked.flatMap((path) => lookAt(path, typeOf, looksFor) ?? []);
  const ofRow = looks.reduce((sum, { cells }) => sum + ('values' in cells ? mapValues : 1), 0);
  let left = mostValues;
  const read = [...groups.entries()].flatMap(([part, group]) => {
    if (!isShared(group) || group.rows * ofRow > left) return [];
    left -= group.rows * ofRow;
    return [{ part, ...group }];
  });
  const factsOf = new Map<number, ReadonlyMap<string, ColumnFacts>>();
  if (read.length > 0) {
    const cells = looks.flatMap(({ cells: own }, index) =>
      Object.entries(own).map(([name, sql]) => `${sql} AS ${name}_${index}`),
    );
    const { files, values } = partsOf(read, [emptyFile]);
    const sql = `SELECT parts.part, count(*) AS rows, ${cells.join(', ')} FROM ${filesSql} AS events ${partsSql} GROUP BY parts.part`;
    for (const row of await engine.rows({ sql, values }, files)) factsOf.set(Number(row['part']), toFacts(looks, row));
  }
  return groups.map((group, part) =>
    isShared(group) ? ownGroup(group, group.ofApps, factsOf.get(part) ?? new Map(), typeOf) : group,
  );
}

function toFacts(looks: readonly Look[], row: Row): ReadonlyMap<string, ColumnFacts> {
  const rows = numberOf(row['rows']);
  return new Map(
    looks.map(({ path, toFacts: make }, index) => [path, make((name) => row[`${name}_${index}`], rows)] as const),
  );
}
