import { cutText, escapeText, isFields, isWhole, showValue, widthOf, wrapText } from './answer-values.ts';

/** One row of an answer. */
export type AnswerRow = Readonly<Record<string, unknown>>;

/** Columns between two of a table. */
const gap = 2;
/** A column of texts is made no narrower than this for the sake of others. */
const narrowest = 8;

/** A column of texts as they are shown, but for what a terminal would obey. */
export interface GridColumn {
  readonly name: string;
  readonly cells: readonly string[];
  /** To the right, and never cut. */
  readonly isNumeric: boolean;
  /** Never cut, either. */
  readonly isWhole?: boolean;
}

interface Column extends GridColumn {
  /** What it takes, and what it needs. */
  readonly width: number;
  readonly least: number;
}

function measure({ name, cells, isNumeric, isWhole: isKept = false }: GridColumn): Column {
  const [head, shown] = [escapeText(name), cells.map(escapeText)];
  const width = shown.reduce((most, cell) => Math.max(most, widthOf(cell)), widthOf(head));
  const least = isNumeric || isKept ? width : Math.min(width, narrowest);
  return { name: head, cells: shown, isNumeric, width, least };
}

function toColumn(name: string, rows: readonly AnswerRow[]): GridColumn {
  const values = rows.map((row) => row[name]);
  return {
    name,
    cells: values.map((value) => (value === undefined ? '' : showValue(value, name))),
    isNumeric: values.every((value) => value === undefined || ['number', 'bigint'].includes(typeof value)),
    isWhole: values.every((value) => value === undefined || isWhole(value, name)),
  };
}

/** The widths of those columns that fit into `room`: the widest texts give way first, the last columns fall away. */
function fitWidths(columns: readonly Column[], room: number): readonly number[] {
  const total = (count: number, widthOfColumn: (column: Column) => number): number =>
    columns.slice(0, count).reduce((sum, column) => sum + widthOfColumn(column) + gap, -gap);
  let count = columns.length;
  while (count > 1 && total(count, ({ least }) => least) > room) count -= 1;
  let most = Math.max(...columns.slice(0, count).map(({ width }) => width));
  const cut = ({ width, least }: Column): number => Math.max(least, Math.min(width, most));
  while (most > 1 && total(count, cut) > room) most -= 1;
  return columns.slice(0, count).map((column) => Math.min(cut(column), room));
}

function pad(text: string, width: number, toRight: boolean): string {
  const space = ' '.repeat(Math.max(0, width - widthOf(text)));
  return toRight ? `${space}${text}` : `${text}${space}`;
}

/**
 * Lays columns of equal length out as a table, at most so wide: a head with their names, a line for each row. What does
 * not fit is cut, and said.
 */
export function renderGrid(grid: readonly GridColumn[], columns: number): string[] {
  const all = grid.map(measure);
  const widths = fitWidths(all, columns);
  const shown = all.slice(0, widths.length);
  const line = (textOf: (column: Column) => string): string =>
    shown
      .map((column, index) => {
        const width = widths[index] ?? 0;
        return pad(cutText(textOf(column), width), width, column.isNumeric);
      })
      .join(' '.repeat(gap))
      .trimEnd();
  const left = all.slice(widths.length).map(({ name }) => name);
  return [
    line(({ name }) => name),
    ...(all[0]?.cells ?? []).map((_, index) => line(({ cells }) => cells[index] ?? '')),
    ...(left.length === 0 ? [] : [cutText(`(not shown: ${left.join(', ')}; --json has all)`, columns)]),
  ];
}

/** Lays rows out as a table of the fields that any of them has. */
export function renderTable(rows: readonly AnswerRow[], columns: number): string[] {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => row[name] !== undefined)))];
  return renderGrid(
    names.map((name) => toColumn(name, rows)),
    columns,
  );
}

const isRows = (value: unknown): value is readonly AnswerRow[] =>
  Array.isArray(value) && value.length > 0 && value.every(isFields);

/** Says whether a value takes lines of its own. */
const isBlock = (value: unknown): boolean => isRows(value) || (isFields(value) && Object.keys(value).length > 0);

/** A text that is read, not looked up: what is cut off it is missed. */
const isSentence = (value: unknown): boolean => typeof value === 'string' && value.length > 50 && value.includes(' ');

/** Rows that have rows, fields or sentences of their own are no table. */
function renderRows(rows: readonly AnswerRow[], columns: number): string[] {
  if (!rows.some((row) => Object.values(row).some((value) => isBlock(value) || isSentence(value))))
    return renderTable(rows, columns);
  return rows.flatMap((row, index) => [...(index === 0 ? [] : ['']), ...renderFields(row, columns)]);
}

/** Lays an object out, a line for each field, sentences in as many as they take; objects and lists of objects below their name. */
export function renderFields(fields: AnswerRow, columns: number): string[] {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  const names = entries.filter(([, value]) => !isBlock(value)).map(([name]) => widthOf(escapeText(name)));
  const width = Math.max(0, ...names);
  return entries.flatMap(([name, value]) => {
    const head = escapeText(name);
    const inner = columns - gap;
    const below = isRows(value) ? renderRows(value, inner) : isFields(value) ? renderFields(value, inner) : [];
    if (isBlock(value)) return [head, ...below.map((line) => (line === '' ? '' : `${' '.repeat(gap)}${line}`))];
    const text = isFields(value) || (Array.isArray(value) && value.length === 0) ? 'none' : showValue(value, name);
    const lines = isSentence(value) ? wrapText(text, Math.max(narrowest, columns - width - gap)) : [text];
    return lines.map((line, index) => `${pad(index === 0 ? head : '', width, false)}  ${line}`);
  });
}
