/**
 * Stores one batch of the stream by one commit of the lake.
 *
 * In: messages after the lake's position, in a spool file (pull-batch.ts). Out: a young file, failed events with their
 * reasons, one commit of file, position and totals; before it a young file and a commit of each other table that the
 * batch has lines of (secondary-table.ts).
 * Invariant: files, folder and failed events are fsynced before the commit, which requires the position that the batch
 * began after and this compactor's ownership of the lake.
 * Crash: before the commit unnamed young files and pending failed events, which the next start removes and settles, and
 * perhaps a secondary table that is ahead by this batch. After it only the purge is missing, which the next flush
 * repeats.
 */
import { randomUUID } from 'node:crypto';
import type { BatchLookup, BatchTables, ClassifiedBatch, LoadedBatch } from '../../lake/batch/batch-tables.ts';
import { type Failure, readFailures, extractOversizedLines } from '../../lake/batch/spool-lines.ts';
import type { KeysSeen, IdempotencyKeyCache } from '../../lake/batch/idempotency-keys.ts';
import type { WrittenFile } from '../../lake/files/data-file.ts';
import { nextAvailableAtMs, type Epoch } from '../../lake/log/lake-state.ts';
import { assertOwner } from '../lake-owner.ts';
import { type FlushFiles, commitFlush, createFlushFiles } from './flush-commit.ts';
import { type SecondaryFlush, type SecondaryFlushDependencies, planSecondaryFlushes } from './secondary-table.ts';
import type { Batch } from './pull-batch.ts';

/** Steps at which crashes are tested, besides those of the commit. */
export const flushSteps = [
  'flush-spooled',
  'flush-converted',
  'flush-written',
  'flush-failed-kept',
  'flush-follower-written',
  'flush-follower-committed',
  'flush-committed',
  'flush-settled',
  'flush-purged',
] as const;

export interface FlushDependencies extends SecondaryFlushDependencies {
  readonly tables: BatchTables;
  readonly keys: IdempotencyKeyCache;
  readonly failedDir: string;
  /** Moves events that exceed the engine's memory to the failed ones. The batch has one message. */
  readonly isolate?: boolean;
}

/** A classified batch whose rows of the events table are in the young file. */
interface Written {
  readonly classified: Pick<ClassifiedBatch, 'rows' | 'repeats' | 'others' | 'addsKeys'> & KeysSeen;
  readonly written: WrittenFile | undefined;
  remember(added: Parameters<IdempotencyKeyCache['remember']>[1]): Promise<void>;
}

interface BatchToWrite {
  readonly batch: Batch;
  readonly epoch: Epoch;
  readonly files: FlushFiles;
  readonly availableAtMs: number;
}

async function classifyAndWrite(
  { keys, crashPoint }: FlushDependencies,
  loaded: LoadedBatch,
  { batch, epoch, files, availableAtMs }: BatchToWrite,
  loadMore?: (lookUp: BatchLookup) => Promise<void>,
  found?: (classified: ClassifiedBatch) => Promise<void>,
): Promise<Written> {
  const classified = await keys.classify(loaded, batch.firstSequence <= epoch.dedupeThrough, loadMore);
  await crashPoint('flush-converted');
  await found?.(classified);
  const written = await files.young.write((file) => classified.writeYoung(file, availableAtMs, batch.bytes));
  return { classified, written, remember: (added) => keys.remember(classified, added) };
}

/** Writes a batch by the direct path. Undefined without a file if it is not plain or may be in the lake already. */
async function writeDirectly(
  dependencies: FlushDependencies,
  batchToWrite: BatchToWrite,
): Promise<Written | undefined> {
  const { tables, crashPoint, isolate } = dependencies;
  const { batch, epoch, files, availableAtMs } = batchToWrite;
  const { file: spool, events, firstSequence } = batch;
  if (isolate === true || events === 0 || firstSequence <= epoch.dedupeThrough) return undefined;
  const lines = { file: spool, events };
  const keyless = await files.young.write((file) => tables.writePlain(lines, file, availableAtMs));
  if (keyless !== undefined) {
    await crashPoint('flush-converted');
    const classified = { rows: events, repeats: 0, others: [], addsKeys: false, keysSeen: undefined };
    return { classified, written: keyless, remember: async () => undefined };
  }
  const loaded = await tables.loadKeyed(lines);
  const result = loaded && (await classifyAndWrite(dependencies, loaded, batchToWrite));
  return result?.written === undefined ? undefined : result;
}

