/**
 * Segments and titles from an operator's lists.
 * In: lists of ids, one per line, and of titles, as files or standard input. Out: sorted files of the stores `segments`
 * and `titles`; DuckDB sorts a spool in a work folder within its memory.
 * Invariant: a list is taken completely or not at all, and its bad lines are reported.
 * Crash: leaves a work folder, which the next command removes; the store is unchanged.
 */
import path from 'node:path';
import { openDuckdb, type Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlText, sqlList } from '../../lake/sql/literals.ts';
import { AppError } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import { openWorkFile, openScratchDir } from '../../runtime/files/work-files.ts';
import {
  changeSegment,
  listSegments,
  maxIdLength,
  putSegment,
  type Segment,
  type SegmentId,
  type SegmentKind,
} from '../../segments/segment-store.ts';
import { createBadLineList, type RejectedList, readListLines, type ListInput } from './text-lines.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import type { RecordedFile } from '../../runtime/store/file-records.ts';
import { findStoredSize, hashStored, localFiles } from '../../runtime/store/open-store.ts';

export interface AddedSegment extends SegmentId {
  readonly kind: SegmentKind;
  readonly members: number;
  /** Former name of `members`, up to 0.3. */
  readonly ids: number;
  /** Lines with an id. */
  readonly lines: number;
  readonly replaced: boolean;
}

export interface ListOptions {
  readonly clock: Clock;
  /** Memory limit of DuckDB, MiB; it sorts larger lists on disk. */
  readonly memoryMb: number;
  /** Cancels between two pieces of a list; nothing is changed then. */
  readonly signal: AbortSignal;
}

function findFault(text: string): string | undefined {
  // Counts code points only if the number of UTF-16 units does not decide.
  if (text.length > maxIdLength && Array.from(text).length > maxIdLength)
    return `is longer than ${maxIdLength} characters`;
  return text.includes('\0') ? 'contains NUL' : undefined;
}

export function throwIfStopped(signal: AbortSignal): void {
  if (signal.aborted)
    throw new AppError('stopping', 'the command was stopped', { hint: 'Run the command again; nothing was changed.' });
}

/** Spools a list as lines of JSON; returns the number of ids, or the bad lines. Empty lines are skipped. */
async function writeSpool(input: ListInput, spool: string, signal: AbortSignal): Promise<number | RejectedList> {
  const badLines = createBadLineList();
  const file = await openWorkFile(spool);
  let count = 0;
  try {
    for await (const { firstLine, texts, bad } of readListLines(input)) {
      throwIfStopped(signal);
      bad.forEach((line) => badLines.add(line));
      const spooled: string[] = [];
      for (const [index, text] of texts.entries()) {
        if (text === '') continue;
        const reason = findFault(text);
        if (reason === undefined) spooled.push(`{"id":${JSON.stringify(text)}}\n`);
        else badLines.add({ line: firstLine + index, reason });
      }
      count += spooled.length;
      if (badLines.count === 0) await file.append(Buffer.from(spooled.join('')));
    }
  } finally {
    await file.close();
  }
  return badLines.count === 0 ? count : badLines.toRefused(input.name);
}

/** Opens an engine that sorts in a work folder. One thread sorts millions of ids in seconds. */
export function openSortEngine(dir: string, { memoryMb }: ListOptions): Promise<Duckdb> {
  return openDuckdb({ memoryMb, threads: 1, tempDir: path.join(dir, 'spill') });
}

/** Writes a query to a Parquet file, not yet durable; returns the number of rows. */
export async function writeListFile(engine: Duckdb, query: string, file: string): Promise<number> {
  const [row] = await engine.rows(`COPY (${query}) TO ${sqlText(file)} (FORMAT parquet, COMPRESSION zstd)`);
  return Number(row?.['Count']);
}

