import { parseCells } from '../../runtime/csv.ts';
import { findTitlesElsewhere, titledFields } from '../../datasets/dictionaries.ts';
import path from 'node:path';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import { AppError } from '../../runtime/errors.ts';
import { openWorkFile, type WorkFile, openScratchDir } from '../../runtime/files/work-files.ts';
import { changeTitles, type NewTitles, type TitleCounts, type Titles } from '../../titles/title-store.ts';
import { throwIfStopped, assertIntact, openSortEngine, writeListFile, type ListOptions } from './add-segment.ts';
import { createBadLineList, type RejectedList, readListLines, type ListInput } from './text-lines.ts';
import { isRecord } from '../../runtime/files/checksummed-json.ts';
import { localFiles } from '../../runtime/store/open-store.ts';

const cellNames = ['field', 'id', 'title'] as const;
/** A title of an id; an empty title removes an earlier one. */
type TitleRow = Readonly<Record<(typeof cellNames)[number], string>>;
/** A row, a bad line, or a header or blank line. */
type TitleLine = { readonly row: TitleRow } | { readonly reason: string } | 'none';

const maxIdLength = 255;
const maxTitleLength = 1024;
const maxNumber = 2n ** 63n - 1n;
const control = /\p{Cc}/u;

function parseJsonLine(line: string): TitleRow | string {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return 'is not JSON';
  }
  if (!isRecord(value)) return 'is not a JSON object';
  const { field, id, title, ...others } = value;
  const [unknownName] = Object.keys(others);
  if (unknownName !== undefined) return `has ${JSON.stringify(unknownName)}, expected only ${cellNames.join(', ')}`;
  const number = typeof id === 'number' && Number.isSafeInteger(id) ? String(id) : id;
  if (typeof field !== 'string' || typeof number !== 'string' || typeof title !== 'string')
    return 'must have field and title as texts, and id as a text or a whole number';
  return { field, id: number, title };
}

const lengthOf = (text: string): number => Array.from(text).length;

/** Validates a row; numbers get their shortest form. */
function parseRow({ field, id, title }: TitleRow): TitleLine {
  const known = titledFields.get(field);
  const elsewhere = findTitlesElsewhere(field);
  if (elsewhere !== undefined) return { reason: `field ${field} has its titles from ${elsewhere}` };
  if (known === undefined)
    return {
      reason: `field ${JSON.stringify(field.slice(0, 100))} has no titles; allowed: ${[...titledFields.keys()].join(', ')}`,
    };
  if (id === '' || lengthOf(id) > maxIdLength) return { reason: `id must have 1 to ${maxIdLength} characters` };
  if (lengthOf(title) > maxTitleLength) return { reason: `title must have at most ${maxTitleLength} characters` };
  if (control.test(id) || control.test(title)) return { reason: 'has a control character' };
  if (!known.isNumber) return { row: { field, id, title } };
  if (!/^\d{1,19}$/.test(id) || BigInt(id) > maxNumber)
    return { reason: `id of ${field} must be a whole number from 0 to ${maxNumber}` };
  return { row: { field, id: String(BigInt(id)), title } };
}

