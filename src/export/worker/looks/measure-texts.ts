import { getSelector } from '../../../datasets/dictionaries.ts';
import { sqlName } from '../../../lake/sql/literals.ts';
import type { FileFormat } from '../../jobs/export-spec.ts';
import { filesSql } from '../export-query.ts';
import type { QueryEngine } from '../query-engine.ts';
import { partsOf, partsSql, type Placed } from './count-apps.ts';
import type { ColumnFacts, Lengths, RowGroup, TypeOf } from './row-groups.ts';
import { listSql, measuredCells, textSql, toLengths, type TextSql } from './text-lengths.ts';

/** Values that are measured, at most: a second or two. */
const mostValues = 20_000_000;
/** What it costs to find out to which row group a row belongs, beside a text. */
const rowValues = 2;
/** What a map, or a text of JSON lines, costs beside a text. */
const mapValues = 10;
const jsonValues = 5;

/** What is measured: a path of a file's footer, and SQL of what a row's texts there are. */
interface Measure extends TextSql {
  readonly path: string;
  readonly values: number;
}

/** What a selector's texts are measured by; undefined where it shows none of the table's. */
function measureOf(name: string, typeOf: TypeOf, format: FileFormat): Measure | undefined {
  const { source } = getSelector(name);
  const ofMap = (column: string, part: 'key' | 'value'): Measure | undefined =>
    typeOf(column) && {
      path: `${column}, key_value, ${part}`,
      values: mapValues,
      ...listSql(`map_${part}s(events.${sqlName(column)})`, format),
    };
  if ('mapKeys' in source) return ofMap(source.mapKeys, 'key');
  if ('mapValues' in source) return ofMap(source.mapValues, 'value');
  if (!('column' in source) || typeOf(source.column) !== 'VARCHAR') return undefined;
  return {
    path: source.column,
    values: format === 'jsonl' ? jsonValues : 1,
    ...textSql(`events.${sqlName(source.column)}`, format),
  };
}

/** A text of a dictionary that is not there in every row: of others the footer says enough. */
function isOpen({ min, max, chunk }: ColumnFacts): boolean {
  return chunk?.encoding === 'dictionary' && chunk.distinct !== 1 && (min === undefined || min !== max);
}

/** The row groups that are read for it: so many values as may be, of whole files. */
function chooseGroups(
  groups: readonly RowGroup[],
  measures: readonly Measure[],
): (Placed & { readonly part: number })[] {
  const ofFile = new Map<string, (Placed & { readonly part: number })[]>();
  for (const [part, { place, ...group }] of groups.entries()) {
    if (place === undefined) continue;
    const known = ofFile.get(place.file) ?? [];
    if (known.push({ ...group, place, part }) === 1) ofFile.set(place.file, known);
  }
  const ofRow = measures.reduce((sum, { values }) => sum + values, rowValues);
  let left = mostValues;
  return [...ofFile.values()].flatMap((known) => {
    const values = known.reduce((sum, { rows }) => sum + rows * ofRow, 0);
    if (values > left) return [];
    left -= values;
    return known;
  });
}

/** What is measured, of a table whose empty file has all columns. */
interface TextsRead {
  readonly selectors: readonly string[];
  readonly format: FileFormat;
  readonly emptyFile: string;
  readonly typeOf: TypeOf;
}

/** Adds what was measured to what is known of a row group. */
function withLengths(group: RowGroup, known: ReadonlyMap<string, Lengths>): RowGroup {
  return {
    ...group,
    column(name) {
      const lengths = known.get(name);
      const facts = group.column(name);
      return lengths === undefined ? facts : { ...facts, lengths };
    },
  };
}

/**
 * Measures the texts of the selectors in files where dictionaries keep them: footers do not say how long the longest is,
 * and every row may have that; nor whether a format has anything to escape in them. Rows of other apps in the same file
 * tell nothing. Files that would be too much to read stay as they are. Errors: `sql` where a file cannot be read.
 */
export async function measureTexts(
  engine: QueryEngine,
  groups: readonly RowGroup[],
  { selectors, format, emptyFile, typeOf }: TextsRead,
): Promise<RowGroup[]> {
  const measures = new Map(
    selectors.flatMap((name) => {
      const measure = measureOf(name, typeOf, format);
      return measure === undefined ? [] : [[measure.path, measure] as const];
    }),
  );
  const open = [...measures.values()].filter(({ path }) => groups.some((group) => isOpen(group.column(path))));
  const chosen = open.length === 0 ? [] : chooseGroups(groups, open);
  if (chosen.length === 0) return [...groups];
  const cells = open.flatMap((measure, index) =>
    Object.entries(measuredCells(measure)).map(([name, cell]) => `${cell} AS ${name}_${index}`),
  );
  const { files, values } = partsOf(chosen, [emptyFile]);
  const sql = `SELECT parts.part, ${cells.join(', ')} FROM ${filesSql} AS events ${partsSql} GROUP BY parts.part`;
  const known = new Map<number, Map<string, Lengths>>();
  for (const row of await engine.rows({ sql, values }, files)) {
    const ofGroup = new Map<string, Lengths>();
    for (const [index, { path }] of open.entries()) {
      const lengths = toLengths((name) => row[`${name}_${index}`]);
      if (lengths !== undefined) ofGroup.set(path, lengths);
    }
    known.set(Number(row['part']), ofGroup);
  }
  return groups.map((group, part) => {
    const ofGroup = known.get(part);
    return ofGroup === undefined ? group : withLengths(group, ofGroup);
  });
}
