import { createHash } from 'node:crypto';
import path from 'node:path';
import { Readable } from 'node:stream';
import { fileFormats } from '../../../datasets/file-formats.ts';
import type { ReportFile } from '../../../reports/reports.ts';
import { openZip } from '../../../reports/zip.ts';
import { removeFile } from '../../../runtime/files/durable-file.ts';
import { openNewFile } from '../../../runtime/files/open-file.ts';
import { LimitError } from '../watch-statement.ts';
import type { GrowingText } from './growing-text.ts';
import { readRows } from './text-parts.ts';

/**
 * Workbooks (.xlsx) of one sheet, from the CSV of a query, row by row. Texts are inline strings, which spreadsheets never
 * run as formulas, and dates and times are date cells. Of the libraries, write-excel-file holds all rows in memory, and exceljs is not maintained: archiver
 * writes the zip, and the sheet is simple XML. The same rows give the same bytes.
 */

/** Limits of a cell, characters, and of the sheet's XML, bytes: larger ones need a zip that many programs cannot read. */
const maxCellLength = 32_767;
const maxSheetBytes = 4_000_000_000;
/** Digits that a spreadsheet keeps. */
const exactDigits = 15;
/** The day 0 of a sheet, and the first day that all programs number alike: Excel has a 29 February 1900. */
const [dayZeroMs, firstDay] = [Date.UTC(1899, 11, 30), 61];
const daySeconds = 86_400;

/** Type of a column of a sheet: `time` has a date too. */
export type SheetColumn = 'text' | 'number' | 'date' | 'time';

const xml = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
const office = 'http://schemas.openxmlformats.org';
const main = `${office}/spreadsheetml/2006/main`;
const relationships = `${office}/officeDocument/2006/relationships`;
const relationshipsOf = (targets: Readonly<Record<string, string>>): string =>
  `${xml}<Relationships xmlns="${office}/package/2006/relationships">${Object.entries(targets)
    .map(([type, to], index) => `<Relationship Id="rId${index + 1}" Type="${relationships}/${type}" Target="${to}"/>`)
    .join('')}</Relationships>`;
const contentType = (part: string, type: string): string =>
  `<Override PartName="${part}" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.${type}+xml"/>`;

/** The files of the zip besides the sheet. */
const frame: Readonly<Record<string, string>> = {
  '[Content_Types].xml': `${xml}<Types xmlns="${office}/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>${contentType('/xl/workbook.xml', 'sheet.main')}${contentType('/xl/worksheets/sheet1.xml', 'worksheet')}${contentType('/xl/styles.xml', 'styles')}</Types>`,
  '_rels/.rels': relationshipsOf({ officeDocument: 'xl/workbook.xml' }),
  'xl/workbook.xml': `${xml}<workbook xmlns="${main}" xmlns:r="${relationships}"><sheets><sheet name="export" sheetId="1" r:id="rId1"/></sheets></workbook>`,
  'xl/_rels/workbook.xml.rels': relationshipsOf({ worksheet: 'worksheets/sheet1.xml', styles: 'styles.xml' }),
  'xl/styles.xml': `${xml}<styleSheet xmlns="${main}"><numFmts count="2"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/><numFmt numFmtId="165" formatCode="yyyy\\-mm\\-dd\\ hh:mm:ss"/></numFmts><fonts count="1"><font/></fonts><fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills><borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="3"><xf/><xf numFmtId="164" applyNumberFormat="1"/><xf numFmtId="165" applyNumberFormat="1"/></cellXfs></styleSheet>`,
};
const sheetName = 'xl/worksheets/sheet1.xml';
/** The header row stays visible, and a column is wide enough for a time. */
const sheetStart = `${xml}<worksheet xmlns="${main}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetFormatPr defaultColWidth="26" defaultRowHeight="15"/><sheetData>`;
const sheetEnd = '</sheetData></worksheet>';

