import type { ColumnType } from '../../../datasets/field-schema.ts';
import { readDictionaryHeaders, type TextDictionary } from '../../../lake/files/dictionary-header.ts';
import type { DataFile } from '../../../lake/log/snapshot.ts';
import type { QueryEngine } from '../query-engine.ts';
import {
  columnOf,
  fromLog,
  parseBound,
  unknown,
  type Chunk,
  type ColumnFacts,
  type RowGroup,
  type TypeOf,
} from './row-groups.ts';

/**
 * Files whose footers are read, at most, and what is kept of them, a column of a row group each: the largest files. Of the
 * others the log says what is known.
 */
const mostFooters = 4000;
const mostFacts = 600_000;
/** Files whose footers are read at once: what is not kept of them takes memory. */
const filesAtOnce = 64;
/** Dictionaries that are looked at, at most: each is a read of its own, some hundredths of a millisecond. */
const mostDictionaries = 20_000;

function encodingOf(encodings: string): Chunk['encoding'] {
  const names = encodings.split(', ').filter((name) => name !== 'RLE' && name !== 'BIT_PACKED');
  if (names.length !== 1) return 'other';
  if (names[0] === 'PLAIN') return 'plain';
  return names[0]?.endsWith('_DICTIONARY') === true ? 'dictionary' : 'other';
}

type FooterRow = Readonly<Record<string, unknown>>;

const countOf = (value: unknown): number | undefined =>
  typeof value === 'bigint' || typeof value === 'number' ? Number(value) : undefined;

function toFacts(
  row: FooterRow,
  type: ColumnType | undefined,
  { isOwn, dictionary }: { readonly isOwn: boolean; readonly dictionary: TextDictionary | undefined },
): ColumnFacts {
  return {
    min: parseBound(type, row['min']),
    max: parseBound(type, row['max']),
    // Only texts may be cut short. Earlier versions of the engine, which cut none, do not say.
    isExact: type !== 'VARCHAR' || (row['is_exact'] ?? isOwn) === true,
    nulls: countOf(row['nulls']),
    chunk: {
      values: Number(row['values']),
      bytes: Number(row['bytes']),
      encoding: encodingOf(String(row['encodings'])),
      // What other writers say there may be a guess.
      distinct: isOwn ? countOf(row['different']) : undefined,
      dictionary,
    },
  };
}

/** Rows of footers by what they have in common, in their order. */
function groupBy<Key>(rows: readonly FooterRow[], keyOf: (row: FooterRow) => Key): ReadonlyMap<Key, FooterRow[]> {
  const groups = new Map<Key, FooterRow[]>();
  for (const row of rows) {
    const group = groups.get(keyOf(row));
    if (group === undefined) groups.set(keyOf(row), [row]);
    else group.push(row);
  }
  return groups;
}

const footersSql = `SELECT file_name, row_group_id, row_group_num_rows AS rows, path_in_schema AS path, num_values AS values,
  stats_min_value AS min, stats_max_value AS max, min_is_exact AND max_is_exact AS is_exact, stats_null_count AS nulls,
  stats_distinct_count AS different, encodings, total_uncompressed_size AS bytes, dictionary_page_offset AS dictionary_at
FROM parquet_metadata($files) WHERE column_id = 0 OR list_contains($columns, split_part(path_in_schema, ', ', 1))
ORDER BY file_name, row_group_id`;

const pathOf = (row: FooterRow): string => String(row['path']);
const fileOf = (row: FooterRow): string => String(row['file_name']);
/** The type of a column, or of the keys or values of a map. */
const typeAt = (path: string, typeOf: TypeOf): ColumnType | undefined =>
  path.includes(', key_value, ') ? 'VARCHAR' : typeOf(path);

