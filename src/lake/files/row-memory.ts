import { eventColumns } from '../../datasets/event-fields.ts';
import type { Column } from '../../datasets/field-schema.ts';

/**
 * Memory of rows in an engine, which file sizes do not show. Measured with DuckDB 1.5: a sort spills, but holds 122,880
 * rows of its result at once; a COPY holds a row group.
 */

/** Rows of a sort's result that are in memory at once; also the default row group. */
const rowsAtOnce = 122_880;
/** Bytes per value in a row. */
const bytesOfValue = 16;
/** Bytes per map entry, without its texts. */
const bytesOfEntry = 48;

/** SQL for a row's bytes in memory. Empty columns count too: 150 of them take 2,400 bytes. */
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

/** Limits of an engine's memory, bytes. */
export interface EngineBudget {
  /** Wide rows of one sort. 122,880 other rows fit as well. */
  readonly wideBytes: number;
  /** Bytes above which a row is wide. */
  readonly wideRowBytes: number;
  readonly rowGroupBytes: number;
  /** Event lines that are converted at once. JSON is up to six times smaller than rows. */
  readonly lineBytes: number;
}

/** Returns the budget for a sort of wide rows and the row group that it fills. */
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

/** DuckDB's default dictionary of a text column, bytes. */
const dictionaryBytes = 1024 * 1024;

/** Limits dictionaries to half of the memory: without it an engine of 128 MiB cannot write 155 columns. */
export function boundDictionaries(memoryMb: number, columns: number): { readonly dictionaryBytes?: number } {
  const memoryBytes = memoryMb * 1024 * 1024;
  if (columns * dictionaryBytes <= memoryBytes / 2) return {};
  return { dictionaryBytes: Math.max(16 * 1024, Math.floor(memoryBytes / 8 / columns)) };
}

/** Returns the limits of a sealed file's row groups. */
export function rowGroupBounds(memoryMb: number, columns: number) {
  return { bytes: engineBudget(memoryMb).rowGroupBytes, ...boundDictionaries(memoryMb, columns) };
}

/** Minimum rows of a row group: the engine's vector size. */
const minRows = 2048;

/** Returns the rows of a row group that fit in memory, by bytes of event lines and map entries. */
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
  return Math.min(rowsAtOnce, Math.max(minRows, Math.floor(engineBudget(memoryMb).rowGroupBytes / rowBytes)));
}