/**
 * Adds or replaces a segment by a list of ids, one per line, each of 1 to 1024 characters; empty lines are skipped.
 * Durable when it returns. A list with a bad line is rejected. Memory does not depend on the number of ids. Errors:
 * `usage` for an unreadable list or one without an id, `locked`, `disk`, `memory`, `stopping`.
 */
export async function addSegment(
  segmentsDir: string,
  segment: SegmentId & { readonly kind: SegmentKind },
  input: ListInput,
  options: ListOptions,
): Promise<AddedSegment | RejectedList> {
  const room = await openScratchDir(path.join(segmentsDir, 'work'), 'segment add');
  try {
    const spool = path.join(room.dir, 'ids.jsonl');
    const lines = await writeSpool(input, spool, options.signal);
    if (typeof lines !== 'number') return lines;
    if (lines === 0)
      throw new AppError('usage', `${input.name} has no id`, {
        hint: "Pass a list with at least one id; 'tributary segment remove' removes a segment.",
      });
    const file = path.join(room.dir, 'ids.parquet');
    const engine = await openSortEngine(room.dir, options);
    const query = `SELECT DISTINCT id FROM read_json([${sqlText(spool)}], format = 'newline_delimited', hive_partitioning = false, columns = {id: 'VARCHAR'}) ORDER BY id`;
    const ids = await writeListFile(engine, query, file).finally(() => engine.close());
    throwIfStopped(options.signal);
    const addedAt = new Date(options.clock.nowMs()).toISOString();
    const { idAccount, idSegment, kind } = segment;
    const { replaced } = await putSegment(segmentsDir, segment, file, { kind, ids, addedAt });
    return { idAccount, idSegment, kind, members: ids, ids, lines, replaced };
  } finally {
    await room.close();
  }
}

/** Ids that an erasure removes from segments. */
export interface SegmentIdsToRemove {
  readonly kind: SegmentKind;
  readonly ids: readonly string[];
  /** Absent: segments of all accounts. */
  readonly idAccount?: number;
}

/** Refuses to rewrite a damaged file. Error: `file_damaged`. */
export async function assertIntact(file: RecordedFile, what: string, hint: string): Promise<void> {
  if ((await findStoredSize(file)) !== file.sizeBytes || (await hashStored(file)) !== file.sha256)
    throw new AppError('file_damaged', `${file.absolutePath} is damaged${what}`, { hint });
}

async function rewrite(
  engine: Duckdb,
  dir: string,
  segment: Segment,
  ids: readonly string[],
): Promise<{ readonly file: string; readonly ids: number } | undefined> {
  const { idSegment, idAccount } = segment;
  const hint = `Add segment ${idSegment} of account ${idAccount} again, or remove it; then repeat the command.`;
  await assertIntact(segment, ' or missing: no id can be removed from it', hint);
  return await localFiles.use([segment], async (paths) => {
    const source = `read_parquet(${sqlList(paths)}, hive_partitioning = false)`;
    const named = `(SELECT unnest(CAST(${sqlList(ids)} AS VARCHAR[])))`;
    const [row] = await engine.rows(`SELECT count(*) AS found FROM ${source} WHERE id IN ${named}`);
    if (Number(row?.['found']) === 0) return undefined;
    const file = path.join(dir, `${idAccount}-${idSegment}.parquet`);
    return {
      file,
      ids: await writeListFile(engine, `SELECT id FROM ${source} WHERE id NOT IN ${named} ORDER BY id`, file),
    };
  });
}

/**
 * Removes ids from all segments; returns the number of changed segments. Errors as `addSegment`, and `file_damaged`,
 * `record_damaged`.
 */
export async function removeIdsFromSegments(
  segmentsDir: string,
  { kind, ids, idAccount }: SegmentIdsToRemove,
  options: ListOptions,
): Promise<number> {
  if (!(await exists(segmentsDir)) && (await listSegments(segmentsDir)).length === 0) return 0;
  // In the local folder of the segments. Opening also removes the spool of a killed command.
  const room = await openScratchDir(path.join(segmentsDir, 'work'), 'erase');
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
