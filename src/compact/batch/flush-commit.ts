import assert from 'node:assert/strict';
import path from 'node:path';
import { AppError, isAppError } from '../../runtime/errors.ts';
import type { JudgedBatch } from '../../lake/batch/batch-tables.ts';
import type { KeysSeen } from '../../lake/batch/recent-keys.ts';
import { type WrittenFile, toAdd } from '../../lake/files/data-file.ts';
import type { Action } from '../../lake/log/actions.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { BuildChange, Table } from '../../lake/log/table.ts';
import { assertOwner } from '../lake-owner.ts';
import type { Batch } from './pull-batch.ts';
import { removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import type { Failure } from '../../lake/batch/spool-lines.ts';
import { isCommitted, settleFailed, writePendingFailed } from '../../lake/files/failed-events.ts';
import { youngFolder } from '../../lake/log/young-folder.ts';

export interface FlushCommitDependencies {
  readonly table: Table;
  /** This compactor's claim on the lake. */
  readonly writer: string;
  /** Throws when the stream has become another service's, who then takes these messages in: asked as late as can be. */
  readonly assertStreamOwner?: () => Promise<void>;
  /** For how long its word holds, milliseconds, by a clock that runs on while this process stands still. */
  readonly ownerHoldsMs?: number | undefined;
}

/** What a flush brings to the lake; its files are durable. */
interface FlushedBatch {
  readonly commitId: string;
  readonly batch: Batch;
  /** The epoch, with the position, that the batch was pulled after. */
  readonly epoch: Epoch;
  readonly judged: Pick<JudgedBatch, 'repeats' | 'others' | 'addsKeys'> & KeysSeen;
  /** The lake's newest `available_at` when that of the rows was taken; it has to be the newest still. */
  readonly before: number;
  readonly availableAtMs: number;
  /** Path of the young file, relative to the table's folder; there is none when no row was written. */
  readonly youngPath: string;
  readonly written: WrittenFile | undefined;
  /** Failed events. */
  readonly failed: number;
}

/** Half of what an owner that is silent is waited for (the lease of stream/owner.ts). */
const defaultOwnerHoldsMs = 5000;

/**
 * The epoch with the position after the batch, and its watermark: what was stored before the batch's last message has a
 * lower sequence. Where the time of that is not known, the watermark of before still holds.
 */
export function moveOn(epoch: Epoch, { lastSequence, lastHash, lastStoredAtMs }: Batch): Epoch {
  const { nextHash: _, ...followed } = epoch;
  return {
    ...followed,
    position: lastSequence,
    anchorHash: lastHash,
    ...(lastStoredAtMs === undefined ? {} : { watermarkMs: lastStoredAtMs }),
  };
}

/** The lines that are accounted for by the logs of other tables. */
function countOthers({ others }: FlushedBatch['judged']): number {
  return others.reduce((sum, { rows, repeats }) => sum + rows + repeats, 0);
}

/** Sees that each message and each event of the batch is accounted for, once. */
function assertAccounted({ batch, epoch, judged, written, failed, before, availableAtMs }: FlushedBatch): void {
  assert.equal(batch.firstSequence, epoch.position + 1, 'the batch begins right after the position of the lake');
  assert(batch.lastSequence >= batch.firstSequence, 'the position goes forward');
  const rows = written?.numRecords ?? 0;
  const ofOthers = countOthers(judged);
  assert.equal(
    rows + failed + judged.repeats + ofOthers,
    batch.events,
    'each event of the batch is stored, failed, a repeat, or of another table',
  );
  assert(availableAtMs > before, 'the rows are available after all before them');
}

/** Makes the change, unless the table is not what the flush was begun on. */
function createBuild(writer: string, flushed: FlushedBatch, after: Epoch): BuildChange {
  const { batch, epoch, judged, before, availableAtMs, youngPath, written, failed } = flushed;
  const actions: Action[] = [{ txn: { appId: epoch.appId, version: after.position, lastUpdated: availableAtMs } }];
  if (written !== undefined) actions.push({ add: toAdd(youngPath, written, availableAtMs, true, !judged.addsKeys) });
  const rows = written?.numRecords ?? 0;
  return (state, lake) => {
    assertOwner(lake, writer);
    if (lake.epoch?.appId !== epoch.appId || state.txns.get(epoch.appId) !== epoch.position)
      throw new AppError(
        'fenced',
        "the lake's position in the stream has moved: another compactor has taken over the lake",
        { hint: 'Let only one compactor run on a data folder.' },
      );
    // Later by another's rows, or earlier by a repair of the clock: ours must follow it.
    if (lake.availableAtMs !== before)
      throw new AppError('commit_conflict', 'the newest available_at of the lake has changed meanwhile');
    if (judged.addsKeys && lake.keysCommit !== judged.keysSeen)
      throw new AppError('commit_conflict', 'another process has stored events under Idempotency-Keys');
    return {
      cause: 'flush',
      actions,
      epoch: after,
      availableAtMs,
      addsKeys: judged.addsKeys,
      totals: { streamed: batch.events - countOthers(judged), stored: rows, failed, repeats: judged.repeats },
      metrics: {
        rows,
        bytes: written?.sizeBytes ?? 0,
        events: batch.events,
        firstSequence: batch.firstSequence,
        lastSequence: batch.lastSequence,
      },
    };
  };
}

/**
 * Commits to a table for as long as the stream is this service's: it is asked whose it is as late as can be. Errors:
 * those of `build` and of `assertStreamOwner`, `commit_conflict` when the answer is too old at the last instant.
 */
export async function commitOwned(
  { assertStreamOwner, ownerHoldsMs = defaultOwnerHoldsMs }: FlushCommitDependencies,
  table: Table,
  build: BuildChange,
  commitId: string,
): Promise<void> {
  const askedAtMs = performance.now();
  await assertStreamOwner?.();
  await table.commit(build, commitId, () => {
    // A process that stood still in between has the word of an owner of long ago.
    const isStale = performance.now() - askedAtMs > ownerHoldsMs;
    if (isStale && assertStreamOwner !== undefined)
      throw new AppError(
        'commit_conflict',
        "the stream may have become another service's since it was asked whose it is",
      );
  });
}

/**
 * Commits what a flush has written: the file, the position and the counts, all or nothing. Returns the version, and the
 * epoch with the position after the batch. Errors: `fenced` when another compactor has moved the position,
 * `commit_conflict` when the batch has to be judged or stamped again, or the stream may be another's.
 */
export async function commitFlush(
  dependencies: FlushCommitDependencies,
  flushed: FlushedBatch,
): Promise<{ readonly version: number; readonly epoch: Epoch }> {
  assertAccounted(flushed);
  const epoch = moveOn(flushed.epoch, flushed.batch);
  const build = createBuild(dependencies.writer, flushed, epoch);
  let version = -1;
  await commitOwned(
    dependencies,
    dependencies.table,
    (state, lake) => {
      version = state.version + 1;
      return build(state, lake);
    },
    flushed.commitId,
  );
  return { version, epoch };
}

/** The young file of one flush, under a name that holds the commit's id. */
interface YoungFile {
  /** Relative to the table's folder. */
  readonly path: string;
  /** Gives its path to whoever writes rows to it, and makes it durable; undefined when they have written none. */
  write(toFile: (file: string) => Promise<WrittenFile | undefined>): Promise<WrittenFile | undefined>;
  /** After an error, which may have come after the commit: removes the file unless the log names it. */
  removeUnnamed(): Promise<void>;
}

/** Plans the young file of a flush whose commit to the table will have this id. */
export function createYoungFile(table: Table, commitId: string): YoungFile {
  const youngPath = path.join(youngFolder, `${commitId}.parquet`);
  const file = path.join(table.dir, youngPath);
  return {
    path: youngPath,
    async write(toFile) {
      const written = await toFile(file);
      if (written !== undefined) await syncFolder(path.dirname(file));
      return written;
    },
    async removeUnnamed() {
      await table.refresh().catch((foreign: unknown) => {
        if (!isAppError(foreign, 'foreign_commit')) throw foreign;
      });
      if (!table.state().files.has(encodeURI(youngPath))) await removeFile(file);
    },
  };
}

/** What one flush writes before its commit to the table of events, under names that hold the commit's id. */
export interface FlushFiles {
  readonly commitId: string;
  readonly young: YoungFile;
  /** Writes the failed events, at least one, durably; they count from the commit on. */
  writeFailed(failures: readonly Failure[], failedAtMs: number): Promise<void>;
  /** After the commit: gives the failed events their final name. */
  settle(): Promise<void>;
  /** After an error, which may have come after the commit: removes what the log does not name, and settles the rest. */
  removeUnnamed(): Promise<void>;
}

/** Plans the files of a flush whose commit will have this id, on top of the table as it is now. */
export function createFlushFiles(table: Table, failedDir: string, commitId: string): FlushFiles {
  const young = createYoungFile(table, commitId);
  const baseVersion = table.state().version;
  let pending: string | undefined;
  return {
    commitId,
    young,
    async writeFailed(failures, failedAtMs) {
      const failedAt = new Date(failedAtMs).toISOString();
      const events = failures.map((failure) => ({ failedAt, ...failure }));
      pending = await writePendingFailed(failedDir, baseVersion, commitId, events);
    },
    async settle() {
      if (pending !== undefined) await settleFailed(failedDir, pending, commitId);
      pending = undefined;
    },
    async removeUnnamed() {
      await young.removeUnnamed();
      if (pending === undefined) return;
      if (await isCommitted(table.dir, baseVersion, commitId)) await settleFailed(failedDir, pending, commitId);
      else await removeFile(pending);
    },
  };
}
