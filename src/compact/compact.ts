/**
 * The compactor: moves events from the stream into the lake, exactly once.
 *
 * In: messages of event lines, after the position that the lake's log names.
 * Out: commits to the lake; young files at once, sealed files later; failed events with their reason.
 * Invariant: a message is purged from the stream only after a durable commit has its events. The order is always write,
 * fsync, commit, purge; the position is in the commit, so a batch is in the lake once or not at all.
 * Crash: at any instruction. The next start reads the position from the log, compares the stream with it, sweeps files
 * that no commit names, and completes an interrupted change.
 *
 * Two concurrent loops: flush-loop.ts commits batches; seal/maintenance.ts seals, checkpoints and cleans.
 */
import path from 'node:path';
import { events } from '../datasets/dataset.ts';
import { maskOfLake } from '../datasets/event-id.ts';
import { machineClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { type Closers, buildWithClosers } from '../runtime/lifecycle.ts';
import { openBatchTables } from '../lake/batch/batch-tables.ts';
import { createIdempotencyKeyCache } from '../lake/batch/idempotency-keys.ts';
import type { OnDamage } from '../lake/batch/natural-key-cache.ts';
import { engineBudget } from '../lake/files/row-memory.ts';
import { lakePaths } from '../lake/lake.ts';
import { type Duckdb, openDuckdb } from '../lake/sql/duckdb.ts';
import { publishableWatermark } from '../lake/watermark.ts';
import { type FlushLimits, createFlushLimits } from './batch/flush-limits.ts';
import { createSecondaryTables } from './batch/secondary-table.ts';
import { createPrefetcher } from './batch/pull-batch.ts';
import { createIdleWatermark } from './position/idle-watermark.ts';
import {
  type LastSequenceTracker,
  type StreamEndDependencies,
  startLastSequenceTracker,
} from './position/last-sequence.ts';
import { createObservationRecorder } from './compact-status.ts';
import { type FlushLoopContext, createFlushReport, createBackgroundPurge, runFlushLoop } from './flush-loop.ts';
import { createStartupWork } from './startup-work.ts';
import { startLakeWatches } from './lake-watches.ts';
import { createCompactMetrics, registerBacklogGauges, registerTableGauges } from './compact-metrics.ts';
import { type CompactDependencies, type CompactOptions, divideMemory } from './compact-options.ts';
import { createReuseReport } from './key-reuse.ts';
import { type StreamPositionDependencies, createFollowedStream, createIdleStream } from './position/stream-position.ts';
import { startMaintenance } from './seal/maintenance.ts';
import { type OwnedLake, acquireLake } from './lake-owner.ts';
import { type Compactor, startWhenRepaired } from './wait-for-repair.ts';

/** Rejects when any of the loops ends, also without an error, or when the lake is lost to another host. */
async function failWith(loops: readonly Promise<void>[], lost: AbortSignal | undefined): Promise<never> {
  const losing = new Promise<never>((_, reject) => {
    lost?.addEventListener('abort', () => reject(lost.reason), { once: true });
  });
  await Promise.race([...loops, losing]);
  throw new AppError('stopping', 'the compactor has stopped');
}

async function openFlushEngine(closers: Closers, memoryMb: number, tempDir: string): Promise<Duckdb> {
  const duckdb = await openDuckdb({ memoryMb, threads: 2, tempDir });
  closers.add('duckdb', () => duckdb.close());
  return duckdb;
}

function limitFlushes(memoryMb: number, { flushMaxBytes, flushMaxRows, flushAgeMs }: CompactOptions): FlushLimits {
  const bytes = Math.min(flushMaxBytes, engineBudget(memoryMb).lineBytes);
  return createFlushLimits({ bytes, rows: flushMaxRows, ageMs: flushAgeMs });
}

async function openStreamEnd(
  closers: Closers,
  { dir, table, assertFolder }: OwnedLake,
  seeing: Pick<StreamEndDependencies, 'reader' | 'idleStream' | 'logger' | 'alarm'>,
): Promise<LastSequenceTracker> {
  const position = (): number => table.lake().epoch?.position ?? 0;
  const streamEnd = await startLastSequenceTracker({
    ...seeing,
    file: lakePaths(dir).streamEnd,
    position,
    assertFolder,
  });
  closers.add('stream end', () => streamEnd.stop());
  return streamEnd;
}

function startFlushing(closers: Closers, loop: FlushLoopContext, aborter: AbortController): Promise<void> {
  const running = runFlushLoop(loop, aborter.signal);
  closers.add('flush loop', async () => {
    aborter.abort();
    await running.catch(() => undefined);
  });
  return running;
}

async function build(closers: Closers, dependencies: CompactDependencies, options: CompactOptions): Promise<Compactor> {
  const { logger, clock, reader, enrichment, metrics, tracing, crashPoint = noCrashPoint } = dependencies;
  const { lakeDir, spoolDir, retentionMs, refusals, ownerHoldsMs } = options;
  const { flushMb, sealMb } = divideMemory(options.duckdbMemoryMb);
  const lake = await acquireLake(closers, { clock, crashPoint, retentionMs }, options);
  const { table, writer, assertFolder } = lake;
  const counted = createCompactMetrics(metrics);
  const seen = createObservationRecorder({ logger, clock, counted, table });
  const duckdb = await openFlushEngine(closers, flushMb, path.join(spoolDir, 'flush'));
  const maintained = { primaryTable: table, lakeDir, clock, crashPoint, logger, counted, writer, assertFolder };
  const maintenance = await startMaintenance(maintained, { ...options, memoryMb: sealMb });
  closers.add('maintenance', () => maintenance.stop());
  const watches = startLakeWatches(closers, lake, { clock, logger });
  const idleStream = createIdleStream(reader);
  const streamEnd = await openStreamEnd(closers, lake, {
    reader,
    idleStream,
    logger,
    alarm: (...fault) => seen.fault(...fault),
  });
  const slices = { folder: path.join(spoolDir, 'keys'), rows: options.keySliceRows };
  const tables = await openBatchTables(duckdb, enrichment, slices, maskOfLake(table.state().metaData?.id));
  const onDamage: OnDamage = (found) => seen.damages(found);
  const keys = createIdempotencyKeyCache({ tables, table, onDamage });
  const lakeOptions = { clock, crashPoint, retentionMs };
  const owned = { lakeDir, primaryTable: table, table, reader, writer };
  const secondaryTables = createSecondaryTables({ ...owned, tables, onDamage, options: lakeOptions });
  const startupWork = createStartupWork({ maintenance, keys, clock, crashPoint, logger });
  const watermark = createIdleWatermark({ lakeDir, assertFolder, logger, clock: machineClock });
  const alarm: StreamPositionDependencies['alarm'] = (fault, figures) => {
    streamEnd.reset();
    startupWork.recordFault();
    seen.fault(fault, figures);
  };
  const limits = limitFlushes(flushMb, options);
  const aborter = new AbortController();
  const assertStreamOwner = async (): Promise<void> => reader.assertOwner?.();
  const committing = { table, secondaryTables, writer, clock, crashPoint, assertStreamOwner, ownerHoldsMs };
  const loop: FlushLoopContext = {
    lake,
    stream: createFollowedStream({ ...owned, alarm, secondaryTables, idleStream, streamEnd, watermark, logger }),
    puller: createPrefetcher(reader, spoolDir, writer, aborter.signal, (batch, { maxBytes, maxRows }) =>
      limits.pulled(batch === undefined || (batch.bytes < maxBytes && batch.events < maxRows)),
    ),
    limits,
    flushing: { ...committing, tables, keys, failedDir: lakePaths(lakeDir).failed },
    purging: createBackgroundPurge(),
    startupWork,
    retryState: seen.flushRetryState,
    report: createFlushReport(counted, createReuseReport({ lakeDir, refusals, clock, logger }), logger, tracing),
  };
  const findWatermarkMs = (): number | undefined => watermark.find(table.lake().epoch);
  counted.followWatermark(clock, findWatermarkMs);
  registerBacklogGauges(metrics, { reader, clock, findEpoch: () => table.lake().epoch });
  registerTableGauges(metrics, () => new Map([[events.table, table.state().size], ...maintenance.sizes()]));
  return {
    failed: failWith([startFlushing(closers, loop, aborter), maintenance.running], lake.lost),
    stop: () => closers.stop(),
    facts: () =>
      seen.facts({
        watermarkMs: publishableWatermark(findWatermarkMs(), machineClock),
        brokerAheadMs: watermark.brokerAheadMs(),
        problems: [...watches.problems(), ...maintenance.problems()],
        warnings: [...(enrichment?.problems() ?? []), ...maintenance.notices(), ...watches.notices()],
        secondaryTables: maintenance.secondaryTables(),
        ageLimits: maintenance.ageLimits(),
      }),
  };
}

/**
 * Starts the compactor on a lake: takes its lock, creates or upgrades the table, recovers from a crash, then runs.
 * Errors: `locked`, `lake_protocol`, `schema_change`, `log_damaged`, `start_failed`.
 */
export async function startCompact(dependencies: CompactDependencies, options: CompactOptions): Promise<Compactor> {
  const { logger } = dependencies;
  const compactor = await startWhenRepaired(
    () => buildWithClosers(logger, (closers) => build(closers, dependencies, options)),
    logger,
  );
  // The caller may await `failed` late: until then its rejection is handled here.
  compactor.failed.catch(() => undefined);
  return compactor;
}
