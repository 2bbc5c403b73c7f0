/**
 * Failed events: tries them again after their cause was removed, or removes them.
 *
 * In: the settled files of `failed/`. Out: a commit per portion, with a young file of the rows that can be written now.
 * Events of secondary tables stay: their rows and counts would have to move between two logs, and a transaction that is
 * sent again is stored once anyway.
 * Invariant: an event leaves `failed/` by the commit that stores it, counts it as a duplicate or counts it as erased.
 * Crash: atomic, by one change (lake/files/change.ts).
 */
import path from 'node:path';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { writeWorkFile } from '../runtime/files/work-files.ts';
import { events as leader, importKinds } from '../datasets/dataset.ts';
import { maskOfLake } from '../datasets/event-id.ts';
import { parseLine } from '../datasets/event-line.ts';
import type { Action } from '../lake/log/actions.ts';
import { nextAvailableAtMs } from '../lake/log/lake-state.ts';
import { toAdd } from '../lake/files/data-file.ts';
import type { Enricher } from '../lake/files/enriched-rows.ts';
import type { Duckdb } from '../lake/sql/duckdb.ts';
import {
  listFailedFiles,
  listPublishedFiles,
  readFailedFile,
  type FailedEvent,
  type FailureReason,
} from '../lake/files/failed-events.ts';
import { openChange } from '../lake/files/change.ts';
import { addErasedIds, readOwnedId, valuesSql } from '../lake/event-index/erased-ids.ts';
import { openStagingFolder } from '../lake/files/staging.ts';
import { lakePaths } from '../lake/lake.ts';
import type { Change, Table } from '../lake/log/table.ts';
import { youngFolder } from '../lake/log/young-folder.ts';
import { openBatchTables, type ClassifiedBatch } from '../lake/batch/batch-tables.ts';
import { createLakeLookup } from '../lake/batch/idempotency-keys.ts';
import { removeFailed, rewriteFailed } from '../lake/remove-failed.ts';
import type { EraseOutsideTablesDependencies } from './erase/erase-outside-tables.ts';
import { inPortions, withTableLock } from './tables.ts';

interface ReplayDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  /** Fills enriched columns; absent: they stay empty. */
  readonly enricher?: Enricher | undefined;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

export interface Replayed {
  readonly stored: number;
  readonly repeats: number;
  readonly stillFailed: number;
  /** Number of events of secondary tables, which are not replayed. */
  readonly skipped?: number;
}

/** Events per commit, rounded up to files: a running compactor classifies its batch again after each commit. */
const eventsPerCommit = 20_000;
/** Maximum number of attempts; each after the first follows a flush. */
const maxAttempts = 100;

interface FailedFile {
  readonly file: string;
  readonly events: readonly FailedEvent[];
}

function bytesOf(event: FailedEvent): Buffer {
  return event.lineBase64 === undefined ? Buffer.from(event.line) : Buffer.from(event.lineBase64, 'base64');
}

function isOfOtherTable(bytes: Buffer): boolean {
  const checked = parseLine(bytes);
  const { kind } = membersOf('text' in checked ? JSON.parse(checked.text) : undefined);
  return typeof kind === 'string' && importKinds.has(kind) && !leader.kinds.includes(kind);
}

function isCandidate(event: FailedEvent): boolean {
  if (isOfOtherTable(bytesOf(event))) return false;
  // With a reused key, only the client knows which of the two requests is right.
  return event.reason !== 'key_reused' && !bytesOf(event).includes(0x0a);
}

/** Returns what each file keeps; the batch has the candidates in the order of the files. */
function keepFailed(files: readonly FailedFile[], { failedLines }: ClassifiedBatch) {
  const reasons = new Map<number, FailureReason>(failedLines.map(({ line, reason }) => [line, reason]));
  let line = 0;
  return files.map(({ file, events }) => {
    // A kept event keeps its bytes and the time of its first failure.
    const remaining = events.flatMap((event) => {
      if (!isCandidate(event)) return [event];
      const reason = reasons.get(line);
      line += 1;
      return reason === undefined ? [] : [{ ...event, reason }];
    });
    const isChanged =
      remaining.length < events.length || remaining.some(({ reason }, index) => reason !== events[index]?.reason);
    return { file, events: remaining, isChanged };
  });
}

/** Commits a classified batch. Error: `commit_conflict` if a flush was committed since; nothing is changed then. */
async function commitReplay(
  dependencies: ReplayDependencies,
  files: readonly FailedFile[],
  classified: ClassifiedBatch,
): Promise<Replayed> {
  const { table, clock, crashPoint, lakeDir } = dependencies;
  const { staging } = lakePaths(lakeDir);
  const { keysCommit, availableAtMs } = table.lake();
  const replayedFiles = keepFailed(files, classified);
  const count = (some: readonly FailedFile[]): number => some.reduce((sum, { events }) => sum + events.length, 0);
  const changed = replayedFiles.filter(({ isChanged }) => isChanged);
  if (changed.length === 0) return { stored: 0, repeats: 0, stillFailed: count(files) };

  const nowMs = nextAvailableAtMs(clock, table.lake());
  const open = await openChange(table, staging, 'a replay', crashPoint);
  try {
    const file = path.join(open.folder, 'rows.parquet');
    const written = await classified.writeRows(file, nowMs);
    const stored = written.numRecords;
    const relative = `${youngFolder}/${open.id}-0.parquet`;
    const actions: Action[] = stored > 0 ? [{ add: toAdd(relative, written, nowMs, true, !classified.addsKeys) }] : [];
    const change: Change = {
      cause: 'replay',
      actions,
      totals: { failed: count(replayedFiles) - count(files), stored, repeats: classified.repeats },
      availableAtMs: nowMs,
      addsKeys: classified.addsKeys,
      metrics: { rows: stored, bytes: written.sizeBytes },
    };
    await open.commit(
      stored > 0 ? [{ file, path: relative }] : [],
      (_state, lake) => {
        if (lake.keysCommit !== keysCommit || lake.availableAtMs !== availableAtMs)
          throw new AppError('commit_conflict', 'a flush was committed meanwhile');
        return change;
      },
      await rewriteFailed(open, changed),
    );
    return { stored, repeats: classified.repeats, stillFailed: count(replayedFiles) };
  } finally {
    await open.close();
  }
}