/** Splits complete rows of CSV into cells. */
function* parseCells(text: string): Generator<string[]> {
  let cells: string[] = [];
  const cell = /(?:"([^"]*(?:""[^"]*)*)"|([^",\n]*))([,\n])/gy;
  for (const [, quoted, plain = '', end] of text.matchAll(cell)) {
    cells.push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end !== '\n') continue;
    yield cells;
    cells = [];
  }
}

const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
const toHex = (character: string): string =>
  `_x${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}_`;

/** Control characters besides tab and line feed, and codes without a character: XML forbids or changes them. */
const forbidden = /[\p{Cc}\uFFFE\uFFFF]/gu;

/**
 * Escapes a text for XML. Forbidden characters are written as `_xHHHH_`, and so is the start of such texts, also of those
 * that a forbidden character would complete.
 */
function escapeXml(text: string): string {
  return text
    .replaceAll(/_(?=x[\dA-Fa-f]{4}[_\p{Cc}\uFFFE\uFFFF])/gu, toHex)
    .replaceAll(/[&<>]/g, (character) => escapes[character] ?? '')
    .replaceAll(forbidden, (character) => (character === '\t' || character === '\n' ? character : toHex(character)));
}

/** Reports whether a spreadsheet keeps a number as it is: with at most 15 digits, and not as -0. */
function isExactNumber(text: string): boolean {
  const [, whole = '', fraction = '', exponent = '0'] = /^-?(\d+)(?:\.(\d+))?(?:e([+-]?\d{1,3}))?$/i.exec(text) ?? [];
  if (whole === '') return false;
  const digits = `${whole}${fraction.replace(/0+$/, '')}`.replace(/^0+/, '');
  if (digits === '') return !text.startsWith('-');
  return digits.length <= exactDigits && Math.abs(Number(exponent)) < 300;
}

/** Returns the letters of a column: A, ..., Z, AA. */
function columnLetters(index: number): string {
  const rest = Math.floor(index / 26) - 1;
  return `${rest < 0 ? '' : columnLetters(rest)}${String.fromCharCode(65 + (index % 26))}`;
}

/** Returns the number of a date or of a time in its zone; undefined for other texts and for early years. */
function toSerial(text: string): number | undefined {
  const [, date = '', time = '00:00:00'] = /^(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d:\d\d)[+-]\d\d:\d\d)?$/.exec(text) ?? [];
  const serial = (Date.parse(`${date}T${time}Z`) - dayZeroMs) / 1000 / daySeconds;
  return serial >= firstDay ? serial : undefined;
}

/** Renders a value that a spreadsheet calculates with; undefined if it would change there. */
function renderNumber(text: string, place: string, column: SheetColumn | undefined): string | undefined {
  if (column === 'number') return isExactNumber(text) ? `<c r="${place}"><v>${text}</v></c>` : undefined;
  const serial = column === 'date' || column === 'time' ? toSerial(text) : undefined;
  return serial === undefined ? undefined : `<c r="${place}" s="${column === 'date' ? 1 : 2}"><v>${serial}</v></c>`;
}

function renderRow(
  cells: readonly string[],
  row: number,
  columns: readonly SheetColumn[],
  letters: readonly string[],
): string {
  const rendered = cells.map((text, index) => {
    if (text === '') return '';
    const place = `${letters[index] ?? ''}${row}`;
    const number = row > 1 ? renderNumber(text, place, columns[index]) : undefined;
    if (number !== undefined) return number;
    if (text.length > maxCellLength)
      throw new LimitError(
        `Row ${row} has a text of more than ${maxCellLength} characters, which a cell of xlsx cannot have. Use another format`,
      );
    return `<c r="${place}" t="inlineStr"><is><t xml:space="preserve">${escapeXml(text)}</t></is></c>`;
  });
  return `<row r="${row}">${rendered.join('')}</row>`;
}

interface SheetOptions {
  readonly folder: string;
  readonly stem: string;
  readonly columns: readonly SheetColumn[];
  readonly onRead: (bytes: number) => void;
}

/**
 * Writes a text with a header, while it is written, to a workbook, durably except for its folder. An error leaves no
 * file. Error: `LimitError` for what a sheet cannot have.
 */
export async function writeSheet(text: GrowingText, options: SheetOptions): Promise<ReportFile> {
  const { folder, stem, columns, onRead } = options;
  const letters = columns.map((_, index) => columnLetters(index));
  let [row, read, written] = [0, 0, 0];
  let failure: unknown;

  async function* renderSheet(): AsyncGenerator<Buffer> {
    try {
      yield Buffer.from(sheetStart);
      for await (const { bytes } of readRows(text, fileFormats.csv)) {
        const rows: string[] = [];
        for (const cells of parseCells(bytes.toString('utf8')))
          rows.push(renderRow(cells, (row += 1), columns, letters));
        const rendered = Buffer.from(rows.join(''));
        written += rendered.length;
        if (written > maxSheetBytes)
          throw new LimitError('The rows are too large for xlsx. Select fewer rows or columns, or use another format');
        yield rendered;
        read += bytes.length;
        onRead(read);
      }
      yield Buffer.from(sheetEnd);
    } catch (error) {
      failure = error;
      throw error;
    }
  }

  const name = `${stem}${fileFormats.xlsx.endings[0]}`;
  const file = path.join(folder, name);
  const handle = await openNewFile(file);
  const hash = createHash('sha256');
  let bytes = 0;
  try {
    const parts = Object.entries(frame).map(
      ([part, content]) => [part, Readable.from([Buffer.from(content)])] as const,
    );
    for await (const chunk of await openZip([...parts, [sheetName, Readable.from(renderSheet())]])) {
      hash.update(chunk);
      bytes += chunk.length;
      await handle.writeFile(chunk);
    }
    await handle.sync();
    await handle.close();
    // The header is not a row.
    return { name, rows: Math.max(0, row - 1), bytes, sha256: hash.digest('hex') };
  } catch (error) {
    await handle.close().catch(() => undefined);
    await removeFile(file);
    throw failure ?? error;
  }
}
