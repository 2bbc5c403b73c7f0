import { findTitlesElsewhere, titledFields } from '../../datasets/titled-fields.ts';

/** A title of an id. An empty one takes a title away that was loaded before. */
export interface TitleRow {
  readonly field: string;
  readonly id: string;
  readonly title: string;
}

/** What a line of a list of titles is: a row, the header, nothing, or bad for a reason. */
export type TitleLine = { readonly row: TitleRow } | { readonly reason: string } | 'none';

/** Reads the lines of one list, one after the other: the first that is not empty says which form the list has. */
export interface TitleReader {
  read(text: string): TitleLine;
}

const columns = ['field', 'id', 'title'] as const;
type Cells = Readonly<Record<(typeof columns)[number], string>>;

const maxIdLength = 255;
const maxTitleLength = 1024;
const maxNumber = 2n ** 63n - 1n;
const control = /\p{Cc}/u;

/** A cell of CSV at the beginning of a text: in quotes, which stand doubled inside, or as it is. */
const quotedCell = /^"((?:[^"]|"")*)"(?=,|$)/;
const plainCell = /^[^,"]*(?=,|$)/;

/** Takes a line of CSV apart; undefined when its quotes do not match. */
function parseCsvLine(line: string): string[] | undefined {
  const cells: string[] = [];
  for (let rest = line; ; rest = rest.slice(1)) {
    const quoted = quotedCell.exec(rest);
    const match = quoted ?? plainCell.exec(rest);
    if (match === null) return undefined;
    cells.push(quoted === null ? match[0] : (quoted[1] ?? '').replaceAll('""', '"'));
    rest = rest.slice(match[0].length);
    if (rest === '') return cells;
  }
}

function parseJsonLine(line: string): Cells | string {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return 'is not JSON';
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'is no JSON object';
  const { field, id, title, ...others } = value as Readonly<Record<string, unknown>>;
  const [unknownName] = Object.keys(others);
  if (unknownName !== undefined) return `has ${JSON.stringify(unknownName)}, which is none of ${columns.join(', ')}`;
  const number = typeof id === 'number' && Number.isSafeInteger(id) ? String(id) : id;
  if (typeof field !== 'string' || typeof number !== 'string' || typeof title !== 'string')
    return 'must have field and title as texts, and id as a text or a whole number';
  return { field, id: number, title };
}

const lengthOf = (text: string): number => Array.from(text).length;

/** Checks a row. Numbers get their shortest spelling. */
function parseRow({ field, id, title }: Cells): TitleLine {
  const known = titledFields.get(field);
  const elsewhere = findTitlesElsewhere(field);
  if (elsewhere !== undefined) return { reason: `field ${field} has its titles from ${elsewhere}` };
  if (known === undefined)
    return {
      reason: `field ${JSON.stringify(field.slice(0, 100))} has no titles; allowed: ${[...titledFields.keys()].join(', ')}`,
    };
  if (id === '' || lengthOf(id) > maxIdLength) return { reason: `id must have 1 to ${maxIdLength} characters` };
  if (lengthOf(title) > maxTitleLength) return { reason: `title must have at most ${maxTitleLength} characters` };
  if (control.test(id) || control.test(title)) return { reason: 'has a control character in it' };
  if (!known.isNumber) return { row: { field, id, title } };
  if (!/^\d{1,19}$/.test(id) || BigInt(id) > maxNumber)
    return { reason: `id of ${field} must be a whole number from 0 to ${maxNumber}` };
  return { row: { field, id: String(BigInt(id)), title } };
}

/** The columns that a header names, in its order; undefined for cells that are no header. */
function findHeader(cells: readonly string[]): readonly string[] | undefined {
  return cells.length === columns.length && columns.every((name) => cells.includes(name)) ? cells : undefined;
}

/** Creates a reader of one list: CSV with a header or without one, or a JSON object a line. */
export function createTitleReader(): TitleReader {
  let form: 'csv' | 'json' | undefined;
  let header: readonly string[] = columns;

  function readCsv(text: string, isFirst: boolean): TitleLine {
    const cells = parseCsvLine(text);
    if (cells === undefined) return { reason: 'has quotes that do not match: a cell has no line break' };
    const found = isFirst ? findHeader(cells) : undefined;
    if (found !== undefined) {
      header = found;
      return 'none';
    }
    if (cells.length !== columns.length)
      return { reason: `has ${cells.length} cells instead of the 3 of ${columns.join(', ')}` };
    const cellOf = (name: string): string => cells[header.indexOf(name)] ?? '';
    return parseRow({ field: cellOf('field'), id: cellOf('id'), title: cellOf('title') });
  }

  return {
    read(text) {
      if (text.trim() === '') return 'none';
      const isFirst = form === undefined;
      form ??= text.trimStart().startsWith('{') ? 'json' : 'csv';
      if (form === 'csv') return readCsv(text, isFirst);
      const cells = parseJsonLine(text);
      return typeof cells === 'string' ? { reason: cells } : parseRow(cells);
    },
  };
}
