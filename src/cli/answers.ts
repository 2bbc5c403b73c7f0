import stringWidth from 'string-width';
import type { CommandContext } from './command.ts';
import { isRecord } from '../runtime/files/checked-json.ts';

/*
 * Answers as a person at a terminal reads them: values, tables that give way where the screen is narrow, and fields below
 * each other. No library lays such tables out: cli-table3 cuts no column for another, and halves characters.
 */

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

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Writes bytes as a person reads them: `900 B`, `12.3 MiB`. */
export function showBytes(bytes: number): string {
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(bytes))) / 10)));
  const value = bytes / 1024 ** power;
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${units[power]}`;
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
  if (!isRecord(value)) return '';
  return Object.entries(value)
    .filter(([, each]) => each !== undefined)
    .map(([key, each]) => `${escapeText(key)} ${isRecord(each) ? `(${showValue(each, key)})` : showValue(each, key)}`)
    .join(', ');
}

const graphemes = new Intl.Segmenter();

/** Cuts a text to so many columns; an ellipsis says that there is more. */
export function cutText(text: string, columns: number): string {
  if (stringWidth(text) <= columns) return text;
  let [kept, width] = ['', 0];
  for (const { segment } of graphemes.segment(text)) {
    width += stringWidth(segment);
    if (width > columns - 1) break;
    kept += segment;
  }
  return `${kept}…`;
}

/** Pads a text to so many columns. */
export function padText(text: string, width: number, toRight = false): string {
  const space = ' '.repeat(Math.max(0, width - stringWidth(text)));
  return toRight ? `${space}${text}` : `${text}${space}`;
}

/** Lays a text out in lines of so many columns at most, cut at spaces; a word that is longer has a line of its own. */
function wrapText(text: string, columns: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line === undefined || stringWidth(line) + 1 + stringWidth(word) > columns) lines.push(word);
    else lines[lines.length - 1] = `${line} ${word}`;
  }
  return lines;
}

/** One row of an answer. */
type AnswerRow = Readonly<Record<string, unknown>>;

/** Columns between two of a table. */
const gap = 2;
/** A column of texts is made no narrower than this for the sake of others. */
const narrowest = 8;

/** A column of texts as they are shown, but for what a terminal would obey. */
interface GridColumn {
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

function measure({ name, cells, isNumeric, isWhole = false }: GridColumn): Column {
  const [head = '', ...shown] = [name, ...cells].map(escapeText);
  const width = Math.max(...[head, ...shown].map((cell) => stringWidth(cell)));
  const least = isNumeric || isWhole ? width : Math.min(width, narrowest);
  return { name: head, cells: shown, isNumeric, width, least };
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

/**
 * Lays columns of equal length out as a table, at most so wide: a head with their names, a line for each row. What does
 * not fit is cut, and said.
 */
export function renderGrid(grid: readonly GridColumn[], columns: number): string[] {
  const all = grid.map(measure);
  const widths = fitWidths(all, columns);
  const line = (textOf: (column: Column) => string): string =>
    all
      .slice(0, widths.length)
      .map((column, index) => {
        const width = widths[index] ?? 0;
        return padText(cutText(textOf(column), width), width, column.isNumeric);
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

/** Says whether a value means nothing when a part of it is left out: a number, a time, yes or no. */
const isWholeValue = (value: unknown, name: string): boolean =>
  typeof value === 'string' ? timeOf(value, name) !== undefined : typeof value !== 'object';

/** Lays rows out as a table of the fields that any of them has. */
export function renderTable(rows: readonly AnswerRow[], columns: number): string[] {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => row[name] !== undefined)))];
  const grid = names.map((name): GridColumn => {
    const values = rows.map((row) => row[name]);
    const given = values.filter((value) => value !== undefined);
    return {
      name,
      cells: values.map((value) => (value === undefined ? '' : showValue(value, name))),
      isNumeric: given.every((value) => ['number', 'bigint'].includes(typeof value)),
      isWhole: given.every((value) => isWholeValue(value, name)),
    };
  });
  return renderGrid(grid, columns);
}

const isRows = (value: unknown): value is readonly AnswerRow[] =>
  Array.isArray(value) && value.length > 0 && value.every(isRecord);
/** Says whether a value takes lines of its own. */
const isBlock = (value: unknown): boolean => isRows(value) || (isRecord(value) && Object.keys(value).length > 0);
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
  const names = entries.filter(([, value]) => !isBlock(value)).map(([name]) => stringWidth(escapeText(name)));
  const width = Math.max(0, ...names);
  return entries.flatMap(([name, value]) => {
    const head = escapeText(name);
    const inner = columns - gap;
    const below = isRows(value) ? renderRows(value, inner) : isRecord(value) ? renderFields(value, inner) : [];
    if (isBlock(value)) return [head, ...below.map((line) => (line === '' ? '' : `${' '.repeat(gap)}${line}`))];
    const text = isRecord(value) || (Array.isArray(value) && value.length === 0) ? 'none' : showValue(value, name);
    const lines = isSentence(value) ? wrapText(text, Math.max(narrowest, columns - width - gap)) : [text];
    return lines.map((line, index) => `${padText(index === 0 ? head : '', width)}  ${line}`);
  });
}

/** A table is shown when it has so many rows: more of a long list than a person reads, and no matter for memory. */
const rowsAtOnce = 1000;

/** What is told apart in a list of answers: `{"notice":{...}}` is a row of notices. */
function toPart(answer: AnswerRow): { readonly name: string; readonly row: AnswerRow } {
  const [[name, value] = ['', undefined], ...more] = Object.entries(answer);
  return more.length === 0 && isRecord(value) ? { name, row: value } : { name: '', row: answer };
}

/**
 * Shows the answers of a command for a person: fields, or, where they are a list, a table. What else the command writes
 * comes behind the rows that it has answered before. `end` writes what is collected, and says where a list that is done
 * had nothing.
 */
export function showAnswers(
  context: CommandContext,
  columns: number,
  isList: boolean,
): { readonly context: CommandContext; readonly end: (isDone: boolean) => void } {
  const { print, note } = context;
  let parts: ReturnType<typeof toPart>[] = [];
  let shown = 0;
  const flush = (): void => {
    const [{ name } = { name: '' }] = parts;
    const rows = parts.map(({ row }) => row);
    parts = [];
    if (rows.length === 0) return;
    if (shown > 0) print('');
    if (name !== '') print(name);
    shown += rows.length;
    for (const line of renderTable(rows, columns)) print(line);
  };
  const answer = (value: unknown): void => {
    if (!isRecord(value)) return print(JSON.stringify(value));
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
