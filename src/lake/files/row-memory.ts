import { eventColumns } from '../../datasets/event-fields.ts';
import type { Column } from '../../datasets/field-schema.ts';

/**
 * What rows cost in an engine's memory. The size of a file says nothing of it: 10 KB of repeating text compress to 30
 * bytes, and Parquet's own "uncompressed" sizes count a repeated text once. Measured with DuckDB 1.5 on rows of 0.7 to
 * 60 KB: a sort spills to disk, and still needs 122,880 rows of its result in memory at once; a COPY holds a whole row
 * group.
 */

/** Rows of a sort's result that must be in memory at once, and rows of a row group by default. */
const rowsAtOnce = 122_880;
/** A value takes this in a row, whatever it is. */
const bytesOfValue = 16;
/** An entry of a map, without its texts. */
const bytesOfEntry = 48;

/**
 * SQL for the bytes that a row of a table with these columns takes in memory. Of the table of events: 500 for an empty
 * one, 60,000 for 1,300 parameters of two letters. Of a table of 150 columns, 2,400 for an empty one: a column costs
 * its place whether it has a value or not, so that each row counts as wide unless the engine has more than 400 MiB.
 */
export function rowBytesSql(columns: readonly Column[]): string {
  return columns
    .flatMap(({ name, type }) => {
      if (type === 'VARCHAR') return [`coalesce(strlen(${name}), 0)`];
      if (type !== 'MAP(VARCHAR, VARCHAR)') return [];
      const textBytes = (part: string): string =>
        `coalesce(list_sum(list_transform(${part}(${name}), lambda text: strlen(text))), 0)::BIGINT`;
      return [`${bytesOfEntry} * coalesce(cardinality(${name}), 0)`, textBytes('map_keys'), textBytes('map_values')];
    })
    .reduce((sum, part) => `${sum} + ${part}`, String(bytesOfValue * columns.length));
}

/** How much an engine may hold at once, bytes. */
export interface EngineBudget {
  /** Wide rows of one sort. 122,880 other rows fit besides. */
  readonly wideBytes: number;
  /** A row of more bytes is wide. */
  readonly wideRowBytes: number;
  readonly rowGroupBytes: number;
  /** Event lines that are converted at once; JSON is up to six times smaller than the rows. */
  readonly lineBytes: number;
}

/**
 * The budget of an engine: a sort of wide rows and the row group that it fills stay within the engine's memory. Where
 * memory is the default no event of ten parameters is wide: a quarter made 19 files of what three quarters make 5 of.
 */
export function engineBudget(memoryMb: number): EngineBudget {
  const memoryBytes = memoryMb * 1024 * 1024;
  const wideBytes = Math.floor((memoryBytes * 3) / 4);
  return {
    wideBytes,
    wideRowBytes: Math.floor(wideBytes / rowsAtOnce),
    rowGroupBytes: Math.floor(memoryBytes / 8),
    lineBytes: Math.floor(memoryBytes / 8),
  };
}

/** The engine reserves this for the dictionary of each text column by default. */
const dictionaryBytes = 1024 * 1024;

/**
 * The bound on the dictionaries of a table of so many columns, for `RowGroup`: none where all of them, at their full
 * size, take no more than half of the engine's memory. Measured: 155 columns cannot be written by an engine of 128 MiB
 * without it, whatever their rows.
 */
export function boundDictionaries(memoryMb: number, columns: number): { readonly dictionaryBytes?: number } {
  const memoryBytes = memoryMb * 1024 * 1024;
  if (columns * dictionaryBytes <= memoryBytes / 2) return {};
  return { dictionaryBytes: Math.max(16 * 1024, Math.floor(memoryBytes / 8 / columns)) };
}

/** Returns the bounds of the row groups of a sealed file of a table with this number of columns. */
export function rowGroupBounds(memoryMb: number, columns: number) {
  return { bytes: engineBudget(memoryMb).rowGroupBytes, ...boundDictionaries(memoryMb, columns) };
}

/** Fewest rows of a row group: the engine's vector size. */
const leastRows = 2048;

/**
 * The rows of a row group that an engine has memory for, from the bytes of the event lines and the entries of their
 * maps.
 */
export function rowGroupRows(
  memoryMb: number,
  {
    rows,
    lineBytes,
    entries,
    columns = eventColumns.length,
  }: { readonly rows: number; readonly lineBytes: number; readonly entries: number; readonly columns?: number },
): number {
  const rowBytes = bytesOfValue * columns + (lineBytes + bytesOfEntry * entries) / Math.max(1, rows);
  return Math.min(rowsAtOnce, Math.max(leastRows, Math.floor(engineBudget(memoryMb).rowGroupBytes / rowBytes)));
}
