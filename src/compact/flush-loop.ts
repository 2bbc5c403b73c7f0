import assert from 'node:assert/strict';
import { pause } from '../runtime/async/retry.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import { describeError, isAppError, isRetriedForever, isTransient } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Tracing } from '../runtime/tracing/tracing.ts';
import type { Epoch } from '../lake/log/lake-state.ts';
import { isUnwritable } from '../lake/write-check.ts';
import type { FlushLimits } from './batch/flush-limits.ts';
import { type FlushDependencies, type Flushed, flushBatch } from './batch/flush.ts';
import type { Batch, BatchLimits, Prefetcher } from './batch/pull-batch.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import type { RetryState } from './compact-status.ts';
import type { ReportReuse } from './key-reuse.ts';
import type { FollowedStream } from './position/stream-position.ts';
import type { StartupWork } from './startup-work.ts';
import type { OwnedLake } from './lake-owner.ts';

const retryEveryMs = 500;
/** Longest retry of an unexpected retryable error, ms; then the process ends. */
const maxTransientMs = 60_000;

export interface FlushLoopContext {
  readonly lake: OwnedLake;
  readonly stream: FollowedStream;
  readonly puller: Prefetcher;
  readonly limits: FlushLimits;
  readonly flushing: FlushDependencies;
  readonly purging: ReturnType<typeof createBackgroundPurge>;
  readonly startupWork: StartupWork;
  readonly retryState: RetryState;
  readonly report: ReturnType<typeof createFlushReport>;
}

/** Ends the traces of a committed batch: a span of its flush for each traced request. */
function traceFlush(
  tracing: Tracing,
  { traceparents = [], messages, lastSequence }: Batch,
  { version, events, rows }: Flushed,
  durationMs: number,
): void {
  const startedAtMs = Date.now() - durationMs;
  const ofBatch = { 'tributary.batch.messages': messages, 'tributary.stream.sequence': lastSequence };
  const attributes = { ...ofBatch, 'tributary.lake.version': version, 'tributary.events': events };
  for (const traceparent of traceparents)
    tracing.startAfter(traceparent, 'flush', startedAtMs)?.end({ ...attributes, 'tributary.rows': rows });
}

export function createFlushReport(
  counted: CompactMetrics,
  reportReuse: ReportReuse,
  logger: Logger,
  tracing: Tracing | undefined,
) {
  return {
    async flushed(batch: Batch, flushed: Flushed, durationMs: number): Promise<void> {
      const { lastSequence } = batch;
      counted.flushed(flushed, durationMs);
      if (tracing !== undefined) traceFlush(tracing, batch, flushed, durationMs);
      const { version, events, rows, failed, repeats, sizeBytes, isDirect, refused } = flushed;
      if (refused !== undefined)
        logger.warn({ error: describeError(refused) }, 'batch not readable by the engine, lines read one by one');
      logger.info(
        { version, events, rows, failed, repeats, sizeBytes, straight: isDirect, durationMs, lastSequence },
        'flushed',
      );
      await reportReuse(flushed.failures);
    },
    /** Logs a failure, which is retried twice a second; `isFirst` if the loop has worked until now. */
    failed: (error: unknown, isFirst: boolean): void =>
      logger[isFirst ? 'warn' : 'debug']({ error: describeError(error) }, 'flush failed, will retry'),
  };
}

/** Pulls the messages after the position; undefined if none arrived, or after recording a gap. */
async function pull({ stream, puller, limits }: FlushLoopContext, epoch: Epoch): Promise<Batch | undefined> {
  // A batch across a secondary table's position would be stored there twice in part.
  const within: BatchLimits = { ...limits.next(), lastSequence: stream.findAhead(epoch)?.position };
  try {
    return await puller.pull(epoch, within);
  } catch (error) {
    if (!isAppError(error, 'stream_gap')) throw error;
    await stream.skipGap(epoch);
    return undefined;
  }
}

async function flush(
  { lake, limits, flushing, report }: FlushLoopContext,
  batch: Batch,
  epoch: Epoch,
): Promise<Flushed> {
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

/** Starts to purge the messages that the lake has. Throws the error of the previous purge. */
async function beginPurge(
  { lake: { table }, stream, purging }: FlushLoopContext,
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

/** Runs the loop once. The next batch is pulled, and the previous one purged, while this one is flushed. */
async function flushOnce(loop: FlushLoopContext, signal: AbortSignal): Promise<void> {
  const { lake, stream, puller, limits, flushing, purging, startupWork } = loop;
  await lake.table.refresh();
  for (const secondaryTable of flushing.secondaryTables) await secondaryTable.refresh();
  const epoch = await stream.compare();
  startupWork.run(signal);
  const batch = await pull(loop, epoch);
  if (batch === undefined) {
    await purging.ended();
    return stream.endIdleRound(epoch);
  }
  if (!(await stream.isOurs(epoch, batch))) return;
  if (stream.findAhead(epoch) === undefined)
    puller.prefetch({ appId: epoch.appId, position: batch.lastSequence }, limits.next());
  const flushed = await flush(loop, batch, epoch);
  await beginPurge(loop, flushed, flushing.crashPoint);
}

/** Runs the loop until the signal aborts. Retries transient errors (broker away, disk full); throws others. */
export async function runFlushLoop(loop: FlushLoopContext, signal: AbortSignal): Promise<void> {
  try {
    await runTurns(loop, signal);
  } finally {
    await loop.puller.stop();
    await loop.purging.ended().catch(() => undefined);
    await loop.startupWork.ended();
  }
}

async function runTurns(loop: FlushLoopContext, signal: AbortSignal): Promise<void> {
  const { lake, stream, retryState, report } = loop;
  while (!signal.aborted) {
    try {
      await flushOnce(loop, signal);
      retryState.clear();
    } catch (error) {
      if (signal.aborted) return;
      stream.distrust();
      const lastedMs = retryState.note(error);
      // A restart may cure any other error, but not while the lake is not writable.
      const passing =
        isRetriedForever(error) ||
        (isTransient(error) && lastedMs < maxTransientMs) ||
        (await isUnwritable(lake.dir, lake.assertFolder));
      if (!passing) throw error;
      report.failed(error, lastedMs === 0);
      await pause(retryEveryMs, signal);
    }
  }
}

/** Creates the purge of the stream, which runs while the next batch is flushed. It takes about a tenth of a flush. */
export function createBackgroundPurge() {
  let running = Promise.resolve();

  /** Waits for the purge in progress. Throws its error, once. */
  async function ended(): Promise<void> {
    const last = running;
    running = Promise.resolve();
    await last;
  }

  return {
    ended,
    /** Waits for the previous purge and starts the next one. Then throws the error of the previous one. */
    async begin(purge: () => Promise<void>): Promise<void> {
      const failure = await ended().then(
        () => undefined,
        (error: unknown) => ({ error }),
      );
      running = purge();
      running.catch(() => undefined);
      if (failure !== undefined) throw failure.error;
    },
  };
}
