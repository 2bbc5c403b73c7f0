/**
 * Segments and titles: what an operator's lists become.
 *
 * In: lists of ids, one a line, and of titles (title-rows.ts), as files or standard input. Out: the files of the stores
 * `segments` and `titles`, sorted by DuckDB within its memory, which reads them from a spool in a work room.
 * Invariant: a list is taken whole or not at all; what is wrong with it is reported by line. Work in hand is in no
 * place that a reader looks at.
 * Crash: a work room, removed by the next command of the kind; the store is as it was.
 */
import path from 'node:path';
import { openDuckdb, type Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText, sqlList } from '../../lake/sql/literals.ts';
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import { openWorkFile, openWorkRoom } from '../../runtime/files/work-files.ts';
import {
  changeSegment,
  listSegments,
  maxIdLength,
  putSegment,
  type Segment,
  type SegmentId,
  type SegmentKind,
} from '../../segments/segment-store.ts';
import {
  createBadLines,
  type RefusedList,
  readLines,
  type BadLine,
  type LineBlock,
  type ListInput,
} from './text-lines.ts';
import { exists, findSize, hashFile } from '../../runtime/files/file-checks.ts';

/** What a list became. */
export interface AddedSegment extends SegmentId {
  readonly kind: SegmentKind;
  /** Ids in the segment, each counted once. */
  readonly members: number;
  /** The same, under the name that it had up to 0.3. */
  readonly ids: number;
  /** Lines of the list that had an id. */
  readonly lines: number;
  /** The account had a segment of this id, which is gone. */
  readonly replaced: boolean;
}

export interface ListOptions {
  readonly clock: Clock;
  /** Bound of DuckDB's memory, MiB: what does not fit is sorted on disk. */
  readonly memoryMb: number;
  /** Breaks off between two pieces of a list; nothing is changed then. */
  readonly signal: AbortSignal;
}

/** Says why a text is no id; undefined: it is one. */
function findFault(text: string): string | undefined {
  // Counted in characters only where its units leave it open.
  if (text.length > maxIdLength && Array.from(text).length > maxIdLength)
    return `is longer than ${maxIdLength} characters`;
  return text.includes('\0') ? 'has a NUL in it' : undefined;
}

/** Throws `stopping` once the command was told to stop. */
export function assertGoesOn(signal: AbortSignal): void {
  if (signal.aborted) throw new AppError('stopping', 'the command was stopped', { hint: 'Nothing was changed.' });
}

/** The ids of a block as lines of JSON, and the faults of the others; empty lines are passed over. */
function spoolIds({ firstLine, texts, bad }: LineBlock): { text: string; lines: number; bad: readonly BadLine[] } {
  const faults = [...bad];
  const spooled: string[] = [];
  for (const [index, text] of texts.entries()) {
    if (text === '') continue;
    const reason = findFault(text);
    if (reason === undefined) spooled.push(`{"id":${JSON.stringify(text)}}\n`);
    else faults.push({ line: firstLine + index, reason });
  }
  return { text: spooled.join(''), lines: spooled.length, bad: faults };
}

/** Writes the ids of a list to a spool; gives their number, or what is wrong with the list. */
async function writeSpool(input: ListInput, spool: string, signal: AbortSignal): Promise<number | RefusedList> {
  const badLines = createBadLines();
  const file = await openWorkFile(spool);
  let count = 0;
  try {
    for await (const block of readLines(input)) {
      assertGoesOn(signal);
      const { text, lines, bad } = spoolIds(block);
      bad.forEach((line) => badLines.add(line));
      count += lines;
      // A list that is refused needs no further room on the disk.
      if (badLines.count === 0) await file.append(Buffer.from(text));
    }
  } finally {
    await file.close();
  }
  return badLines.count === 0 ? count : badLines.toRefused(input.name);
}

/** SQL of the file that a spool becomes: each id once, sorted. */
function segmentSql(spool: string): string {
  return `SELECT DISTINCT id FROM read_json([${sqlText(spool)}], format = 'newline_delimited', hive_partitioning = false, columns = {id: 'VARCHAR'}) ORDER BY id`;
}

/** Opens an engine that sorts in a work room. One thread: millions of ids are a matter of seconds. */
export function openSortEngine(dir: string, { memoryMb }: ListOptions): Promise<Duckdb> {
  return openDuckdb({ memoryMb, threads: 1, tempDir: path.join(dir, 'spill') });
}

/** Writes the rows of a query to a Parquet file that is not durable yet; returns their number. */
export async function writeListFile(engine: Duckdb, query: string, file: string): Promise<number> {
  const [row] = await engine.rows(`COPY (${query}) TO ${sqlText(file)} (FORMAT parquet, COMPRESSION zstd)`);
  return Number(row?.['Count']);
}