async function writeBatch(dependencies: FlushDependencies, batchToWrite: BatchToWrite) {
  const { tables, secondaryTables, isolate } = dependencies;
  const plain = await writeDirectly(dependencies, batchToWrite);
  if (plain !== undefined) return { ...plain, failures: [], refused: undefined, straight: true, followed: [] };
  const { batch, epoch, files } = batchToWrite;
  const tooLarge = isolate === true ? await extractOversizedLines(tables, batch.file) : [];
  const loaded = await tables.load(batch.file, batch.events - tooLarge.length);
  let failures: readonly Failure[] = [];
  let followed: readonly SecondaryFlush[] = [];
  const result = await classifyAndWrite(
    dependencies,
    loaded,
    batchToWrite,
    async (lookUp) => {
      for (const secondaryTable of secondaryTables) await secondaryTable.lookUp(lookUp);
    },
    async (classified) => {
      failures = [...tooLarge, ...(await readFailures(batch.file, classified.failedLines))];
      followed = planSecondaryFlushes(dependencies, classified.others, { batch, epoch, commitId: files.commitId });
    },
  );
  return { ...result, failures, refused: loaded.refused, straight: false, followed };
}

function sumUp(classified: Written['classified'], followed: readonly SecondaryFlush[], sizeBytes: number) {
  const parts = [classified, ...followed.map(({ part }) => part)];
  return {
    rows: parts.reduce((sum, { rows }) => sum + rows, 0),
    repeats: parts.reduce((sum, { repeats }) => sum + repeats, 0),
    sizeBytes: followed.reduce((sum, follower) => sum + follower.sizeBytes(), sizeBytes),
  };
}

/** Stores a pulled batch durably; the caller purges the stream. Errors: `fenced`, `commit_conflict`, `disk`, `sql`. */
export async function flushBatch(dependencies: FlushDependencies, batch: Batch, epoch: Epoch) {
  const { table, clock, crashPoint } = dependencies;
  await crashPoint('flush-spooled');
  const commitId = randomUUID();
  const before = table.lake().availableAtMs;
  const availableAtMs = nextAvailableAtMs(clock, table.lake());
  const files = createFlushFiles(table, dependencies.failedDir, commitId);
  let followed: readonly SecondaryFlush[] = [];
  try {
    const writtenBatch = await writeBatch(dependencies, { batch, epoch, files, availableAtMs });
    const { classified, written, failures, refused, straight: isDirect } = writtenBatch;
    followed = writtenBatch.followed;
    await crashPoint('flush-written');
    if (failures.length > 0) {
      await files.writeFailed(failures, availableAtMs);
      await crashPoint('flush-failed-kept');
    }
    for (const secondaryFlush of followed) {
      await secondaryFlush.write();
      await crashPoint('flush-follower-written');
    }
    // Before the events table, whose position states which messages are stored.
    for (const secondaryFlush of followed) {
      await secondaryFlush.commit();
      await crashPoint('flush-follower-committed');
    }
    const youngPath = files.young.path;
    const failed = failures.length;
    const flushed = { commitId, batch, epoch, classified, before, availableAtMs, youngPath, written, failed };
    const committed = await commitFlush(dependencies, flushed);
    const { version } = committed;
    await crashPoint('flush-committed');
    // First: an erasure waits until the failed events have their names.
    await files.settle();
    await crashPoint('flush-settled');
    await writtenBatch.remember(classified.addsKeys ? { version, keysCommit: commitId } : undefined);
    return {
      ...committed,
      events: batch.events,
      failed,
      failures,
      ...sumUp(classified, followed, written?.sizeBytes ?? 0),
      isDirect,
      /** The error of the engine, after which lines were read one by one. */
      refused,
    };
  } catch (error) {
    await files.removeUnnamed();
    for (const secondaryFlush of followed) await secondaryFlush.removeUnnamed();
    // Another compactor's start removes what this one writes: `fenced` is then the cause.
    assertOwner(table.lake(), dependencies.writer, error);
    throw error;
  }
}

export type Flushed = Awaited<ReturnType<typeof flushBatch>>;