async function replayFiles(dependencies: ReplayDependencies, files: readonly FailedFile[]): Promise<Replayed> {
  const { table, duckdb, lakeDir } = dependencies;
  const candidates = files.flatMap(({ events }) => events.filter(isCandidate));
  const stillFailed = files.reduce((sum, { events }) => sum + events.length, 0);
  if (candidates.length === 0) return { stored: 0, repeats: 0, stillFailed };
  const staging = await openStagingFolder(lakePaths(lakeDir).staging, 'a replay');
  try {
    const spool = path.join(staging.folder, 'spool.ndjson');
    await writeWorkFile(spool, Buffer.concat(candidates.flatMap((event) => [bytesOf(event), Buffer.from('\n')])));
    const mask = maskOfLake(table.state().metaData?.id);
    const tables = await openBatchTables(duckdb, dependencies.enricher, undefined, mask);
    const loaded = await tables.load(spool, candidates.length, true);
    const lookUp = createLakeLookup(table);
    for (let attempt = 1; ; attempt += 1) {
      const classified = await lookUp.classify(loaded);
      try {
        return await commitReplay(dependencies, files, classified);
      } catch (error) {
        if (!isAppError(error, 'commit_conflict') || attempt === maxAttempts) throw error;
      }
    }
  } finally {
    await staging.close();
  }
}

async function* readPortions(paths: readonly string[]): AsyncGenerator<FailedFile[]> {
  let portion: FailedFile[] = [];
  let events = 0;
  for (const file of paths) {
    const read = await readFailedFile(file);
    if (events > 0 && events + read.length > eventsPerCommit) {
      yield portion;
      [portion, events] = [[], 0];
    }
    portion.push({ file, events: read });
    events += read.length;
  }
  if (portion.length > 0) yield portion;
}

/**
 * Retries every failed event. A compactor may run: after a commit of one, the other classifies its events again. So
 * a keyed event is stored once, and `available_at` never decreases. Can be repeated. Errors: `file_damaged` if a file
 * that may have one of the events is damaged, `locked`, `commit_conflict`, `disk`, `sql`.
 */
export function replayFailedEvents(dependencies: ReplayDependencies): Promise<Replayed> {
  const { table, lakeDir } = dependencies;
  return withTableLock(table, lakeDir, 'a replay', async () => {
    let total: Replayed = { stored: 0, repeats: 0, stillFailed: 0 };
    let skipped = 0;
    for await (const portion of readPortions(await listPublishedFiles(lakePaths(lakeDir).failed))) {
      for (const { events } of portion) skipped += events.filter((event) => isOfOtherTable(bytesOf(event))).length;
      const one = await replayFiles(dependencies, portion);
      total = {
        stored: total.stored + one.stored,
        repeats: total.repeats + one.repeats,
        stillFailed: total.stillFailed + one.stillFailed,
      };
    }
    return skipped === 0 ? total : { ...total, skipped };
  });
}

/** Selects failed events of imports, never bad rows of loads. An absent member selects any. */
interface FailedFilter {
  readonly reason?: FailureReason | undefined;
  readonly idApp?: number | undefined;
}

const idsAtOnce = 20_000;

function isMeant({ line, load, reason }: FailedEvent, filter: FailedFilter): boolean {
  return (
    load === undefined &&
    (filter.reason === undefined || filter.reason === reason) &&
    (filter.idApp === undefined || filter.idApp === readOwnedId(line)?.idApp)
  );
}

export async function readFailedEvents(lakeDir: string, filter: FailedFilter): Promise<FailedEvent[]> {
  const { failed, table } = lakePaths(lakeDir);
  const found: FailedEvent[] = [];
  for (const file of await listFailedFiles(failed, table))
    for (const event of await readFailedFile(file)) if (isMeant(event, filter)) found.push(event);
  return found;
}

/**
 * Removes failed events atomically, concurrently with a compactor; returns their number. They count as erased. Errors:
 * `locked`, `file_damaged`, `disk`.
 */
export function dropFailed(dependencies: EraseOutsideTablesDependencies, filter: FailedFilter): Promise<number> {
  const { table, lakeDir } = dependencies;
  return withTableLock(table, lakeDir, 'the removal of failed events', async () => {
    const ids = (await readFailedEvents(lakeDir, filter)).flatMap(({ line }) => readOwnedId(line) ?? []);
    const selects = [...inPortions(ids, idsAtOnce)].map(valuesSql);
    if (ids.length > 0) await addErasedIds(dependencies, lakePaths(lakeDir), selects);
    return removeFailed({ ...dependencies, dataset: leader }, 'drop', (event) => isMeant(event, filter));
  });
}
