import type { CommandContext } from './command.ts';

/** Writes a whole number with separators: `1,234,567`. */
export function formatCount(value: number): string {
  return value.toLocaleString('en-US');
}

/** Writes a time of seconds as a person reads it: `45 s`, `3 min`, `2.5 h`. */
export function formatDuration(seconds: number): string {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** Writes bytes as a person reads them: `900 B`, `1.2 MiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power] ?? ''}`;
}

/** What may stand for a value on a terminal: control characters and marks of direction would change what is read. */
const unshown = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const named: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };
/** What joins the parts of an emoji, or says that one is meant: shown as it is. */
const joiners = ['\u200d', '\ufe0f'];

/** Shows a text that somebody else wrote: what a terminal would obey, or not show, is written out. */
export function escapeText(text: string): string {
  return text.replaceAll(unshown, (sign) =>
    joiners.includes(sign) ? sign : (named[sign] ?? `\\u{${(sign.codePointAt(0) ?? 0).toString(16)}}`),
  );
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** `12.3 MiB`. */
export function showBytes(bytes: number): string {
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(bytes))) / 10)));
  const value = bytes / 1024 ** power;
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${units[power]}`;
}

const clock = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric',
  month: '2-digit',
  day: '2-digit',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
});

/** `2026-03-29 04:05:06 CEST`: the clocks of the terminal's zone, which TZ names. */
export function showTime(ms: number): string {
  const parts = Object.fromEntries(clock.formatToParts(ms).map(({ type, value }) => [type, value]));
  const { year, month, day, hour, minute, second, timeZoneName } = parts;
  return `${year}-${month}-${day} ${hour}:${minute}:${second} ${timeZoneName}`;
}

const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
/** Numbers that name something: a separator would make another name of them. */
const isName = /^(pid|port|version|since|sinceVersion|limit)$|^id[A-Z]|Id$|Version$/;
/** Later than 2001: a time, and no span, in milliseconds. */
const earliestMs = 1e12;

function showNumber(value: number | bigint, name: string): string {
  if (typeof value === 'number' && /^bytes|Bytes/.test(name)) return showBytes(value);
  if (/[a-z]Ms$/.test(name)) {
    const ms = Number(value);
    return ms >= earliestMs ? showTime(ms) : `${(ms / 1000).toLocaleString('en-US')} s`;
  }
  return isName.test(name) ? String(value) : value.toLocaleString('en-US', { maximumFractionDigits: 6 });
}

/** When a text is: ISO 8601, or the seconds that the API has under names such as timestampCreated. */
function timeOf(text: string, name: string): number | undefined {
  if (isoTime.test(text)) return Date.parse(text);
  return /^timestamp[A-Z]/.test(name) && /^\d{9,11}$/.test(text) ? Number(text) * 1000 : undefined;
}

/** Says whether a value means nothing when a part of it is left out: a number, a time, yes or no. */
export function isWhole(value: unknown, name: string): boolean {
  return typeof value === 'string'
    ? timeOf(value, name) !== undefined
    : !['object', 'undefined'].includes(typeof value);
}

/** Says whether a value is an object of fields. */
export function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Shows a value on one line; `name` is that of its field, which says what a number is. */
export function showValue(value: unknown, name: string): string {
  if (value === null || value === undefined) return '-';
  if (typeof value === 'string') {
    const ms = timeOf(value, name);
    return ms === undefined ? escapeText(value) : showTime(ms);
  }
  if (typeof value === 'number' || typeof value === 'bigint') return showNumber(value, name);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map((each: unknown) => showValue(each, name)).join(', ');
  if (!isFields(value)) return '';
  return Object.entries(value)
    .filter(([, each]) => each !== undefined)
    .map(([key, each]) => `${escapeText(key)} ${isFields(each) ? `(${showValue(each, key)})` : showValue(each, key)}`)
    .join(', ');
}

const wide =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/u;
const graphemes = new Intl.Segmenter();
const isAscii = /^[\u0020-\u007e]*$/;

const widthOfGrapheme = (grapheme: string): number => (wide.test(grapheme) ? 2 : /^\p{M}/u.test(grapheme) ? 0 : 1);

/** Columns of a terminal that a text takes. */
export function widthOf(text: string): number {
  if (isAscii.test(text)) return text.length;
  return [...graphemes.segment(text)].reduce((width, { segment }) => width + widthOfGrapheme(segment), 0);
}

/** Lays a text out in lines of so many columns at most, cut at spaces; a word that is longer has a line of its own. */
export function wrapText(text: string, columns: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line === undefined || widthOf(line) + 1 + widthOf(word) > columns) lines.push(word);
    else lines[lines.length - 1] = `${line} ${word}`;
  }
  return lines;
}

/** Cuts a text to so many columns; an ellipsis says that there is more. */
export function cutText(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let [kept, width] = ['', 0];
  for (const { segment } of graphemes.segment(text)) {
    width += widthOfGrapheme(segment);
    if (width > columns - 1) break;
    kept += segment;
  }
  return `${kept}…`;
}

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

/** A table is shown when it has so many rows: more of a long list than a person reads, and no matter for memory. */
const rowsAtOnce = 1000;

/** What is told apart in a list of answers: `{"notice":{...}}` is a row of notices. */
interface Part {
  readonly name: string;
  readonly row: AnswerRow;
}

function toPart(answer: AnswerRow): Part {
  const [entry, ...more] = Object.entries(answer);
  const [name, value] = entry ?? ['', undefined];
  return more.length === 0 && isFields(value) ? { name, row: value } : { name: '', row: answer };
}

/** The context of a command whose answers a person reads, and what ends it. */
export interface Shown {
  readonly context: CommandContext;
  /** Writes what is collected; says so where a list was done and had nothing. */
  readonly end: (isDone: boolean) => void;
}

/**
 * Shows the answers of a command for a person: fields, or, where they are a list, a table. What else the command writes
 * comes behind the rows that it has answered before.
 */
export function showAnswers(context: CommandContext, columns: number, isList: boolean): Shown {
  const { print, note } = context;
  let parts: Part[] = [];
  let shown = 0;
  const flush = (): void => {
    const rows = parts.map(({ row }) => row);
    const name = parts[0]?.name ?? '';
    parts = [];
    if (rows.length === 0) return;
    if (shown > 0) print('');
    if (name !== '') print(name);
    shown += rows.length;
    for (const line of renderTable(rows, columns)) print(line);
  };
  const answer = (value: unknown): void => {
    if (!isFields(value)) return print(JSON.stringify(value));
    if (!isList) return renderFields(value, columns).forEach((line) => print(line));
    const part = toPart(value);
    if (parts.length >= rowsAtOnce || (parts.length > 0 && parts[0]?.name !== part.name)) flush();
    parts.push(part);
  };
  const after =
    (write: (line: string) => void) =>
    (line: string): void => {
      flush();
      write(line);
    };
  return {
    context: { ...context, answer, print: after(print), note: after(note) },
    end(isDone) {
      flush();
      if (isDone && isList && shown === 0) note('none');
    },
  };
}