/**
 * Adds a segment of an account, or replaces the one of its id, by a list of ids: one a line, exactly as it stands, each
 * of 1 to 1024 characters; empty lines are passed over. Durable when it returns. A list with a line that is no id is
 * refused, and nothing changes. Memory: that of the engine and a few pieces of the list, however many ids there are.
 * Errors: `usage` when the list cannot be read or has no id, `locked`, `disk`, `memory`, `stopping`.
 */
export async function addSegment(
  segmentsDir: string,
  segment: SegmentId & { readonly kind: SegmentKind },
  input: ListInput,
  options: ListOptions,
): Promise<AddedSegment | RefusedList> {
  const room = await openWorkRoom(path.join(segmentsDir, 'work'), 'segment add');
  try {
    const spool = path.join(room.dir, 'ids.jsonl');
    const lines = await writeSpool(input, spool, options.signal);
    if (typeof lines !== 'number') return lines;
    if (lines === 0)
      throw new AppError('usage', `${input.name} has no id`, {
        hint: "Nothing was changed; 'tributary segment remove' takes a segment away.",
      });
    const file = path.join(room.dir, 'ids.parquet');
    const engine = await openSortEngine(room.dir, options);
    const ids = await writeListFile(engine, segmentSql(spool), file).finally(() => engine.close());
    assertGoesOn(options.signal);
    const addedAt = new Date(options.clock.nowMs()).toISOString();
    const { idAccount, idSegment, kind } = segment;
    const { replaced } = await putSegment(segmentsDir, segment, file, { kind, ids, addedAt });
    return { idAccount, idSegment, kind, members: ids, ids, lines, replaced };
  } finally {
    await room.close();
  }
}

/** The ids of erased users or devices, which may stand in segments. */
export interface ForgottenIds {
  readonly kind: SegmentKind;
  readonly ids: readonly string[];
  /** Only segments of this account; absent: of all. */
  readonly idAccount?: number;
}

/** Refuses to rewrite a segment whose bytes are not those that were written. */
async function assertWhole({ file, sizeBytes, sha256, idSegment, idAccount }: Segment): Promise<void> {
  if ((await findSize(file)) === sizeBytes && (await hashFile(file)) === sha256) return;
  throw new AppError('file_damaged', `${file} is damaged or gone: no id can be taken out of it`, {
    hint: `Add segment ${idSegment} of account ${idAccount} anew, or remove it; then repeat the command.`,
  });
}

/** Writes a segment without some ids; undefined where it has none of them. */
async function rewrite(
  engine: Duckdb,
  dir: string,
  segment: Segment,
  ids: readonly string[],
): Promise<{ readonly file: string; readonly ids: number } | undefined> {
  await assertWhole(segment);
  const source = `read_parquet([${sqlText(segment.file)}], hive_partitioning = false)`;
  const named = `(SELECT unnest(CAST(${sqlList(ids)} AS VARCHAR[])))`;
  const [row] = await engine.rows(`SELECT count(*) AS found FROM ${source} WHERE id IN ${named}`);
  if (Number(row?.['found']) === 0) return undefined;
  const file = path.join(dir, `${segment.idAccount}-${segment.idSegment}.parquet`);
  return {
    file,
    ids: await writeListFile(engine, `SELECT id FROM ${source} WHERE id NOT IN ${named} ORDER BY id`, file),
  };
}

/**
 * Takes ids out of all segments that have them, so that an erased person is in no file of the data folder; returns how
 * many segments had any. Errors: `file_damaged`, `record_damaged`, `locked`, `disk`, `memory`.
 */
export async function forgetIds(
  segmentsDir: string,
  { kind, ids, idAccount }: ForgottenIds,
  options: ListOptions,
): Promise<number> {
  if (!(await exists(segmentsDir))) return 0;
  // Also removes what a killed command has left of its list.
  const room = await openWorkRoom(path.join(segmentsDir, 'work'), 'erase');
  try {
    const segments = (await listSegments(segmentsDir, idAccount)).filter((segment) => segment.kind === kind);
    if (segments.length === 0) return 0;
    const engine = await openSortEngine(room.dir, options);
    let changed = 0;
    try {
      for (const segment of segments)
        await changeSegment(segmentsDir, segment, async (before) => {
          const rewritten = before.kind === kind ? await rewrite(engine, room.dir, before, ids) : undefined;
          if (rewritten !== undefined) changed += 1;
          return rewritten;
        });
    } finally {
      engine.close();
    }
    return changed;
  } finally {
    await room.close();
  }
}
