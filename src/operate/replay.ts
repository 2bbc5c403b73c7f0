/**
 * Replay: tries the failed events again, after the cause was put right.
 *
 * In: the settled files of `failed/`. Out: one commit for each portion, with a young file of the rows that can be
 * written now; what still fails stays as it was, and so do lines of other tables than the events: their rows and their
 * counts would have to change places between two logs, and a transaction that is sent again is stored once anyway.
 * Invariant: an event leaves `failed/` by the commit that has it in the lake, or counts it as a repeat of what is
 * there.
 * Crash: all or nothing, by one change (lake/files/change.ts).
 */
import path from 'node:path';
import { writeNewFile } from '../runtime/files/durable-file.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { waitForLock } from '../runtime/files/lock.ts';
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
  listSettledFiles,
  readFailedFile,
  renderFailed,
  type FailedEvent,
  type FailureReason,
} from '../lake/files/failed-events.ts';
import { openChange, recoverChanges } from '../lake/files/change.ts';
import { openStagingFolder } from '../lake/files/staging.ts';
import { lakePaths } from '../lake/lake.ts';
import type { Change, Table } from '../lake/log/table.ts';
import { youngFolder } from '../lake/log/young-folder.ts';
import { openBatchTables, type JudgedBatch } from '../lake/batch/batch-tables.ts';
import { createLakeLookUp } from '../lake/batch/recent-keys.ts';

export interface ReplayDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
  /** Tells places and devices of the events; without it their columns stay empty. */
  readonly enricher?: Enricher | undefined;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
}

/** What a replay did: events stored now, events that the lake had already, and events that failed again. */
export interface Replayed {
  readonly stored: number;
  readonly repeats: number;
  readonly stillFailed: number;
  /** Of those that failed again, the ones that were not tried: of kinds that other tables than the events store. */
  readonly notTried?: number;
}

const lockWaitMs = 120_000;
/** Events replayed by one commit, as far as whole files go: a compactor at work judges its batch again after each. */
const eventsPerCommit = 20_000;
/** Each attempt after the first follows a flush that was committed meanwhile. */
const maxAttempts = 100;

/** A file of failed events, as it was read. */
interface FailedFile {
  readonly file: string;
  readonly events: readonly FailedEvent[];
}

/** The bytes of an event as it was in the stream. */
function bytesOf(event: FailedEvent): Buffer {
  return event.lineBase64 === undefined ? Buffer.from(event.line) : Buffer.from(event.lineBase64, 'base64');
}

/** Says whether a line is of a kind that another table than that of the events stores. */
function isOfOtherTable(bytes: Buffer): boolean {
  const checked = parseLine(bytes);
  const kind = 'text' in checked ? (JSON.parse(checked.text) as { readonly kind?: unknown }).kind : undefined;
  return typeof kind === 'string' && importKinds.has(kind) && !leader.kinds.includes(kind);
}

/** Says whether another try is worth it. */
function isCandidate(event: FailedEvent): boolean {
  // Its row and its count would have to change places between two logs: it stays, and is listed.
  if (isOfOtherTable(bytesOf(event))) return false;
  // A key that was used for another request stays refused: which of the two is right is the client's to say.
  return event.reason !== 'key_reused' && !bytesOf(event).includes(0x0a);
}

/**
 * What of each file stays failed, by the verdict over its events, which stand in the batch in the order of the files.
 */
function keepFailed(files: readonly FailedFile[], { failedLines }: JudgedBatch): FailedFile[] {
  const reasons = new Map<number, FailureReason>(failedLines.map(({ line, reason }) => [line, reason]));
  let line = 0;
  return files.map(({ file, events }) => ({
    file,
    // What is kept stays as it was kept: its bytes, and when it failed first.
    events: events.flatMap((event) => {
      if (!isCandidate(event)) return [event];
      const reason = reasons.get(line);
      line += 1;
      return reason === undefined ? [] : [{ ...event, reason }];
    }),
  }));
}

function isChanged(before: FailedFile, after: FailedFile | undefined): boolean {
  return (
    before.events.length !== after?.events.length ||
    before.events.some((event, index) => event.reason !== after.events[index]?.reason)
  );
}

/**
 * Commits what the verdict says; throws `commit_conflict` when a flush was committed since, which has changed nothing
 * then.
 */