/** The dictionaries of columns of texts, by the column's row of a footer. */
async function readDictionaries(
  rows: readonly FooterRow[],
  typeOf: TypeOf,
  most: number,
): Promise<ReadonlyMap<FooterRow, TextDictionary | undefined>> {
  const hasTexts = (row: FooterRow): boolean =>
    typeAt(pathOf(row), typeOf) === 'VARCHAR' &&
    encodingOf(String(row['encodings'])) === 'dictionary' &&
    countOf(row['dictionary_at']) !== undefined;
  const places = groupBy(rows.filter(hasTexts).slice(0, most), fileOf);
  const found = new Map<FooterRow, TextDictionary | undefined>();
  for (const [file, columns] of places) {
    const headers = await readDictionaryHeaders(
      file,
      columns.map((row) => Number(row['dictionary_at'])),
    );
    for (const [index, row] of columns.entries()) found.set(row, headers[index]);
  }
  return found;
}

/** What was read of footers. */
interface FootersRead {
  readonly groups: readonly RowGroup[];
  readonly facts: number;
  readonly dictionaries: number;
}

/** Reads the row groups of files from their footers. Errors: `sql` where a file cannot be read; those of the system. */
async function fromFooters(
  engine: QueryEngine,
  files: readonly DataFile[],
  { columns, typeOf, dictionariesLeft }: FooterOptions,
): Promise<FootersRead> {
  const owners = new Map(files.map((file) => [file.absolutePath, file]));
  const found = await engine.rows({ sql: footersSql, values: { columns } }, [...owners.keys()]);
  const dictionaries = await readDictionaries(found, typeOf, dictionariesLeft);
  const groups: RowGroup[] = [];
  for (const [file, ofFile] of groupBy(found, fileOf)) {
    const isOwn = owners.get(file)?.sha256 !== undefined;
    let fromRow = 0;
    for (const ofGroup of groupBy(ofFile, (row) => row['row_group_id']).values()) {
      const rows = Number(ofGroup[0]?.['rows']);
      const facts = new Map<string, ColumnFacts>();
      for (const row of ofGroup) {
        const type = typeAt(pathOf(row), typeOf);
        facts.set(pathOf(row), toFacts(row, type, { isOwn, dictionary: dictionaries.get(row) }));
      }
      // A column that a file has not is NULL in all of its rows.
      const others = (path: string): ColumnFacts =>
        columns.includes(columnOf(path)) ? { ...unknown, nulls: rows } : unknown;
      groups.push({ rows, isOwn, place: { file, fromRow }, column: (path) => facts.get(path) ?? others(path) });
      fromRow += rows;
    }
  }
  return { groups, facts: found.length, dictionaries: dictionaries.size };
}

/** How footers are read. */
interface FooterOptions {
  /** Those that will be asked for. */
  readonly columns: readonly string[];
  readonly typeOf: TypeOf;
  /** Dictionaries that may be looked at. */
  readonly dictionariesLeft: number;
}

/** Of a file whose rows nobody has counted there may be any number. */
const rowsOf = ({ numRecords = Infinity }: DataFile): number => numRecords;

/**
 * What is known of the rows of files: by their footers where there are not too many, which are read without their rows.
 * `columns` are those that will be asked for. Errors: `sql` where a file cannot be read.
 */
export async function readRowGroups(
  engine: QueryEngine,
  files: readonly DataFile[],
  columns: readonly string[],
  typeOf: TypeOf,
): Promise<RowGroup[]> {
  const largest = files.toSorted((a, b) => rowsOf(b) - rowsOf(a) || 0);
  const groups: RowGroup[] = [];
  let [read, factsLeft, dictionariesLeft] = [0, mostFacts, mostDictionaries];
  while (read < Math.min(largest.length, mostFooters) && factsLeft > 0) {
    const batch = largest.slice(read, Math.min(read + filesAtOnce, mostFooters));
    const found = await fromFooters(engine, batch, { columns, typeOf, dictionariesLeft });
    groups.push(...found.groups);
    read += batch.length;
    factsLeft -= found.facts;
    dictionariesLeft -= found.dictionaries;
  }
  return [...groups, ...largest.slice(read).map((file) => fromLog(file, typeOf))];
}
