import assert from 'node:assert/strict';
import { pause } from '../runtime/async/retry.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { describeError, isAppError, isLasting, isTransient } from '../runtime/errors.ts';
import type { BatchTables } from '../lake/batch/batch-tables.ts';
import type { RecentKeys } from '../lake/batch/recent-keys.ts';
import type { Epoch } from '../lake/log/lake-state.ts';
import type { Table } from '../lake/log/table.ts';
import { refusesWrites } from '../lake/try-write.ts';
import type { StreamReader } from '../stream/stream.ts';
import type { BatchBound } from './batch/batch-bound.ts';
import { flushBatch, type Flushed } from './batch/flush.ts';
import { findAhead, type Follower } from './batch/follower.ts';
import type { FlushAge } from './batch/flush-age.ts';
import { createBatchPuller, type BatchPuller } from './batch/pull-ahead.ts';
import type { Batch, BatchLimits } from './batch/pull-batch.ts';
import type { PurgeBehind } from './batch/purge-behind.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import type { Trouble } from './compact-status.ts';
import type { CompactDependencies, CompactOptions } from './compact-options.ts';
import type { KeyLearning } from './key-learning.ts';
import type { ReportReuse } from './key-reuse.ts';
import { assertOwner } from './lake-owner.ts';
import type { QuietWatermark } from './position/quiet-watermark.ts';
import type { Stillness } from './position/stillness.ts';
import type { StreamEnd } from './position/stream-end.ts';
import {
  findStreamFault,
  followStream,
  isStillWhole,
  skipHole,
  type FollowDependencies,
} from './position/stream-position.ts';
import type { Maintenance } from './seal/maintenance.ts';

const retryEveryMs = 500;
/** A retryable error of another kind that lasts longer than this ends the process. */
const maxTroubleMs = 60_000;

/** What the flush loop works with. */
export interface Loop {
  readonly table: Table;
  /** The tables that get the lines of other kinds. */
  readonly followers: readonly Follower[];
  readonly tables: BatchTables;
  readonly keys: RecentKeys;
  readonly learning: KeyLearning;
  readonly failedDir: string;
  readonly writer: string;
  readonly crashPoint: CrashPoint;
  readonly counted: CompactMetrics;
  readonly reportReuse: ReportReuse;
  readonly dependencies: CompactDependencies;
  readonly options: CompactOptions;
  /** What the position in the stream is followed with. */
  readonly follow: FollowDependencies;
  readonly trouble: Trouble;
  readonly maintenance: Maintenance;
  readonly streamEnd: StreamEnd;
  readonly purging: PurgeBehind;
  readonly stillness: Stillness;
  readonly watermark: QuietWatermark;
  readonly bound: BatchBound;
  readonly age: FlushAge;
  /** Whether the stream was at fault when it was first compared with the log. */
  readonly start: { faulty: boolean };
  /** Throws when the lake's folder is not the one that this compactor has locked any more. */
  readonly assertFolder: () => void;
}

/**
 * Once in a compactor's life, and not before the stream was compared with the log: where the two disagree, a file that
 * the log does not name may be all there is.
 */
function recoverOnce({ start, maintenance, learning }: Loop, signal: AbortSignal): void {
  maintenance.sweep(start.faulty);
  learning.begin(signal);
}

/**
 * Pulls what waits after the position; undefined when nothing came, or messages are missing there, which is recorded.
 */
async function pullAfter(loop: Loop, puller: BatchPuller, epoch: Epoch): Promise<Batch | undefined> {
  // A batch that reached across a table's position would be given to it in part again.
  const lastSequence = findAhead(loop.followers, epoch)?.position;
  return puller.pull(epoch, { ...batchLimits(loop), lastSequence }).catch(async (error: unknown) => {
    if (!isAppError(error, 'stream_gap')) throw error;
    await skipHole(loop.follow, epoch);
    return undefined;
  });
}

