import assert from 'node:assert/strict';
import { AppError, isAppError } from '../../runtime/errors.ts';
import type { ClassifiedBatch } from '../../lake/batch/batch-tables.ts';
import type { KeysSeen } from '../../lake/batch/idempotency-keys.ts';
import { type WrittenFile, toAdd } from '../../lake/files/data-file.ts';
import { tableStore } from '../../lake/log/log-files.ts';
import type { Action } from '../../lake/log/actions.ts';
import type { Epoch } from '../../lake/log/lake-state.ts';
import type { BuildChange, Table } from '../../lake/log/table.ts';
import { assertOwner } from '../lake-owner.ts';
import type { Batch } from './pull-batch.ts';
import { removeFile } from '../../runtime/files/durable-file.ts';
import type { Failure } from '../../lake/batch/spool-lines.ts';
import {
  isCommitted,
  publishFailedFile,
  removeFailedFile,
  writePendingFailed,
} from '../../lake/files/failed-events.ts';
import { youngFolder } from '../../lake/log/young-folder.ts';

export interface FlushCommitDependencies {
  readonly table: Table;
  readonly writer: string;
  /** Throws if the stream has another owner, which then stores these messages. Called as late as possible. */
  readonly assertStreamOwner?: () => Promise<void>;
  /** Validity of its result, ms, by a clock that advances while the process is suspended. */
  readonly ownerHoldsMs?: number | undefined;
}

/** The result of a flush before its commit; its files are durable. */
interface FlushedBatch {
  readonly commitId: string;
  readonly batch: Batch;
  readonly epoch: Epoch;
  readonly classified: Pick<ClassifiedBatch, 'repeats' | 'others' | 'addsKeys'> & KeysSeen;
  /** The lake's newest `available_at` when the rows were stamped. */
  readonly before: number;
  readonly availableAtMs: number;
  readonly youngPath: string;
  readonly written: WrittenFile | undefined;
  readonly failed: number;
}

/** Half of the owner's lease in stream/owner.ts, ms. */
const defaultOwnerHoldsMs = 5000;

/** Returns the epoch after the batch. Messages stored before its last one have lower sequences: the watermark. */
export function advanceEpoch(epoch: Epoch, { lastSequence, lastHash, lastStoredAtMs }: Batch): Epoch {
  const { nextHash: _, ...followed } = epoch;
  return {
    ...followed,
    position: lastSequence,
    anchorHash: lastHash,
    ...(lastStoredAtMs === undefined ? {} : { watermarkMs: lastStoredAtMs }),
  };
}

function countOthers({ others }: FlushedBatch['classified']): number {
  return others.reduce((sum, { rows, repeats }) => sum + rows + repeats, 0);
}

function assertAccounted({ batch, epoch, classified, written, failed, before, availableAtMs }: FlushedBatch): void {
  assert.equal(batch.firstSequence, epoch.position + 1, 'the batch begins right after the position of the lake');
  assert(batch.lastSequence >= batch.firstSequence, 'the position goes forward');
  const rows = written?.numRecords ?? 0;
  const ofOthers = countOthers(classified);
  assert.equal(
    rows + failed + classified.repeats + ofOthers,
    batch.events,
    'each event of the batch is stored, failed, a repeat, or of another table',
  );
  assert(availableAtMs > before, 'the rows are available after all before them');
}

