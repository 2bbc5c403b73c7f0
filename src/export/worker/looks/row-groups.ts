import type { ColumnType } from '../../../datasets/field-schema.ts';
import type { DataFile } from '../../../lake/log/snapshot.ts';
import { textOf, type QueryEngine } from '../query-engine.ts';

/** How the values of a column lie in a row group. */
export interface Chunk {
  /** Values, those that are NULL included; of a map's keys and values one for each row without any. */
  readonly values: number;
  /** Bytes of all pages before compression, headers included. */
  readonly bytes: number;
  /** `plain`: each text behind its length. `dictionary`: each different text so, once. */
  readonly encoding: 'plain' | 'dictionary' | 'other';
  /** Different values, where the file says so. */
  readonly distinct: number | undefined;
}

/** What is known of a column in a row group. Times are microseconds, dates and amounts have no bounds here. */
export interface ColumnFacts {
  readonly min: bigint | string | undefined;
  readonly max: bigint | string | undefined;
  /** Both bounds are values of rows; otherwise they may be a little beyond. */
  readonly isExact: boolean;
  /** Values that are NULL; undefined: unknown. */
  readonly nulls: number | undefined;
  /** Absent where only the log is known. */
  readonly chunk?: Chunk;
}

/** Rows that lie together in a file, by what is known of them without reading any. */
export interface RowGroup {
  readonly rows: number;
  /** This service wrote the file: its values keep the limits of their fields. */
  readonly isOwn: boolean;
  /** A column of the table, or `COLUMN, key_value, key` (or `value`) of one that is a map. */
  column(name: string): ColumnFacts;
}

/** The type of a column by its name. */
export type TypeOf = (name: string) => ColumnType | undefined;

/** Files whose footers are read, at most: the largest. Of the others the log says what is known. */
const mostFooters = 4000;
const unknown: ColumnFacts = { min: undefined, max: undefined, isExact: false, nulls: undefined };
const time = /^(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?(?:\+00|Z)$/;

/** A moment as the engine or the log writes it, microseconds; undefined for other texts. */
function parseMicros(text: string): bigint | undefined {
  const [, date, clock, fraction = ''] = time.exec(text) ?? [];
  const ms = date === undefined ? Number.NaN : Date.parse(`${date}T${clock}Z`);
  return Number.isNaN(ms) ? undefined : BigInt(ms) * 1000n + BigInt(fraction.padEnd(6, '0'));
}

/** A bound as it is compared; undefined where it is unknown, or of a type that nothing is compared by. */
function parseBound(type: ColumnType | undefined, value: unknown): bigint | string | undefined {
  if (typeof value !== 'string' && typeof value !== 'number') return undefined;
  const text = String(value);
  if (type === 'VARCHAR') return text;
  if (type === 'TIMESTAMPTZ') return parseMicros(text);
  return (type === 'BIGINT' || type === 'SMALLINT') && /^-?\d{1,19}$/.test(text) ? BigInt(text) : undefined;
}

/** A file as one row group, by the log alone. */
function fromLog(file: DataFile, typeOf: TypeOf): RowGroup {
  const { numRecords = Infinity, minValues, maxValues, sha256 } = file;
  const isOwn = sha256 !== undefined;
  return {
    rows: numRecords,
    isOwn,
    column(name) {
      const type = typeOf(name);
      const [min, max] = [parseBound(type, minValues[name]), parseBound(type, maxValues[name])];
      // The log keeps milliseconds: a maximum may stand for up to one more.
      const isTime = type === 'TIMESTAMPTZ' && typeof max === 'bigint';
      return { min, max: isTime ? max + 999n : max, isExact: isOwn && !isTime, nulls: undefined };
    },
  };
}

function encodingOf(encodings: string): Chunk['encoding'] {
  const names = encodings.split(', ').filter((name) => name !== 'RLE' && name !== 'BIT_PACKED');
  if (names.length !== 1) return 'other';
  if (names[0] === 'PLAIN') return 'plain';
  return names[0]?.endsWith('_DICTIONARY') === true ? 'dictionary' : 'other';
}

type FooterRow = Readonly<Record<string, unknown>>;

const countOf = (value: unknown): number | undefined =>
  typeof value === 'bigint' || typeof value === 'number' ? Number(value) : undefined;

function toFacts(row: FooterRow, type: ColumnType | undefined, isOwn: boolean): ColumnFacts {
  return {
    min: parseBound(type, textOf(row['min'])),
    max: parseBound(type, textOf(row['max'])),
    // Only texts may be cut short. Earlier versions of the engine, which cut none, do not say.
    isExact: type !== 'VARCHAR' || (row['is_exact'] ?? isOwn) === true,
    nulls: countOf(row['nulls']),
    chunk: {
      values: Number(row['values']),
      bytes: Number(row['bytes']),
      encoding: encodingOf(String(row['encodings'])),
      // What other writers say there may be a guess.
      distinct: isOwn ? countOf(row['different']) : undefined,
    },
  };
}

const footersSql = `SELECT file_name, row_group_id, row_group_num_rows AS rows, path_in_schema AS path, num_values AS values,
  encode(stats_min_value) AS min, encode(stats_max_value) AS max, min_is_exact AND max_is_exact AS is_exact,
  stats_null_count AS nulls, stats_distinct_count AS different, encodings, total_uncompressed_size AS bytes
FROM parquet_metadata($files) WHERE column_id = 0 OR list_contains($columns, split_part(path_in_schema, ', ', 1))`;

/** Reads the row groups of files from their footers. Errors: `sql` where a file cannot be read. */
async function fromFooters(
  engine: QueryEngine,
  files: readonly DataFile[],
  columns: readonly string[],
  typeOf: TypeOf,
): Promise<RowGroup[]> {
  if (files.length === 0) return [];
  const owners = new Map(files.map((file) => [file.absolutePath, file]));
  const rows = await engine.rows({ sql: footersSql, values: { columns } }, [...owners.keys()]);
  const groups = new Map<
    string,
    { readonly rows: number; readonly isOwn: boolean; readonly facts: Map<string, ColumnFacts> }
  >();
  for (const row of rows) {
    const [file, path] = [String(row['file_name']), String(row['path'])];
    const isOwn = owners.get(file)?.sha256 !== undefined;
    const key = `${String(row['row_group_id'])} ${file}`;
    const group = groups.get(key) ?? { rows: Number(row['rows']), isOwn, facts: new Map<string, ColumnFacts>() };
    groups.set(key, group);
    const type = path.includes(', key_value, ') ? 'VARCHAR' : typeOf(path);
    group.facts.set(path, toFacts(row, type, isOwn));
  }
  // A column that a file has not is NULL in all of its rows.
  return [...groups.values()].map(({ rows: count, isOwn, facts }) => ({
    rows: count,
    isOwn,
    column: (name) => facts.get(name) ?? { ...unknown, nulls: count },
  }));
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
  const groups = await fromFooters(engine, largest.slice(0, mostFooters), columns, typeOf);
  return [...groups, ...largest.slice(mostFooters).map((file) => fromLog(file, typeOf))];
}