async function commitReplay(
  dependencies: ReplayDependencies,
  files: readonly FailedFile[],
  judged: JudgedBatch,
): Promise<Replayed> {
  const { table, clock, crashPoint, lakeDir } = dependencies;
  const { staging } = lakePaths(lakeDir);
  const { keysCommit, availableAtMs } = table.lake();
  const kept = keepFailed(files, judged);
  const count = (some: readonly FailedFile[]): number => some.reduce((sum, { events }) => sum + events.length, 0);
  const changed = kept.filter((after, index) => files[index] !== undefined && isChanged(files[index], after));
  if (changed.length === 0) return { stored: 0, repeats: 0, stillFailed: count(files) };

  const nowMs = nextAvailableAtMs(clock, table.lake());
  const open = await openChange(table, staging, 'a replay', crashPoint);
  try {
    const file = path.join(open.folder, 'rows.parquet');
    const written = await judged.writeRows(file, nowMs);
    const stored = written.numRecords;
    const relative = `${youngFolder}/${open.id}-0.parquet`;
    const left = changed.flatMap(({ file: to, events }, index) =>
      events.length === 0 ? [] : [{ name: `${index}.ndjson`, to, events }],
    );
    for (const { name, events } of left) await writeNewFile(path.join(open.folder, name), renderFailed(events));
    const actions: Action[] = stored > 0 ? [{ add: toAdd(relative, written, nowMs, true, !judged.addsKeys) }] : [];
    const change: Change = {
      cause: 'replay',
      actions,
      totals: { failed: count(kept) - count(files), stored, repeats: judged.repeats },
      availableAtMs: nowMs,
      addsKeys: judged.addsKeys,
      metrics: { rows: stored, bytes: written.sizeBytes },
    };
    await open.commit(
      stored > 0 ? [{ file, path: relative }] : [],
      (_state, lake) => {
        if (lake.keysCommit !== keysCommit || lake.availableAtMs !== availableAtMs)
          throw new AppError('commit_conflict', 'a flush was committed meanwhile');
        return change;
      },
      {
        moves: left.map(({ name, to }) => ({ name, to })),
        unlink: changed.filter(({ events }) => events.length === 0).map((one) => one.file),
      },
    );
    return { stored, repeats: judged.repeats, stillFailed: count(kept) };
  } finally {
    await open.close();
  }
}

/** Replays the events of some files: those that can be written now leave them for the lake, by one commit. */
async function replayFiles(dependencies: ReplayDependencies, files: readonly FailedFile[]): Promise<Replayed> {
  const { table, duckdb, lakeDir } = dependencies;
  const candidates = files.flatMap(({ events }) => events.filter(isCandidate));
  const stillFailed = files.reduce((sum, { events }) => sum + events.length, 0);
  if (candidates.length === 0) return { stored: 0, repeats: 0, stillFailed };
  const staging = await openStagingFolder(lakePaths(lakeDir).staging, 'a replay');
  try {
    const spool = path.join(staging.folder, 'spool.ndjson');
    await writeWorkFile(spool, Buffer.concat(candidates.flatMap((event) => [bytesOf(event), Buffer.from('\n')])));
    const tables = await openBatchTables(
      duckdb,
      dependencies.enricher,
      undefined,
      maskOfLake(table.state().metaData?.id),
    );
    const loaded = await tables.load(spool, candidates.length, true);
    const lookUp = createLakeLookUp(table);
    for (let attempt = 1; ; attempt += 1) {
      const judged = await lookUp.judge(loaded);
      try {
        return await commitReplay(dependencies, files, judged);
      } catch (error) {
        if (!isAppError(error, 'commit_conflict') || attempt === maxAttempts) throw error;
      }
    }
  } finally {
    await staging.close();
  }
}

/** Reads files of failed events in portions for one commit each. */
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
 * Tries every failed event again, for instance after a fault of the service was mended. A kill leaves nothing
 * half-done, and a second call finds only what still fails, as it was. Works beside a running compactor: both judge
 * again what the other has changed, so that an event under an Idempotency-Key is stored once, and `available_at` never
 * goes back. Errors: `file_damaged` when a file that may have one of the events is damaged, `locked`,
 * `commit_conflict`, `disk`, `sql`.
 */
export async function replayFailed(dependencies: ReplayDependencies): Promise<Replayed> {
  const { table, lakeDir } = dependencies;
  const paths = lakePaths(lakeDir);
  const lock = await waitForLock(paths.maintenanceLock, 'a replay', lockWaitMs);
  try {
    await table.refresh();
    await recoverChanges(table, paths.staging);
    let total: Replayed = { stored: 0, repeats: 0, stillFailed: 0 };
    let notTried = 0;
    for await (const portion of readPortions(await listSettledFiles(paths.failed))) {
      for (const { events } of portion) notTried += events.filter((event) => isOfOtherTable(bytesOf(event))).length;
      const one = await replayFiles(dependencies, portion);
      total = {
        stored: total.stored + one.stored,
        repeats: total.repeats + one.repeats,
        stillFailed: total.stillFailed + one.stillFailed,
      };
    }
    return notTried === 0 ? total : { ...total, notTried };
  } finally {
    lock.release();
  }
}
