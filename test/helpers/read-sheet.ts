import { readZip } from './zip.ts';

/** A cell of a sheet. */
export interface SheetCell {
  readonly text: string;
  readonly isNumber: boolean;
  /** A date cell; its text is ISO 8601, with the time in the request's zone if the cell shows one. */
  readonly isDate?: true;
}

/** Converts the number of a date cell, in the style of dates (1) or of times (2), as Excel does. */
function toDateCell(style: string, number: string): SheetCell {
  const iso = new Date(Math.round(Date.UTC(1899, 11, 30) / 1000 + Number(number) * 86_400) * 1000).toISOString();
  return { text: iso.slice(0, style === '1' ? 10 : 19), isNumber: false, isDate: true };
}

const entities: Readonly<Record<string, string>> = { '&lt;': '<', '&gt;': '>', '&amp;': '&' };

/** Reads a text as a spreadsheet does: entities first, then characters as `_xHHHH_`. */
const decode = (text: string): string =>
  text
    .replaceAll(/&(?:lt|gt|amp);/g, (entity) => entities[entity] ?? '')
    .replaceAll(/_x([\dA-F]{4})_/g, (_all, code: string) => String.fromCharCode(Number.parseInt(code, 16)));

function columnOf(letters: string): number {
  return Array.from(letters).reduce((column, letter) => column * 26 + letter.charCodeAt(0) - 64, 0) - 1;
}

/** Reads the rows of the only sheet of a workbook, header first. Throws for a formula and for other XML. */
export function readSheet(workbook: Buffer): SheetCell[][] {
  const entries = new Map(readZip(workbook).map(({ name, data }) => [name, data.toString('utf8')]));
  const sheet = entries.get('xl/worksheets/sheet1.xml') ?? '';
  const data = /<sheetData>(.*)<\/sheetData><\/worksheet>$/s.exec(sheet)?.[1];
  if (data === undefined) throw new Error('the workbook has no sheet');
  const rows = [...data.matchAll(/<row r="(\d+)">(.*?)<\/row>/gs)];
  if (rows.map(([row]) => row).join('') !== data) throw new Error('the sheet has other XML than rows');
  const width = [...(rows[0]?.[2] ?? '').matchAll(/<c /g)].length;
  return rows.map(([, row, content = '']) => {
    const cells: SheetCell[] = Array.from({ length: width }, () => ({ text: '', isNumber: false }));
    const found = [
      ...content.matchAll(
        /<c r="([A-Z]+)(\d+)"(?:(?: s="([12])")?><v>([^<]*)<\/v>| t="inlineStr"><is><t xml:space="preserve">([^<]*)<\/t><\/is>)<\/c>/g,
      ),
    ];
    if (found.map(([cell]) => cell).join('') !== content) throw new Error(`row ${row} has other XML than cells`);
    for (const [, letters = '', place, style, number, text] of found) {
      if (place !== row) throw new Error(`row ${row} has a cell of row ${place}`);
      cells[columnOf(letters)] =
        style === undefined || number === undefined
          ? { text: number ?? decode(text ?? ''), isNumber: number !== undefined }
          : toDateCell(style, number);
    }
    return cells;
  });
}