function createBuild(writer: string, flushed: FlushedBatch, after: Epoch): BuildChange {
  const { batch, epoch, classified, before, availableAtMs, youngPath, written, failed } = flushed;
  const actions: Action[] = [{ txn: { appId: epoch.appId, version: after.position, lastUpdated: availableAtMs } }];
  if (written !== undefined)
    actions.push({ add: toAdd(youngPath, written, availableAtMs, true, !classified.addsKeys) });
  const rows = written?.numRecords ?? 0;
  return (state, lake) => {
    assertOwner(lake, writer);
    if (lake.epoch?.appId !== epoch.appId || state.txns.get(epoch.appId) !== epoch.position)
      throw new AppError(
        'fenced',
        "the lake's position in the stream has moved: another compactor has taken over the lake",
        { hint: 'Let only one compactor run on a data folder.' },
      );
    // Changed by another process, or by a repair of future timestamps.
    if (lake.availableAtMs !== before)
      throw new AppError('commit_conflict', 'the newest available_at of the lake has changed meanwhile');
    if (classified.addsKeys && lake.keysCommit !== classified.keysSeen)
      throw new AppError('commit_conflict', 'another process has stored events under Idempotency-Keys');
    return {
      cause: 'flush',
      actions,
      epoch: after,
      availableAtMs,
      addsKeys: classified.addsKeys,
      totals: { streamed: batch.events - countOthers(classified), stored: rows, failed, repeats: classified.repeats },
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

/** Commits if the stream still belongs to this service. Error: `commit_conflict` if its result has expired. */
export async function commitOwned(
  { assertStreamOwner, ownerHoldsMs = defaultOwnerHoldsMs }: FlushCommitDependencies,
  table: Table,
  build: BuildChange,
  commitId: string,
): Promise<void> {
  const askedAtMs = performance.now();
  await assertStreamOwner?.();
  await table.commit(build, commitId, () => {
    // The process may have been suspended in between.
    const isStale = performance.now() - askedAtMs > ownerHoldsMs;
    if (isStale && assertStreamOwner !== undefined)
      throw new AppError('commit_conflict', 'the stream may have another owner since its last check');
  });
}

/**
 * Commits file, position and totals of a flush atomically. Errors: `fenced` if another compactor moved the position;
 * `commit_conflict` if the batch must be classified or stamped again, or the stream may have another owner.
 */
export async function commitFlush(
  dependencies: FlushCommitDependencies,
  flushed: FlushedBatch,
): Promise<{ readonly version: number; readonly epoch: Epoch }> {
  assertAccounted(flushed);
  const epoch = advanceEpoch(flushed.epoch, flushed.batch);
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

export function createYoungFile(table: Table, commitId: string) {
  const youngPath = `${youngFolder}/${commitId}.parquet`;
  const store = tableStore(table.dir);
  return {
    path: youngPath,
    /** Stores the file that `toFile` writes and fsyncs; undefined if it writes none. */
    async write(toFile: (file: string) => Promise<WrittenFile | undefined>) {
      const file = store.localPath(youngPath);
      try {
        const written = await toFile(file);
        if (written !== undefined) await store.upload(youngPath, file, { isSynced: true, sha256: written.sha256 });
        return written;
      } catch (error) {
        await removeFile(file);
        throw error;
      }
    },
    /** After an error, also of the commit: removes the file unless the log names it. */
    async removeUnnamed() {
      await table.refresh().catch((foreign: unknown) => {
        if (!isAppError(foreign, 'foreign_commit')) throw foreign;
      });
      if (!table.state().files.has(encodeURI(youngPath))) await store.remove([youngPath]);
    },
  };
}

export function createFlushFiles(table: Table, failedDir: string, commitId: string) {
  const young = createYoungFile(table, commitId);
  const baseVersion = table.state().version;
  let pending: string | undefined;
  return {
    commitId,
    young,
    /** Writes failed events durably; they count from the commit on. */
    async writeFailed(failures: readonly Failure[], failedAtMs: number) {
      const failedAt = new Date(failedAtMs).toISOString();
      const events = failures.map((failure) => ({ failedAt, ...failure }));
      pending = await writePendingFailed(failedDir, baseVersion, commitId, events);
    },
    /** After the commit: renames the failed events to their final name. */
    async settle() {
      if (pending !== undefined) await publishFailedFile(failedDir, pending, commitId);
      pending = undefined;
    },
    /** After an error, also of the commit: removes the files that the log does not name, and settles the others. */
    async removeUnnamed() {
      await young.removeUnnamed();
      if (pending === undefined) return;
      if (await isCommitted(table.dir, baseVersion, commitId)) await publishFailedFile(failedDir, pending, commitId);
      else await removeFailedFile(failedDir, pending);
    },
  };
}

export type FlushFiles = ReturnType<typeof createFlushFiles>;
