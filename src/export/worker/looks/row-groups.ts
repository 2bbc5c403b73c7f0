import type { ColumnType } from '../../../datasets/field-schema.ts';
import type { DataFile } from '../../../lake/log/snapshot.ts';
import type { TextDictionary } from '../../../lake/files/dictionary-header.ts';

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
  /** Of texts with a dictionary, where it was looked at. */
  readonly dictionary: TextDictionary | undefined;
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
  /** What was measured of texts. */
  readonly lengths?: Lengths;
}

/** What was measured of the texts of a column, of which there is one at least. */
export interface Lengths {
  /** Bytes of the shortest and the longest. */
  readonly least: number;
  readonly most: number;
  /** Bytes of all. */
  readonly total: number;
  /** None has a character that a format escapes. */
  readonly isPlain: boolean;
}

/** Rows that lie together in a file, by what is known of them without reading any. */
export interface RowGroup {
  readonly rows: number;
  /** This service wrote the file: its values keep the limits of their fields. */
  readonly isOwn: boolean;
  /** Absent where nobody knows how many rows the file has. */
  readonly place?: { readonly file: string; readonly fromRow: number };
  /** Rows of the apps that are asked for; absent: nobody has counted them. */
  readonly ofApps?: number;
  /** A column of the table, or `COLUMN, key_value, key` (or `value`) of one that is a map. */
  column(name: string): ColumnFacts;
}

/** The type of a column by its name. */
export type TypeOf = (name: string) => ColumnType | undefined;

/** The column that a path of a footer is in. */
export const columnOf = (path: string): string => path.split(', ')[0] ?? '';

/** Nothing is known. */
export const unknown: ColumnFacts = { min: undefined, max: undefined, isExact: false, nulls: undefined };
const time = /^(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?(?:\+00|Z)$/;

/** A moment as the engine or the log writes it, microseconds; undefined for other texts. */
function parseMicros(text: string): bigint | undefined {
  const [, date, clock, fraction = ''] = time.exec(text) ?? [];
  const ms = date === undefined ? Number.NaN : Date.parse(`${date}T${clock}Z`);
  return Number.isNaN(ms) ? undefined : BigInt(ms) * 1000n + BigInt(fraction.padEnd(6, '0'));
}

/** A bound as it is compared; undefined where it is unknown, or of a type that nothing is compared by. */
export function parseBound(type: ColumnType | undefined, value: unknown): bigint | string | undefined {
  if (typeof value !== 'string' && typeof value !== 'number') return undefined;
  const text = String(value);
  if (type === 'VARCHAR') return text;
  if (type === 'TIMESTAMPTZ') return parseMicros(text);
  return (type === 'BIGINT' || type === 'SMALLINT') && /^-?\d{1,19}$/.test(text) ? BigInt(text) : undefined;
}

/** A file as one row group, by the log alone. */
export function fromLog(file: DataFile, typeOf: TypeOf): RowGroup {
  const { numRecords = Infinity, minValues, maxValues, sha256 } = file;
  const isOwn = sha256 !== undefined;
  return {
    rows: numRecords,
    isOwn,
    ...(isOwn && numRecords < Infinity ? { place: { file: file.absolutePath, fromRow: 0 } } : {}),
    column(name) {
      const type = typeOf(name);
      const [min, max] = [parseBound(type, minValues[name]), parseBound(type, maxValues[name])];
      // The log keeps milliseconds: a maximum may stand for up to one more.
      const isTime = type === 'TIMESTAMPTZ' && typeof max === 'bigint';
      return { min, max: isTime ? max + 999n : max, isExact: isOwn && !isTime, nulls: undefined };
    },
  };
}
