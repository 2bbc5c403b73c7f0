import type { FileFormat } from '../../jobs/export-spec.ts';
import { sqlText } from '../../../lake/sql/literals.ts';
import type { Lengths } from './row-groups.ts';

/** SQL of what is measured of the texts of a row. */
export interface TextSql {
  /** Bytes of the shortest, the longest and all. */
  readonly least: string;
  readonly most: string;
  readonly total: string;
  /** One of them has a character that the format escapes. */
  readonly isEscaped: string;
}

/** What some format escapes: quotes and backslashes, and what is no letter at all. */
const escapedForm = String.raw`["'\\\x00-\x1f\x7f]`;
const escaped = new RegExp(escapedForm, 'u');

/** Says whether a text has a character that some format escapes. */
export const hasEscaped = (text: string): boolean => escaped.test(text);

/** What is escaped in CSV, and in the lists of its cells: looked for one by one, a sixth of the time of an expression. */
const ofCsv = [0x22, 0x27, 0x5c, 0x0a, 0x0d].map((code) => `chr(${code})`);

/** SQL that says whether a format has something to escape in a text; without a format nobody looks, and it may have. */
function escapedSql(text: string, format: FileFormat | undefined): string {
  switch (format) {
    case undefined:
      return 'true';
    case 'csv':
      return ofCsv.map((character) => `contains(${text}, ${character})`).join(' OR ');
    case 'jsonl':
      return `regexp_matches(${text}, ${sqlText(escapedForm)})`;
    case 'parquet':
      return 'false';
    default:
      return format satisfies never;
  }
}

/** SQL of the text of a column. */
export function textSql(column: string, format: FileFormat | undefined): TextSql {
  const bytes = `strlen(${column})`;
  return { least: bytes, most: bytes, total: bytes, isEscaped: escapedSql(column, format) };
}

/** SQL of the texts of a list. */
export function listSql(list: string, format: FileFormat | undefined): TextSql {
  const bytes = `list_transform(${list}, lambda item: strlen(item))`;
  return {
    least: `list_min(${bytes})`,
    most: `list_max(${bytes})`,
    total: `list_sum(${bytes})`,
    isEscaped: escapedSql(`array_to_string(${list}, '')`, format),
  };
}

/** The cells of an answer that has what was measured of many rows, by their names. */
export function measuredCells({ least, most, total, isEscaped }: TextSql): Readonly<Record<string, string>> {
  return {
    least: `min(${least})`,
    most: `max(${most})`,
    total: `sum(${total})::BIGINT`,
    escaped: `bool_or(${isEscaped})`,
  };
}

/** What was measured, by the cells of an answer; undefined where there was no text. */
export function toLengths(cell: (name: string) => unknown): Lengths | undefined {
  const [least, most, total] = ['least', 'most', 'total'].map((name) => cell(name));
  if (typeof least !== 'bigint' || typeof most !== 'bigint' || typeof total !== 'bigint') return undefined;
  return { least: Number(least), most: Number(most), total: Number(total), isPlain: cell('escaped') === false };
}
