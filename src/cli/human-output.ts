import stringWidth from 'string-width';
import type { CommandContext } from './command.ts';
import { isRecord } from '../runtime/files/checksummed-json.ts';

/**
 * Output for a person at a terminal: values, tables that fit the screen, and fields one per line. Written by hand:
 * cli-table3 cannot shrink one column for another and cuts wide characters in half.
 */

export function formatCount(value: number): string {
  return value.toLocaleString('en-US');
}

/** Formats a duration: `45 s`, `3 min`, `2.5 h`. */
export function formatDuration(seconds: number): string {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Formats bytes: `900 B`, `12.3 MiB`. */
export function formatBytes(bytes: number): string {
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(bytes))) / 10)));
  const value = bytes / 1024 ** power;
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${units[power]}`;
}

/** Control characters and invisible ones. */
const unshown = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const named: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };
/** Invisible parts of an emoji, which are kept. */
const joiners = ['\u200d', '\ufe0f'];

/** Escapes control characters of untrusted text. */
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

/** Formats a time in the zone of TZ: `2026-03-29 04:05:06 CEST`. */
export function formatTime(ms: number): string {
  const parts = Object.fromEntries(clock.formatToParts(ms).map(({ type, value }) => [type, value]));
  const { year, month, day, hour, minute, second, timeZoneName } = parts;
  return `${year}-${month}-${day} ${hour}:${minute}:${second} ${timeZoneName}`;
}

const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
/** Numbers that are identifiers and get no separators. */
const isName = /^(pid|port|version|since|sinceVersion|limit)$|^id[A-Z]|Id$|Version$/;
/** Smallest number of ms (2001) that is a time; a smaller one is a duration. */
const earliestMs = 1e12;

function showNumber(value: number | bigint, name: string): string {
  if (typeof value === 'number' && /^bytes|Bytes/.test(name)) return formatBytes(value);
  if (/[a-z]Ms$/.test(name)) {
    const ms = Number(value);
    return ms >= earliestMs ? formatTime(ms) : `${(ms / 1000).toLocaleString('en-US')} s`;
  }
  return isName.test(name) ? String(value) : value.toLocaleString('en-US', { maximumFractionDigits: 6 });
}

/** Returns the time of an ISO 8601 text, or of the seconds in API fields such as timestampCreated. */
function timeOf(text: string, name: string): number | undefined {
  if (isoTime.test(text)) return Date.parse(text);
  return /^timestamp[A-Z]/.test(name) && /^\d{9,11}$/.test(text) ? Number(text) * 1000 : undefined;
}

/** Formats a value on one line; `name` is that of its field, which decides the format of a number. */
export function formatValue(value: unknown, name: string): string {
  if (value === null || value === undefined) return '-';
  if (typeof value === 'string') {
    const ms = timeOf(value, name);
    return ms === undefined ? escapeText(value) : formatTime(ms);
  }
  if (typeof value === 'number' || typeof value === 'bigint') return showNumber(value, name);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map((each: unknown) => formatValue(each, name)).join(', ');
  if (!isRecord(value)) return '';
  return Object.entries(value)
    .filter(([, each]) => each !== undefined)
    .map(
      ([key, each]) => `${escapeText(key)} ${isRecord(each) ? `(${formatValue(each, key)})` : formatValue(each, key)}`,
    )
    .join(', ');
}

const graphemes = new Intl.Segmenter();

export function cutText(text: string, columns: number): string {
  if (stringWidth(text) <= columns) return text;
  let [shortened, width] = ['', 0];
  for (const { segment } of graphemes.segment(text)) {
    width += stringWidth(segment);
    if (width > columns - 1) break;
    shortened += segment;
  }
  return `${shortened}…`;
}

export function padText(text: string, width: number, toRight = false): string {
  const space = ' '.repeat(Math.max(0, width - stringWidth(text)));
  return toRight ? `${space}${text}` : `${text}${space}`;
}

function wrapText(text: string, columns: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line === undefined || stringWidth(line) + 1 + stringWidth(word) > columns) lines.push(word);
    else lines[lines.length - 1] = `${line} ${word}`;
  }
  return lines;
}

type ResultRow = Readonly<Record<string, unknown>>;

/** Spaces between columns. */
const gap = 2;
/** Minimum width of a text in a narrow table. */
const narrowest = 8;

/** A column, already formatted but not escaped. */
interface GridColumn {
  readonly name: string;
  readonly cells: readonly string[];
  /** Right-aligned and never cut. */
  readonly isNumeric: boolean;
  readonly isWhole?: boolean;
}

interface Column extends GridColumn {
  readonly width: number;
  readonly least: number;
}

function measure({ name, cells, isNumeric, isWhole = false }: GridColumn): Column {
  const [head = '', ...shown] = [name, ...cells].map(escapeText);
  const width = shown.reduce((most, cell) => Math.max(most, stringWidth(cell)), stringWidth(head));
  const least = isNumeric || isWhole ? width : Math.min(width, narrowest);
  return { name: head, cells: shown, isNumeric, width, least };
}

/** Fits columns into a width: shrinks the widest texts first, then drops the last columns. */
function fitWidths(columns: readonly Column[], available: number): readonly number[] {
  const total = (count: number, widthOfColumn: (column: Column) => number): number =>
    columns.slice(0, count).reduce((sum, column) => sum + widthOfColumn(column) + gap, -gap);
  let count = columns.length;
  while (count > 1 && total(count, ({ least }) => least) > available) count -= 1;
  let maxWidth = Math.max(...columns.slice(0, count).map(({ width }) => width));
  const cutWidth = ({ width, least }: Column): number => Math.max(least, Math.min(width, maxWidth));
  while (maxWidth > 1 && total(count, cutWidth) > available) maxWidth -= 1;
  return columns.slice(0, count).map((column) => Math.min(cutWidth(column), available));
}

/** Lays out columns of equal length as a table with a head. Cut texts and dropped columns are marked. */
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

const isWholeValue = (value: unknown, name: string): boolean =>
  typeof value === 'string' ? timeOf(value, name) !== undefined : typeof value !== 'object';

/** Lays out rows as a table of all their fields. */
export function renderTable(rows: readonly ResultRow[], columns: number): string[] {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => row[name] !== undefined)))];
  const grid = names.map((name): GridColumn => {
    const values = rows.map((row) => row[name]);
    const presentValues = values.filter((value) => value !== undefined);
    return {
      name,
      cells: values.map((value) => (value === undefined ? '' : formatValue(value, name))),
      isNumeric: presentValues.every((value) => ['number', 'bigint'].includes(typeof value)),
      isWhole: presentValues.every((value) => isWholeValue(value, name)),
    };
  });
  return renderGrid(grid, columns);
}

const isRows = (value: unknown): value is readonly ResultRow[] =>
  Array.isArray(value) && value.length > 0 && value.every(isRecord);
/** Reports whether a value needs lines below its name. */
const isBlock = (value: unknown): boolean => isRows(value) || (isRecord(value) && Object.keys(value).length > 0);
/** Reports whether a text is prose, which is wrapped and not cut. */
const isSentence = (value: unknown): boolean => typeof value === 'string' && value.length > 50 && value.includes(' ');

function renderRows(rows: readonly ResultRow[], columns: number): string[] {
  if (!rows.some((row) => Object.values(row).some((value) => isBlock(value) || isSentence(value))))
    return renderTable(rows, columns);
  return rows.flatMap((row, index) => [...(index === 0 ? [] : ['']), ...renderFields(row, columns)]);
}

/** Lays out an object, one line per field; objects and lists of objects below their name. */
export function renderFields(fields: ResultRow, columns: number): string[] {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  const names = entries.filter(([, value]) => !isBlock(value)).map(([name]) => stringWidth(escapeText(name)));
  const width = Math.max(0, ...names);
  return entries.flatMap(([name, value]) => {
    const head = escapeText(name);
    const inner = columns - gap;
    const below = isRows(value) ? renderRows(value, inner) : isRecord(value) ? renderFields(value, inner) : [];
    if (isBlock(value)) return [head, ...below.map((line) => (line === '' ? '' : `${' '.repeat(gap)}${line}`))];
    const text = isRecord(value) || (Array.isArray(value) && value.length === 0) ? 'none' : formatValue(value, name);
    const lines = isSentence(value) ? wrapText(text, Math.max(narrowest, columns - width - gap)) : [text];
    return lines.map((line, index) => `${padText(index === 0 ? head : '', width)}  ${line}`);
  });
}

/** Maximum number of rows in one table of a list. */
const rowsAtOnce = 1000;

/** Splits a row from the name of its part of a list: `{"notice":{...}}` is a row of notices. */
function toPart(answer: ResultRow): { readonly name: string; readonly row: ResultRow } {
  const [[name, value] = ['', undefined], ...more] = Object.entries(answer);
  return more.length === 0 && isRecord(value) ? { name, row: value } : { name: '', row: answer };
}

/**
 * Prints answers for a person: fields, or a table if they are a list. Prints pending rows before other output. `end`
 * prints the remaining rows, and `none` for an empty list.
 */
export function createHumanOutput(
  context: CommandContext,
  columns: number,
  isList: boolean,
): { readonly context: CommandContext; readonly end: (isDone: boolean) => void } {
  const { print, printMessage } = context;
  let parts: ReturnType<typeof toPart>[] = [];
  let printedTables = 0;
  const flush = (): void => {
    const [{ name } = { name: '' }] = parts;
    const rows = parts.map(({ row }) => row);
    parts = [];
    if (rows.length === 0) return;
    if (printedTables > 0) print('');
    if (name !== '') print(name);
    printedTables += rows.length;
    for (const line of renderTable(rows, columns)) print(line);
  };
  const printResult = (value: unknown): void => {
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
    context: { ...context, printResult, print: after(print), printMessage: after(printMessage) },
    end(isDone) {
      flush();
      if (isDone && isList && printedTables === 0) printMessage('none');
    },
  };
}
