import { sqlText } from '../../lake/sql/literals.ts';
import type { CsvDialect } from '../../datasets/file-formats.ts';

/**
 * Cells of CSV for spreadsheets. A text that a spreadsheet would run as a formula begins with an apostrophe. With
 * semicolons, numbers have a decimal comma: programs that expect semicolons would read a full stop as a date.
 */

/** The first characters of formulas, also as full-width forms, after invisible characters. */
const formulaStart = String.raw`^[\p{C}\p{Z}]*[=+@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}-]|^[\t\r\n]`;
const negativeNumber = String.raw`-[0-9]+(\.[0-9]+)?`;

export const hasDecimalComma = (dialect: CsvDialect | undefined): boolean => dialect === 'excel-semicolon';

const withComma = (text: string): string => `replace(${text}, '.', ',')`;

/**
 * Builds a cell for a spreadsheet from the SQL of a value. `decimal`: the value is a number that may have decimals;
 * `other` values are neither such numbers nor texts. A negative number as text stays, since it is not a formula.
 */
export function spreadsheetCell(value: string, kind: 'text' | 'decimal' | 'other', dialect: CsvDialect): string {
  if (kind === 'other') return value;
  if (kind === 'decimal') return hasDecimalComma(dialect) ? withComma(`CAST(${value} AS VARCHAR)`) : value;
  const isFormula = `regexp_matches(${value}, ${sqlText(formulaStart)}) AND NOT regexp_full_match(${value}, ${sqlText(negativeNumber)})`;
  return `CASE WHEN ${isFormula} THEN '''' || ${value} ELSE ${value} END`;
}
