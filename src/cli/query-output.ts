import { randomUUID } from 'node:crypto';
import path from 'node:path';
import type { ReadOnlyEngine, TextRow } from '../lake/sql/read-only-engine.ts';
import { moveFile } from '../runtime/files/durable-file.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { renderGrid } from './answer-table.ts';
import type { CommandContext } from './command.ts';
import { refuse } from './words.ts';

/** How the rows of a query are given. */
export const queryFormats = ['table', 'csv', 'json', 'parquet'] as const;
export type QueryFormat = (typeof queryFormats)[number];

const byEnding: Readonly<Record<string, QueryFormat>> = {
  '.csv': 'csv',
  '.json': 'json',
  '.jsonl': 'json',
  '.ndjson': 'json',
  '.parquet': 'parquet',
};

/** The format that is asked for, or that the name of a file says, or that suits the reader. Error: `usage`. */
export function chooseQueryFormat(
  format: QueryFormat | undefined,
  file: string | undefined,
  isForPerson: boolean,
): QueryFormat {
  const chosen = format ?? (file === undefined ? undefined : byEnding[path.extname(file).toLowerCase()]);
  if (file !== undefined && chosen === undefined)
    refuse(`the name of ${file} says no format: name it by --format, or end it with .csv, .json or .parquet`);
  if (file !== undefined && chosen === 'table') refuse('a table is for the terminal: --format csv, json or parquet');
  if (file === undefined && chosen === 'parquet') refuse('--format parquet needs a file: -o FILE');
  return chosen ?? (isForPerson ? 'table' : 'json');
}

/** The file that a query writes, under another name until it is whole. */
export interface QueryFile {
  readonly file: string;
  readonly written: string;
}

/** Names the file of a query, beside which it is written. */
export function toQueryFile(file: string): QueryFile {
  const whole = path.resolve(file);
  return { file: whole, written: path.join(path.dirname(whole), `.${path.basename(whole)}.${randomUUID()}`) };
}

const copyFormats = { csv: 'csv, HEADER', json: 'json', parquet: 'parquet, COMPRESSION zstd' } as const;

/** Writes the rows of a statement to a file, which is there when it is whole, or as it was before. */
export async function writeQueryFile(
  engine: ReadOnlyEngine,
  sql: string,
  { file, written }: QueryFile,
  format: QueryFormat,
): Promise<number> {
  if (format === 'table') throw new Error('a file is no table');
  try {
    const rows = await engine.copy(sql, copyFormats[format]);
    await moveFile(written, file);
    return rows;
  } catch (error) {
    await removeTree(written);
    throw error;
  }
}

const csvCell = (cell: string | null): string =>
  cell === null ? '' : cell === '' || /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
const csvLine = (cells: TextRow): string => `${cells.map(csvCell).join(',')}\n`;

/** Writes the rows of a statement on standard output as they come, no faster than they are read. Returns how many. */
export async function writeQueryRows(
  engine: ReadOnlyEngine,
  sql: string,
  format: 'csv' | 'json',
  { write, unread }: { readonly write: (text: string) => Promise<void> } & Pick<CommandContext, 'unread'>,
): Promise<number> {
  let count = 0;
  if (format === 'json') {
    for await (const lines of engine.streamJson(sql)) {
      if (unread?.aborted === true) break;
      count += lines.length;
      await write(`${lines.join('\n')}\n`);
    }
    return count;
  }
  const { names, rows } = await engine.stream(sql);
  await write(csvLine(names));
  for await (const piece of rows) {
    if (unread?.aborted === true) break;
    count += piece.length;
    await write(piece.map(csvLine).join(''));
  }
  return count;
}

const isNumber = /^-?\d+(\.\d+)?(e[-+]\d+)?$/;

/** Shows the first rows of a statement as a table. Returns how many were shown, and whether there are more. */
export async function showQueryTable(
  engine: ReadOnlyEngine,
  sql: string,
  most: number,
  { print, columns }: Pick<CommandContext, 'print'> & { readonly columns: number },
): Promise<{ readonly shown: number; readonly isCut: boolean }> {
  const { names, rows } = await engine.stream(sql);
  const kept: TextRow[] = [];
  for await (const piece of rows) {
    kept.push(...piece.slice(0, most + 1 - kept.length));
    if (kept.length > most) break;
  }
  const shown = kept.slice(0, most);
  const grid = names.map((name, index) => {
    const cells = shown.map((row) => row[index] ?? null);
    const isNumeric =
      cells.every((cell) => cell === null || isNumber.test(cell)) && cells.some((cell) => cell !== null);
    return { name, cells: cells.map((cell) => cell ?? 'NULL'), isNumeric };
  });
  for (const line of renderGrid(grid, columns)) print(line);
  return { shown: shown.length, isCut: kept.length > most };
}

/** Shows the plan of EXPLAIN, whose lines are laid out already. */
export async function showPlan(
  engine: ReadOnlyEngine,
  sql: string,
  { print }: Pick<CommandContext, 'print'>,
): Promise<void> {
  const { rows } = await engine.stream(sql);
  for await (const piece of rows) for (const row of piece) print((row.at(-1) ?? '').trimEnd());
}
