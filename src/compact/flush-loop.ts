import assert from 'node:assert/strict';
import { pause } from '../runtime/async/retry.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { describeError, isAppError, isLasting, isTransient } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Epoch } from '../lake/log/lake-state.ts';
import { refusesWrites } from '../lake/try-write.ts';
import type { FlushLimits } from './batch/flush-limits.ts';
import { type FlushDependencies, type Flushed, flushBatch } from './batch/flush.ts';
import type { Batch, BatchLimits, BatchPuller } from './batch/pull-batch.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import type { Trouble } from './compact-status.ts';
import type { ReportReuse } from './key-reuse.ts';
import type { FollowedStream } from './position/stream-position.ts';
import type { StartWork } from './start-work.ts';
import type { OwnLake } from './lake-owner.ts';

const retryEveryMs = 500;
/** A retryable error of another kind that lasts longer than this ends the process. */
const maxTroubleMs = 60_000;

/** Tells of what was flushed, and of what failed. */
interface FlushReport {
  flushed(batch: Batch, flushed: Flushed, durationMs: number): Promise<void>;
  /** `isFirst`: the loop has worked until now. */
  failed(error: unknown, isFirst: boolean): void;
}

/** What the flush loop works with. */
export interface Loop {
  readonly lake: OwnLake;
  readonly stream: FollowedStream;
  readonly puller: BatchPuller;
  readonly limits: FlushLimits;
  readonly flushing: FlushDependencies;
  readonly purging: PurgeBehind;
  readonly startWork: StartWork;
  readonly trouble: Trouble;
  readonly report: FlushReport;
}

/** Creates the report of a compactor's flushes. */
export function createFlushReport(counted: CompactMetrics, reportReuse: ReportReuse, logger: Logger): FlushReport {
  return {
    async flushed({ lastSequence }, flushed, durationMs) {
      counted.flushed(flushed, durationMs);
      const { version, events, rows, failed, repeats, sizeBytes, straight, refused } = flushed;
      if (refused !== undefined)
        logger.warn(
          { error: describeError(refused) },
          'the engine could not read a batch as a whole: its lines were read one by one',
        );
      logger.info({ version, events, rows, failed, repeats, sizeBytes, straight, durationMs, lastSequence }, 'flushed');
      await reportReuse(flushed.failures);
    },
    // Once for each trouble: it is tried twice a second.
    failed: (error, isFirst) =>
      logger[isFirst ? 'warn' : 'debug']({ error: describeError(error) }, 'flush failed, will retry'),
  };
}

/** Pulls what waits after the position; undefined when nothing came, or messages are missing there, which is recorded. */
async function pull({ stream, puller, limits }: Loop, epoch: Epoch): Promise<Batch | undefined> {
  // A batch that reached across a table's position would be given to it in part again.
  const within: BatchLimits = { ...limits.next(), lastSequence: stream.findAhead(epoch)?.position };
  try {
    return await puller.pull(epoch, within);
  } catch (error) {
    if (!isAppError(error, 'stream_gap')) throw error;
    await stream.skipHole(epoch);
    return undefined;
  }
}

/** Writes and commits the batch. */
async function flush({ lake, limits, flushing, report }: Loop, batch: Batch, epoch: Epoch): Promise<Flushed> {
  const startedAt = performance.now();
  lake.assertFolder();
  const flushed = await flushBatch({ ...flushing, isolate: limits.isolate() }, batch, epoch).catch((error: unknown) => {
    if (isAppError(error, 'memory')) limits.ranOut(batch);
    throw error;
  });
  const durationMs = Math.round(performance.now() - startedAt);
  limits.flushed(durationMs);
  await report.flushed(batch, flushed, durationMs);
  return flushed;
}

/** Begins to remove from the stream what the lake has. Throws what the purge before has failed with. */
async function beginPurge(
  { lake: { table }, stream, purging }: Loop,
  { epoch }: Flushed,
  crashPoint: CrashPoint,
): Promise<void> {
  const { appId, position } = epoch;
  assert((table.state().txns.get(appId) ?? 0) >= position, 'the log has what is purged from the stream');
  await purging.begin(async () => {
    await stream.purge(epoch);
    await crashPoint('flush-purged');
  });
}

/**
 * Takes one turn of the flush loop: pull, check, flush, commit, purge. The next batch is pulled while this one is flushed,
 * and the one before is purged.
 */
async function flushOnce(loop: Loop, signal: AbortSignal): Promise<void> {
  const { lake, stream, puller, limits, flushing, purging, startWork } = loop;
  await lake.table.refresh();
  for (const follower of flushing.followers) await follower.refresh();
  const epoch = await stream.compare();
  startWork.run(signal);
  const batch = await pull(loop, epoch);
  if (batch === undefined) {
    await purging.ended();
    return stream.endQuietTurn(epoch);
  }
  if (!(await stream.isOurs(epoch, batch))) return;
  if (stream.findAhead(epoch) === undefined)
    puller.pullAhead({ appId: epoch.appId, position: batch.lastSequence }, limits.next());
  const flushed = await flush(loop, batch, epoch);
  await beginPurge(loop, flushed, flushing.crashPoint);
}

/**
 * Runs the flush loop until the signal aborts. A passing trouble (broker away, disk full or read-only) is waited out;
 * others throw.
 */
export async function runFlushLoop(loop: Loop, signal: AbortSignal): Promise<void> {
  try {
    await runTurns(loop, signal);
  } finally {
    await loop.puller.stop();
    // It is made good by the next flush.
    await loop.purging.ended().catch(() => undefined);
    await loop.startWork.ended();
  }
}

async function runTurns(loop: Loop, signal: AbortSignal): Promise<void> {
  const { lake, stream, trouble, report } = loop;
  while (!signal.aborted) {
    try {
      await flushOnce(loop, signal);
      trouble.clear();
    } catch (error) {
      if (signal.aborted) return;
      stream.distrust();
      const lastedMs = trouble.note(error);
      // Anything that is not lasting by itself may go better in a new process, but not while the lake refuses to be
      // written, whatever the error says.
      const passing =
        isLasting(error) ||
        (isTransient(error) && lastedMs < maxTroubleMs) ||
        (await refusesWrites(lake.dir, lake.assertFolder));
      if (!passing) throw error;
      report.failed(error, lastedMs === 0);
      await pause(retryEveryMs, signal);
    }
  }
}

/**
 * Takes messages out of the stream that the lake has, while the next batch is taken in: for a full batch the broker needs
 * as long as a tenth of its flush, and nothing waits for it.
 */
export interface PurgeBehind {
  /**
   * Begins a purge, once the one before has ended; what that one was to remove, this one removes as well. Throws what it
   * failed with, when this one has begun: so purges that fail again and again are an error each time.
   */
  begin(purge: () => Promise<void>): Promise<void>;
  /** Waits until none is under way. Throws what it failed with, once. */
  ended(): Promise<void>;
}

/** Creates it, with no purge under way. */
export function createPurgeBehind(): PurgeBehind {
  let running = Promise.resolve();

  async function ended(): Promise<void> {
    const last = running;
    running = Promise.resolve();
    await last;
  }

  return {
    ended,
    async begin(purge) {
      const failure = await ended().then(
        () => undefined,
        (error: unknown) => ({ error }),
      );
      running = purge();
      // Whoever waits for it is told.
      running.catch(() => undefined);
      if (failure !== undefined) throw failure.error;
    },
  };
}
