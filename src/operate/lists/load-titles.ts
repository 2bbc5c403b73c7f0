import path from 'node:path';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import { AppError } from '../../runtime/errors.ts';
import { findSize, hashFile } from '../../runtime/files/file-checks.ts';
import { openWorkFile, type WorkFile } from '../../runtime/files/work-files.ts';
import { openWorkRoom } from '../../runtime/files/work-room.ts';
import { changeTitles, type NewTitles, type TitleCounts, type Titles } from '../../titles/title-store.ts';
import { assertGoesOn, openSortEngine, writeListFile, type ListOptions } from './add-segment.ts';
import { createBadLines, type RefusedList } from './bad-lines.ts';
import { readLines, type ListInput } from './text-lines.ts';
import { createTitleReader } from './title-rows.ts';

/** What became of lists of titles. */
export interface LoadedTitles {
  /** Rows of the lists. */
  readonly rows: number;
  /** Titles that there are now, and how many of them each field has. */
  readonly titles: number;
  readonly fields: TitleCounts;
}

/** Adds the rows of a list to a spool, numbered on from `count`; gives the last number, or what is wrong. */
async function spoolTitles(
  input: ListInput,
  file: WorkFile,
  count: number,
  signal: AbortSignal,
): Promise<number | RefusedList> {
  const badLines = createBadLines();
  const reader = createTitleReader();
  let turn = count;
  for await (const { firstLine, texts, bad } of readLines(input)) {
    assertGoesOn(signal);
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

/** Refuses to build on titles that are not what was written: they would be taken for good ones afterwards. */
async function assertWhole({ file, sizeBytes, sha256 }: Titles): Promise<void> {
  if ((await findSize(file)) === sizeBytes && (await hashFile(file)) === sha256) return;
  throw new AppError('file_damaged', `${file} is damaged: its bytes are not those that were written`, {
    hint: "Restore it from a backup; or remove the folder of the titles, and load them anew by 'tributary load titles'.",
  });
}

/** SQL of the titles after a load: of several of one id the newest, and none where that one is empty. */
function mergeSql(spool: string, before: Titles | undefined): string {
  const columns = "{field: 'VARCHAR', id: 'VARCHAR', title: 'VARCHAR', turn: 'BIGINT'}";
  const loaded = `SELECT field, id, title, turn FROM read_json([${sqlText(spool)}], format = 'newline_delimited', hive_partitioning = false, columns = ${columns})`;
  const all =
    before === undefined
      ? loaded
      : `${loaded} UNION ALL SELECT field, id, title, 0 AS turn FROM read_parquet([${sqlText(before.file)}], hive_partitioning = false)`;
  return `SELECT field, id, arg_max(title, turn) AS title FROM (${all}) GROUP BY field, id HAVING arg_max(title, turn) <> '' ORDER BY field, id`;
}

async function merge(engine: Duckdb, dir: string, spool: string, before: Titles | undefined): Promise<NewTitles> {
  if (before !== undefined) await assertWhole(before);
  const file = path.join(dir, 'titles.parquet');
  await writeListFile(engine, mergeSql(spool, before), file);
  const counts = await engine.rows(
    `SELECT field, count(*) AS titles FROM read_parquet([${sqlText(file)}], hive_partitioning = false) GROUP BY field ORDER BY field`,
  );
  return { file, counts: Object.fromEntries(counts.map(({ field, titles }) => [String(field), Number(titles)])) };
}

/**
 * Loads titles: rows of `field`, `id` and `title`, as CSV, with a header or without one, or as JSON lines. A row replaces
 * the title that its id had; of several for one id the last counts, and an empty title takes it away. All lists are
 * taken, or none: one with a bad row is refused, by line and reason, and nothing changes. Durable when it returns.
 * Errors: `usage` when a list cannot be read or there is no row, `file_damaged`, `record_damaged`, `locked`, `disk`,
 * `memory`, `stopping`.
 */
export async function loadTitles(
  titlesDir: string,
  inputs: readonly ListInput[],
  options: ListOptions,
): Promise<LoadedTitles | readonly RefusedList[]> {
  const room = await openWorkRoom(path.join(titlesDir, 'work'), 'load titles');
  try {
    const spool = path.join(room.dir, 'titles.jsonl');
    const file = await openWorkFile(spool);
    const refused: RefusedList[] = [];
    let rows = 0;
    try {
      for (const input of inputs) {
        const spooled = await spoolTitles(input, file, rows, options.signal);
        if (typeof spooled === 'number') rows = spooled;
        else refused.push(spooled);
      }
    } finally {
      await file.close();
    }
    if (refused.length > 0) return refused;
    if (rows === 0)
      throw new AppError('usage', `${inputs.map(({ name }) => name).join(', ')} has no title`, {
        hint: 'Nothing was changed.',
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
