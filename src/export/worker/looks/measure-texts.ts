import { getSelector } from '../../../datasets/dictionaries.ts';
import { sqlName } from '../../../lake/sql/literals.ts';
import { filesSql } from '../export-query.ts';
import type { QueryEngine } from '../query-engine.ts';
import type { ColumnFacts, RowGroup, TypeOf } from './row-groups.ts';

/** Values that are measured, at most: some tenths of a second. */
const mostValues = 20_000_000;
/** What a map costs beside a text. */
const mapValues = 10;

/** The bytes of a column's shortest and longest value. */
interface Lengths {
  readonly least: number;
  readonly most: number;
}

/** What is measured: a path of a file's footer, and SQL of the bytes of a row's shortest and longest value there. */
interface Measure {
  readonly path: string;
  readonly least: string;
  readonly most: string;
  readonly values: number;
}

function ofMap(column: string, part: 'key' | 'value'): Measure {
  const bytes = `list_transform(map_${part}s(events.${sqlName(column)}), lambda item: strlen(item))`;
  const path = `${column}, key_value, ${part}`;
  return { path, least: `list_min(${bytes})`, most: `list_max(${bytes})`, values: mapValues };
}

/** What a selector's texts are measured by; undefined where it shows none of the table's. */
function measureOf(name: string, typeOf: TypeOf): Measure | undefined {
  const { source } = getSelector(name);
  if ('mapKeys' in source) return typeOf(source.mapKeys) && ofMap(source.mapKeys, 'key');
  if ('mapValues' in source) return typeOf(source.mapValues) && ofMap(source.mapValues, 'value');
  if (!('column' in source) || typeOf(source.column) !== 'VARCHAR') return undefined;
  const bytes = `strlen(events.${sqlName(source.column)})`;
  return { path: source.column, least: bytes, most: bytes, values: 1 };
}

/** A text of a dictionary that is not there in every row: of others the footer says enough. */
function isOpen({ min, max, chunk }: ColumnFacts): boolean {
  return chunk?.encoding === 'dictionary' && chunk.distinct !== 1 && (min === undefined || min !== max);
}

/** The files that are read for it: so many values as may be. */
function chooseFiles(groups: readonly RowGroup[], measures: readonly Measure[]): string[] {
  const rowsOf = new Map<string, number>();
  for (const { place, rows } of groups)
    if (place !== undefined) rowsOf.set(place.file, (rowsOf.get(place.file) ?? 0) + rows);
  const ofRow = measures.reduce((sum, { values }) => sum + values, 0);
  let left = mostValues;
  const files: string[] = [];
  for (const [file, rows] of rowsOf) {
    if (rows * ofRow > left) continue;
    left -= rows * ofRow;
    files.push(file);
  }
  return files;
}

/** What is measured, of a table whose empty file has all columns. */
interface TextsRead {
  readonly selectors: readonly string[];
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
 * and every row may have that; rows of other apps in the same file tell nothing. Files that would be too much to read stay as they are. Errors: `sql` where a file cannot be
 * read.
 */
export async function measureTexts(
  engine: QueryEngine,
  groups: readonly RowGroup[],
  { selectors, emptyFile, typeOf }: TextsRead,
): Promise<RowGroup[]> {
  const measures = new Map(
    selectors.flatMap((name) => {
      const measure = measureOf(name, typeOf);
      return measure === undefined ? [] : [[measure.path, measure] as const];
    }),
  );
  const open = [...measures.values()].filter(({ path }) => groups.some((group) => isOpen(group.column(path))));
  const files = chooseFiles(groups, open);
  if (open.length === 0 || files.length === 0) return [...groups];
  const cells = open.map(({ least, most }, index) => `min(${least}) AS least_${index}, max(${most}) AS most_${index}`);
  const sql = `SELECT events.file_index AS file, ${cells.join(', ')} FROM ${filesSql} AS events
    WHERE events.id_app IN (SELECT id_app FROM apps) GROUP BY ALL`;
  const found = await engine.rows({ sql, values: {} }, [emptyFile, ...files]);
  const known = new Map<string, Map<string, Lengths>>();
  for (const row of found) {
    const ofFile = new Map<string, Lengths>();
    for (const [index, { path }] of open.entries()) {
      const most = row[`most_${index}`];
      if (typeof most === 'bigint') ofFile.set(path, { least: Number(row[`least_${index}`]), most: Number(most) });
    }
    known.set(files[Number(row['file']) - 1] ?? '', ofFile);
  }
  return groups.map((group) => {
    const ofFile = known.get(group.place?.file ?? '');
    return ofFile === undefined ? group : withLengths(group, ofFile);
  });
}