/** Creates a reader of one list: CSV with or without a header, or JSON lines. */
function createTitleReader(): { read(text: string): TitleLine } {
  let form: 'csv' | 'json' | undefined;
  let header: readonly string[] = cellNames;

  function readCsv(text: string, isFirst: boolean): TitleLine {
    const cells = parseCells(text, ',');
    if (cells === undefined) return { reason: 'has unbalanced quotes: a cell cannot have a line break' };
    if (isFirst && cells.length === cellNames.length && cellNames.every((name) => cells.includes(name))) {
      header = cells;
      return 'none';
    }
    if (cells.length !== cellNames.length)
      return { reason: `has ${cells.length} cells instead of the 3 of ${cellNames.join(', ')}` };
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

/** Spools a list, numbered from `count`; returns the last number, or the bad lines. */
async function spoolTitles(
  input: ListInput,
  file: WorkFile,
  count: number,
  signal: AbortSignal,
): Promise<number | RejectedList> {
  const badLines = createBadLineList();
  const reader = createTitleReader();
  let turn = count;
  for await (const { firstLine, texts, bad } of readListLines(input)) {
    throwIfStopped(signal);
    const unreadable = new Set(bad.map(({ line }) => line));
    bad.forEach((line) => badLines.add(line));
    const rows: string[] = [];
    for (const [index, text] of texts.entries()) {
      const line = firstLine + index;
      const read = unreadable.has(line) ? 'none' : reader.read(text);
      if (read === 'none') continue;
      if ('reason' in read) {
        badLines.add({ line, reason: read.reason });
        continue;
      }
      turn += 1;
      rows.push(`${JSON.stringify({ ...read.row, turn })}\n`);
    }
    await file.append(Buffer.from(rows.join('')));
  }
  return badLines.count === 0 ? turn : badLines.toRefused(input.name);
}

const restoreHint =
  "Restore it from a backup; or remove the folder of the titles, and load them again with 'tributary load titles'.";

/** SQL of the merged titles: the newest title of each id, unless it is empty. `before`: local path of earlier titles. */
function mergeSql(spool: string, before: string | undefined): string {
  const columns = "{field: 'VARCHAR', id: 'VARCHAR', title: 'VARCHAR', turn: 'BIGINT'}";
  const loaded = `SELECT field, id, title, turn FROM read_json([${sqlText(spool)}], format = 'newline_delimited', hive_partitioning = false, columns = ${columns})`;
  const all =
    before === undefined
      ? loaded
      : `${loaded} UNION ALL SELECT field, id, title, 0 AS turn FROM read_parquet([${sqlText(before)}], hive_partitioning = false)`;
  return `SELECT field, id, arg_max(title, turn) AS title FROM (${all}) GROUP BY field, id HAVING arg_max(title, turn) <> '' ORDER BY field, id`;
}

async function merge(engine: Duckdb, dir: string, spool: string, before: Titles | undefined): Promise<NewTitles> {
  if (before !== undefined) await assertIntact(before, ': checksum mismatch', restoreHint);
  const file = path.join(dir, 'titles.parquet');
  await localFiles.use(before === undefined ? [] : [before], ([local]) =>
    writeListFile(engine, mergeSql(spool, local), file),
  );
  const counts = await engine.rows(
    `SELECT field, count(*) AS titles FROM read_parquet([${sqlText(file)}], hive_partitioning = false) GROUP BY field ORDER BY field`,
  );
  return { file, counts: Object.fromEntries(counts.map(({ field, titles }) => [String(field), Number(titles)])) };
}

/**
 * Loads titles: rows of `field`, `id` and `title`, as CSV with or without a header, or as JSON lines. A row replaces
 * the title of its id, the last row wins, and an empty title removes it. Bad rows are reported, and then nothing
 * changes. Durable when it returns. Errors: `usage` for an unreadable list or no row, `file_damaged`, `record_damaged`,
 * `locked`, `disk`, `memory`, `stopping`.
 */
export async function loadTitles(
  titlesDir: string,
  inputs: readonly ListInput[],
  options: ListOptions,
): Promise<{ rows: number; titles: number; fields: TitleCounts } | readonly RejectedList[]> {
  const room = await openScratchDir(path.join(titlesDir, 'work'), 'load titles');
  try {
    const spool = path.join(room.dir, 'titles.jsonl');
    const file = await openWorkFile(spool);
    const rejected: RejectedList[] = [];
    let rows = 0;
    try {
      for (const input of inputs) {
        const spooled = await spoolTitles(input, file, rows, options.signal);
        if (typeof spooled === 'number') rows = spooled;
        else rejected.push(spooled);
      }
    } finally {
      await file.close();
    }
    if (rejected.length > 0) return rejected;
    if (rows === 0)
      throw new AppError('usage', `${inputs.map(({ name }) => name).join(', ')} has no title`, {
        hint: 'Pass a list with at least one title.',
      });
    const engine = await openSortEngine(room.dir, options);
    try {
      const fields = await changeTitles(titlesDir, (before) => merge(engine, room.dir, spool, before));
      return { rows, titles: Object.values(fields).reduce((sum, count) => sum + count, 0), fields };
    } finally {
      engine.close();
    }
  } finally {
    await room.close();
  }
}
