import type { ExportSpec } from '../../jobs/export-spec.ts';
import { none, sum, within, type Count } from './count.ts';
import type { RowGroup } from './row-groups.ts';
import { valueSize, type SizePlan, type ValueSize } from './value-size.ts';

/**
 * What a kind of file makes of values, bytes: what stands around a text and a list, how much a byte of text grows at
 * most when it is escaped, and what an empty cell is.
 */
interface Rendering {
  readonly ofRow: (columns: readonly string[]) => number;
  readonly quotes: { readonly least: number; readonly most: number };
  readonly escaped: number;
  /** A number or a date. */
  readonly plain: { readonly least: number; readonly most: number };
  readonly empty: { readonly least: number; readonly most: number };
  /** Around a list, and with each of its items. */
  readonly list: { readonly least: number; readonly most: number };
  readonly item: { readonly least: number; readonly most: number };
}

const exactly = (bytes: number): Count => ({ least: bytes, most: bytes, expected: bytes });
const upTo = (most: number): { readonly least: number; readonly most: number } => ({ least: 0, most });
const nameBytes = (columns: readonly string[]): number => columns.reduce((bytes, name) => bytes + name.length, 0);

/** A cell that is alone in its row is `""` where it is empty. */
const csvRendering = (columns: readonly string[]): Rendering => ({
  ofRow: () => columns.length,
  quotes: upTo(2),
  escaped: 2,
  plain: upTo(0),
  empty: upTo(columns.length === 1 ? 2 : 0),
  list: { least: 2, most: 4 },
  item: { least: 2, most: 3 },
});

const jsonRendering: Rendering = {
  // Quotes and a colon with each name, commas between them, braces and the line break.
  ofRow: (columns) => nameBytes(columns) + 4 * columns.length + 2,
  quotes: { least: 2, most: 2 },
  escaped: 6,
  plain: upTo(2),
  empty: { least: 4, most: 4 },
  list: { least: 2, most: 2 },
  item: { least: 2, most: 3 },
};

/** Values as they are, or less; what a page, a dictionary and a filter have beside each. */
const parquetRendering: Rendering = {
  ofRow: () => 0,
  quotes: upTo(16),
  escaped: 1,
  plain: upTo(32),
  empty: upTo(16),
  list: upTo(32),
  item: upTo(32),
};

/** Of one cell, or of those of a whole row group. */
interface CellSize {
  readonly least: number;
  readonly most: number;
  readonly mean: number;
  readonly total: { readonly least: number; readonly most: number };
}

/** A product in which nothing of what is unbounded is nothing. */
const times = (a: number, b: number): number => (a === 0 || b === 0 ? 0 : a * b);

function listCells({ least, most, mean, total, items = 0, isPlain }: ValueSize, rows: number, as: Rendering): CellSize {
  const text = Math.min(total?.most ?? Infinity, times(items, most));
  const ofItems = times(items, as.item.most) + times(isPlain === true ? 1 : as.escaped, text);
  const all = times(rows, as.list.most) + ofItems;
  const each = rows === 0 ? 0 : (items * (mean + 3)) / rows;
  const leastOfAll = times(rows, as.list.least) + (total?.least ?? 0);
  return {
    least: as.list.least,
    most: as.list.most + ofItems,
    mean: Number.isFinite(each) ? 2 + each : 2 + least,
    total: { least: leastOfAll, most: all },
  };
}