const batchLimits = ({ bound, age, options }: Loop): BatchLimits => ({
  maxBytes: bound.maxBytes,
  maxRows: options.flushMaxRows,
  maxAgeMs: age.leftMs(),
});

/**
 * Says whether the batch is of the stream that the lake follows: messages pulled from one that has lost its anchor
 * meanwhile may be others than those after our position.
 */
async function isOfOurStream(
  { table, followers, writer, dependencies: { reader, logger } }: Loop,
  epoch: Epoch,
  batch: Batch,
): Promise<boolean> {
  const ahead = findAhead(followers, epoch);
  if (ahead?.position === batch.lastSequence && ahead.anchorHash !== batch.lastHash) return false;
  const fault = await findStreamFault(reader, epoch);
  if (fault === undefined) return true;
  // A compactor that has taken over purges what its lake has: that is no loss.
  await table.refresh();
  assertOwner(table.lake(), writer);
  if (!(await isStillWhole(reader, epoch, fault, batch))) return false;
  logger.error(
    { fault, firstSequence: batch.firstSequence, lastSequence: batch.lastSequence },
    'messages were removed from the stream while they were read: they are taken in all the same',
  );
  return true;
}

/** Takes the batch into the lake. */
async function flush(loop: Loop, batch: Batch, epoch: Epoch): Promise<Flushed> {
  const { table, writer, dependencies, options, bound } = loop;
  const { reader } = dependencies;
  loop.assertFolder();
  const flushing = {
    table,
    followers: loop.followers,
    tables: loop.tables,
    keys: loop.keys,
    clock: dependencies.clock,
    crashPoint: loop.crashPoint,
    failedDir: loop.failedDir,
    writer,
    assertStreamOwner: async () => reader.assertOwner?.(),
    ...(options.ownerHoldsMs === undefined ? {} : { ownerHoldsMs: options.ownerHoldsMs }),
    isolate: loop.bound.isolate,
  };
  const flushed = await flushBatch(flushing, batch, epoch).catch((error: unknown) => {
    if (isAppError(error, 'memory')) bound.ranOut(batch);
    throw error;
  });
  bound.passed();
  return flushed;
}

/** Begins to take out of the stream what the lake has. Throws what the purge before has failed with. */
async function beginPurge(
  { table, purging, crashPoint, dependencies: { reader } }: Loop,
  { epoch }: Flushed,
): Promise<void> {
  const { appId, position } = epoch;
  assert((table.state().txns.get(appId) ?? 0) >= position, 'the log has what is purged from the stream');
  await purging.begin(async () => {
    await purge(reader, epoch);
    await crashPoint('flush-purged');
  });
}

function report(
  { counted, dependencies: { logger } }: Loop,
  { lastSequence }: Batch,
  flushed: Flushed,
  durationMs: number,
): void {
  counted.flushed(flushed, durationMs);
  const { version, events, rows, failed, repeats, sizeBytes, straight, refused } = flushed;
  if (refused !== undefined)
    logger.warn(
      { error: describeError(refused) },
      'the engine could not read a batch as a whole: its lines were read one by one',
    );
  logger.info({ version, events, rows, failed, repeats, sizeBytes, straight, durationMs, lastSequence }, 'flushed');
}

/**
 * Compares the stream with the lake's position, unless it is known to be as it was; returns the epoch to read on in.
 */
async function comparePosition(loop: Loop, signal: AbortSignal): Promise<Epoch> {
  const { table, followers, stillness, streamEnd, watermark } = loop;
  const known = table.lake().epoch;
  if (known !== undefined && stillness.holds(known)) {
    if (watermark.isDue()) {
      const state = await loop.dependencies.reader.state();
      // A stream that has lost its end and used those numbers again meanwhile may look the same: the anchor tells.
      if (stillness.holds(known)) await watermark.take(known, state);
    }
    recoverOnce(loop, signal);
    return known;
  }
  const arrivals = stillness.arrivals();
  const state = await streamEnd.look();
  const epoch = await followStream(loop.follow);
  await watermark.take(epoch, state);
  recoverOnce(loop, signal);
  if (state.lastSequence === epoch.position && findAhead(followers, epoch) === undefined)
    stillness.begin(epoch, arrivals);
  return epoch;
}

