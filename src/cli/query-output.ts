import { randomUUID } from 'node:crypto';
import path from 'node:path';
import type { ReadOnlyEngine, TextRow } from '../lake/sql/read-only-engine.ts';
import { moveFile } from '../runtime/files/durable-file.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { renderGrid, escapeText } from './human-output.ts';
import type { CommandContext } from './command.ts';
import { failUsage } from './option-specs.ts';
import type { Interface } from 'node:readline';
import { splitSql } from '../lake/sql/literals.ts';
import { AppError } from '../runtime/errors.ts';

export const queryFormats = ['table', 'csv', 'json', 'parquet'] as const;
export type QueryFormat = (typeof queryFormats)[number];

const byEnding: Readonly<Record<string, QueryFormat>> = {
  '.csv': 'csv',
  '.json': 'json',
  '.jsonl': 'json',
  '.ndjson': 'json',
  '.parquet': 'parquet',
};

/** Returns the format: the given one, else by the file name, else by the reader. Error: `usage`. */
export function chooseQueryFormat(
  format: QueryFormat | undefined,
  file: string | undefined,
  isForPerson: boolean,
): QueryFormat {
  const chosen = format ?? (file === undefined ? undefined : byEnding[path.extname(file).toLowerCase()]);
  if (file !== undefined && chosen === undefined)
    failUsage(`unknown format of ${file}: pass --format, or use the extension .csv, .json or .parquet`);
  if (file !== undefined && chosen === 'table')
    failUsage('--format table is for the terminal: use csv, json or parquet');
  if (file === undefined && chosen === 'parquet') failUsage('--format parquet needs a file: -o FILE');
  return chosen ?? (isForPerson ? 'table' : 'json');
}

export interface QueryFile {
  readonly file: string;
  readonly written: string;
}

/** Names the temporary file next to the output. */
export function toQueryFile(file: string): QueryFile {
  const absolutePath = path.resolve(file);
  return {
    file: absolutePath,
    written: path.join(path.dirname(absolutePath), `.${path.basename(absolutePath)}.${randomUUID()}`),
  };
}

const copyFormats = { csv: 'csv, HEADER', json: 'json', parquet: 'parquet, COMPRESSION zstd' } as const;

/** Writes the rows of a statement to a file, atomically. */
export async function writeQueryFile(
  engine: ReadOnlyEngine,
  sql: string,
  { file, written }: QueryFile,
  format: QueryFormat,
): Promise<number> {
  if (format === 'table') throw new Error('a table cannot be written to a file');
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

/** Streams the rows of a statement to standard output. Returns their number. */
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

/** Shows the first rows of a statement as a table. */
export async function showQueryTable(
  engine: ReadOnlyEngine,
  sql: string,
  maxRows: number,
  { print, columns }: Pick<CommandContext, 'print'> & { readonly columns: number },
): Promise<{ readonly shownRows: number; readonly isCut: boolean }> {
  const { names, rows } = await engine.stream(sql);
  const readRows: TextRow[] = [];
  for await (const piece of rows) {
    readRows.push(...piece.slice(0, maxRows + 1 - readRows.length));
    if (readRows.length > maxRows) break;
  }
  const visibleRows = readRows.slice(0, maxRows);
  const grid = names.map((name, index) => {
    const cells = visibleRows.map((row) => row[index] ?? null);
    const isNumeric =
      cells.every((cell) => cell === null || isNumber.test(cell)) && cells.some((cell) => cell !== null);
    return { name, cells: cells.map((cell) => cell ?? 'NULL'), isNumeric };
  });
  for (const line of renderGrid(grid, columns)) print(line);
  return { shownRows: visibleRows.length, isCut: readRows.length > maxRows };
}

type OpenedEngine = ReadOnlyEngine & { readonly remove: () => Promise<void> };

interface PromptWork {
  readonly context: CommandContext;
  readonly openEngine: () => Promise<OpenedEngine>;
  readonly runStatement: (engine: ReadOnlyEngine, sql: string) => Promise<void>;
}

const first = 'tributary> ';
const further = '       ... ';

const help = `Statements end with a semicolon and may take several lines.
.tables         list views and columns
.refresh        read the newest version of the lake
.help           show this help
.quit, Ctrl-D   exit
Ctrl-C cancels the running statement, or clears the input.`;

const tablesSql = `SELECT table_name AS "view", string_agg(column_name, ', ' ORDER BY column_index) AS columns
FROM duckdb_columns() WHERE NOT internal AND schema_name = current_schema() AND database_name = current_database()
GROUP BY table_name ORDER BY table_name`;

/** Errors of files that were deleted because the prompt was open longer than the retention. */
const goneFile = /No such file or directory|No files found/;
const refreshHint = 'Files of this version were deleted. Run .refresh to read the newest version.';

/** Describes an error with the lines of the engine, so that its markers stay aligned. */
function describe(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const own = goneFile.test(message) ? refreshHint : error instanceof AppError ? error.hint : undefined;
  const hint = own === undefined ? '' : `\n${own}`;
  return `${message}${hint}`.split('\n').map(escapeText).join('\n');
}

/**
 * Runs a prompt until `.quit` or the end of the input. An error is shown and does not end it. Returns the exit code.
 * Errors: those of the first engine.
 */
export async function runQueryPrompt(openPrompt: () => Interface, work: PromptWork): Promise<number> {
  const { context, openEngine, runStatement } = work;
  const { printMessage, stop } = context;
  let engine = await openEngine();
  const prompt = openPrompt();
  let written = '';
  let isRunning = false;
  const showPrompt = (): void => {
    prompt.setPrompt(written === '' ? first : further);
    prompt.prompt();
  };
  prompt.on('SIGINT', () => {
    if (isRunning) return engine.interrupt();
    written = '';
    printMessage('');
    showPrompt();
  });
  stop.addEventListener('abort', () => prompt.close(), { once: true });
  /** Returns whether the prompt continues. */
  const command = async (word: string): Promise<boolean> => {
    if (['.quit', '.exit', '.q'].includes(word)) return false;
    if (word === '.tables') await runStatement(engine, tablesSql);
    else if (word === '.refresh') {
      const newer = await openEngine();
      await engine.remove();
      engine = newer;
    } else if (word === '.help') printMessage(help);
    else printMessage(`unknown command ${escapeText(word)}; see .help`);
    return true;
  };
  const take = async (line: string): Promise<boolean> => {
    if (written === '' && line.trimStart().startsWith('.')) return command(line.trim());
    const { statements, rest } = splitSql(`${written}${line}\n`);
    written = rest === '' ? '' : `${rest}\n`;
    for (const statement of statements) await runStatement(engine, statement);
    return true;
  };
  try {
    printMessage("Read-only SQL on the current version of the lake. '.help' lists the commands.");
    showPrompt();
    for await (const line of prompt) {
      isRunning = true;
      try {
        if (!(await take(line))) break;
      } catch (error) {
        printMessage(describe(error));
      } finally {
        isRunning = false;
      }
      showPrompt();
    }
    return 0;
  } finally {
    prompt.close();
    await engine.remove();
  }
}