/** Cells of a row group of `rows`, as a kind of file has them. */
function cells(size: ValueSize, rows: number, as: Rendering): CellSize {
  const { least, most, mean, total, nulls, isText, isPlain = false, items } = size;
  if (items !== undefined) {
    const list = listCells(size, rows, as);
    return nulls === 0
      ? list
      : { ...list, least: Math.min(list.least, as.empty.least), total: { least: 0, most: list.total.most } };
  }
  const around = isText ? as.quotes : as.plain;
  const factor = isText && !isPlain ? as.escaped : 1;
  const value = { least: least + around.least, most: factor * most + around.most };
  const isSurelyGiven = nulls === 0;
  // Where all may be empty, nobody knows how many are.
  const absent = nulls < rows ? nulls / rows : most === 0 ? 1 : 0.5;
  const ofAll =
    total === undefined ? undefined : factor * total.most + times(rows, Math.max(around.most, as.empty.most));
  return {
    least: isSurelyGiven ? value.least : Math.min(value.least, as.empty.least),
    most: isSurelyGiven ? value.most : Math.max(value.most, as.empty.most),
    mean: absent * as.empty.least + (1 - absent) * (mean + around.least),
    total: {
      least: total === undefined ? 0 : total.least,
      most: Math.min(ofAll ?? Infinity, times(rows, Math.max(value.most, as.empty.most))),
    },
  };
}

/** The bytes of those cells of a row group that are in the result. */
function ofRows({ least, most, mean, total }: CellSize, rows: number, count: Count): Count {
  const highest = Math.min(times(count.most, most), total.most);
  const left = times(rows - count.least, most);
  const lowest = Math.max(times(count.least, least), Number.isFinite(left) ? total.least - left : 0);
  return within(Math.min(lowest, highest), highest, count.expected * mean);
}

/** The cells of a result: how they are made, and of which rows. */
export interface ResultCells {
  readonly plan: SizePlan;
  readonly groups: readonly RowGroup[];
  /** Of each group the rows that are in the result. */
  readonly counts: readonly Count[];
}

/** The bytes of all cells of a result, with what stands between them. */
function cellBytes(selectors: readonly string[], { plan, groups, counts }: ResultCells, as: Rendering): Count {
  const ofRow = as.ofRow(selectors);
  const ofGroup = (group: RowGroup, count: Count): Count => {
    if (count.most === 0) return none;
    const between = { least: count.least * ofRow, most: times(count.most, ofRow), expected: count.expected * ofRow };
    const columns = selectors.map((name) =>
      ofRows(cells(valueSize(name, plan, group), group.rows, as), group.rows, count),
    );
    return sum([between, ...columns]);
  };
  return sum(groups.map((group, index) => ofGroup(group, counts[index] ?? none)));
}

/** What a compression may add to bytes that it cannot compress. */
const incompressible = (bytes: number): number => bytes + bytes / 64 + 4096;
/** Rows of a row group of Parquet are as many, or fewer where the engine ends one early. */
const groupRows = 100_000;
/** Beside its values a column has in a row group its pages' headers, its statistics, its filter. */
const columnBytes = 16_384;
/** What compression leaves of text, as a rule. */
const compressedShare = 0.15;

/**
 * The bytes of a result as the service's limit counts them: of CSV and JSON lines the text, however its files are
 * compressed; of `zstd` and Parquet the file. Without `result` it has no rows.
 */
export function resultBytes({ selectors, format = 'csv', compression }: ExportSpec, result?: ResultCells): Count {
  const counts = result?.counts ?? [];
  const bytesAs = (as: Rendering): Count => (result === undefined ? none : cellBytes(selectors, result, as));
  if (format === 'parquet') {
    const values = bytesAs(parquetRendering);
    const filled = counts.filter(({ most }) => most > 0).length;
    const written = Math.ceil(sum(counts).most / groupRows) + filled + 2;
    const most = incompressible(values.most) + written * selectors.length * columnBytes + 65_536;
    return within(1, most, values.expected * compressedShare + 1024 * selectors.length);
  }
  const as = format === 'csv' ? csvRendering(selectors) : jsonRendering;
  const header = format === 'csv' ? nameBytes(selectors) + selectors.length : 0;
  const text = sum([exactly(header), bytesAs(as)]);
  return compression === 'zstd' ? within(1, incompressible(text.most), text.expected * compressedShare) : text;
}