/**
 * Ends a turn in which nothing came. Where the stream says that it goes on, and has no message there, a broker's store
 * was damaged at its end: no later pull would bring what is missing, nor show that it is.
 */
async function endQuietTurn({ purging, stillness, follow, followers, table }: Loop, epoch: Epoch): Promise<void> {
  await purging.ended();
  // A hole before a message that came has begun a new epoch already.
  const isSame = table.lake().epoch?.appId === epoch.appId;
  if (isSame && !stillness.holds(epoch) && findAhead(followers, epoch) === undefined) await skipHole(follow, epoch);
}

/**
 * One turn of the flush loop: pull, convert, flush, commit, purge. What comes next is pulled meanwhile, and what came
 * before is purged.
 */
async function flushOnce(loop: Loop, puller: BatchPuller, signal: AbortSignal): Promise<void> {
  await loop.table.refresh();
  for (const follower of loop.followers) await follower.refresh();
  const epoch = await comparePosition(loop, signal);
  const batch = await pullAfter(loop, puller, epoch);
  if (batch === undefined) return endQuietTurn(loop, epoch);
  if (!(await isOfOurStream(loop, epoch, batch))) return;
  if (findAhead(loop.followers, epoch) === undefined)
    puller.pullAhead({ appId: epoch.appId, position: batch.lastSequence }, batchLimits(loop));
  const startedAt = performance.now();
  const flushed = await flush(loop, batch, epoch);
  const durationMs = Math.round(performance.now() - startedAt);
  loop.age.flushed(durationMs);
  report(loop, batch, flushed, durationMs);
  await loop.reportReuse(flushed.failures);
  await beginPurge(loop, flushed);
}

/**
 * Purges what the lake has, unless the stream is not what it was: then it still holds messages that the lake has not.
 */
async function purge(reader: StreamReader, epoch: Epoch): Promise<void> {
  if ((await findStreamFault(reader, epoch)) === undefined) await reader.purgeBelow(epoch.position);
}

/**
 * Runs the flush loop until the signal aborts. A passing trouble (broker away, disk full or read-only) is waited out;
 * others throw.
 */
export async function runFlushLoop(loop: Loop, signal: AbortSignal): Promise<void> {
  const { age, dependencies, options, writer } = loop;
  const puller = createBatchPuller(dependencies.reader, options.spoolDir, writer, signal, (batch, limits) =>
    age.pulled(batch === undefined || (batch.bytes < limits.maxBytes && batch.events < limits.maxRows)),
  );
  try {
    await runTurns(loop, puller, signal);
  } finally {
    await puller.stop();
    // It is made good by the next flush.
    await loop.purging.ended().catch(() => undefined);
    await loop.learning.ended();
  }
}

async function runTurns(loop: Loop, puller: BatchPuller, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await flushOnce(loop, puller, signal);
      loop.trouble.clear();
    } catch (error) {
      if (signal.aborted) return;
      loop.stillness.end();
      const lastedMs = loop.trouble.note(error);
      // Anything that is not lasting by itself may go better in a new process, but not while the lake refuses to be
      // written, whatever the error says.
      const passing =
        isLasting(error) ||
        (isTransient(error) && lastedMs < maxTroubleMs) ||
        (await refusesWrites(loop.options.lakeDir, loop.assertFolder));
      if (!passing) throw error;
      // Once for each trouble: it is tried twice a second.
      loop.dependencies.logger[lastedMs === 0 ? 'warn' : 'debug'](
        { error: describeError(error) },
        'flush failed, will retry',
      );
      await pause(retryEveryMs, signal);
    }
  }
}
