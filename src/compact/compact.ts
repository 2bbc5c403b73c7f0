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
import { createRecentKeys } from '../lake/batch/idempotency-keys.ts';
import type { OnDamage } from '../lake/batch/natural-key-cache.ts';
import { engineBudget } from '../lake/files/row-memory.ts';
import { lakePaths } from '../lake/lake.ts';
import { type Duckdb, openDuckdb } from '../lake/sql/duckdb.ts';
import { tellWatermark } from '../lake/watermark.ts';
import { type FlushLimits, createFlushLimits } from './batch/flush-limits.ts';
import { createFollowers } from './batch/secondary-table.ts';
import { createBatchPuller } from './batch/pull-batch.ts';
import { createQuietWatermark } from './position/idle-watermark.ts';
import { type StreamEnd, type StreamEndDependencies, watchStreamEnd } from './position/last-sequence.ts';
import { createFactRecord } from './compact-status.ts';
import { type Loop, createFlushReport, createPurgeBehind, runFlushLoop } from './flush-loop.ts';
import { createStartWork } from './startup-work.ts';
import { startLakeWatches } from './lake-watches.ts';
import { createCompactMetrics, followBacklog, followTables } from './compact-metrics.ts';
import { type CompactDependencies, type CompactOptions, divideMemory } from './compact-options.ts';
import { createReuseReport } from './key-reuse.ts';
import { type FollowDependencies, createFollowedStream, createStillness } from './position/stream-position.ts';
import { startMaintenance } from './seal/maintenance.ts';
import { type OwnLake, takeLake } from './lake-owner.ts';
import { type Compact, startWhenRepaired } from './wait-for-repair.ts';

/** Rejects when any of the loops ends, also without an error. */
async function failWith(loops: readonly Promise<void>[]): Promise<never> {
  await Promise.race(loops);
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
  { dir, table, assertFolder }: OwnLake,
  seeing: Pick<StreamEndDependencies, 'reader' | 'stillness' | 'logger' | 'alarm'>,
): Promise<StreamEnd> {
  const position = (): number => table.lake().epoch?.position ?? 0;
  const streamEnd = await watchStreamEnd({ ...seeing, file: lakePaths(dir).streamEnd, position, assertFolder });
  closers.add('stream end', () => streamEnd.stop());
  return streamEnd;
}

function startFlushing(closers: Closers, loop: Loop, aborter: AbortController): Promise<void> {
  const running = runFlushLoop(loop, aborter.signal);
  closers.add('flush loop', async () => {
    aborter.abort();
    await running.catch(() => undefined);
  });
  return running;
}

async function build(closers: Closers, dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger, clock, reader, enrichment, metrics, crashPoint = noCrashPoint } = dependencies;
  const { lakeDir, spoolDir, retentionMs, refusals, ownerHoldsMs } = options;
  const { flushMb, sealMb } = divideMemory(options.duckdbMemoryMb);
  const lake = await takeLake(closers, { clock, crashPoint, retentionMs }, options);
  const { table, writer, assertFolder } = lake;
  const counted = createCompactMetrics(metrics);
  const seen = createFactRecord({ logger, clock, counted, table });
  const duckdb = await openFlushEngine(closers, flushMb, path.join(spoolDir, 'flush'));
  const maintenance = await startMaintenance(
    { leader: table, lakeDir, clock, crashPoint, logger, counted, writer, assertFolder },
    { ...options, memoryMb: sealMb },
  );
  closers.add('maintenance', () => maintenance.stop());
  const watches = startLakeWatches(closers, lake, { clock, logger });
  const stillness = createStillness(reader);
  const streamEnd = await openStreamEnd(closers, lake, {
    reader,
    stillness,
    logger,
    alarm: (...fault) => seen.fault(...fault),
  });
  const slices = { folder: path.join(spoolDir, 'keys'), rows: options.keySliceRows };
  const tables = await openBatchTables(duckdb, enrichment, slices, maskOfLake(table.state().metaData?.id));
  const onDamage: OnDamage = (found) => seen.damages(found);
  const keys = createRecentKeys({ tables, table, onDamage });
  const lakeOptions = { clock, crashPoint, retentionMs };
  const followers = createFollowers({ lakeDir, leader: table, writer, tables, onDamage, options: lakeOptions });
  const startWork = createStartWork({ maintenance, keys, clock, crashPoint, logger });
  const watermark = createQuietWatermark({ lakeDir, assertFolder, logger, clock: machineClock });
  const alarm: FollowDependencies['alarm'] = (fault, figures) => {
    streamEnd.reset();
    startWork.noteFault();
    seen.fault(fault, figures);
  };
  const limits = limitFlushes(flushMb, options);
  const aborter = new AbortController();
  const assertStreamOwner = async (): Promise<void> => reader.assertOwner?.();
  const committing = { table, followers, writer, clock, crashPoint, assertStreamOwner, ownerHoldsMs };
  const loop: Loop = {
    lake,
    stream: createFollowedStream({ table, reader, writer, alarm, followers, stillness, streamEnd, watermark, logger }),
    puller: createBatchPuller(reader, spoolDir, writer, aborter.signal, (batch, { maxBytes, maxRows }) =>
      limits.pulled(batch === undefined || (batch.bytes < maxBytes && batch.events < maxRows)),
    ),
    limits,
    flushing: { ...committing, tables, keys, failedDir: lakePaths(lakeDir).failed },
    purging: createPurgeBehind(),
    startWork,
    trouble: seen.flushTrouble,
    report: createFlushReport(counted, createReuseReport({ lakeDir, refusals, clock, logger }), logger),
  };
  const findWatermarkMs = (): number | undefined => watermark.find(table.lake().epoch);
  counted.followWatermark(clock, findWatermarkMs);
  followBacklog(metrics, { reader, clock, findEpoch: () => table.lake().epoch });
  followTables(metrics, () => new Map([[events.table, table.state().size], ...maintenance.sizes()]));
  const running = startFlushing(closers, loop, aborter);
  return {
    failed: failWith([running, maintenance.running]),
    stop: () => closers.stop(),
    facts: () =>
      seen.facts({
        watermarkMs: tellWatermark(findWatermarkMs(), machineClock),
        brokerAheadMs: watermark.brokerAheadMs(),
        problems: [...watches.problems(), ...maintenance.problems()],
        warnings: [...(enrichment?.problems() ?? []), ...maintenance.notices(), ...watches.notices()],
        followers: maintenance.followers(),
      }),
  };
}

/**
 * Starts the compactor on a lake: takes its lock, creates or upgrades the table, recovers from a crash, then runs.
 * Errors: `locked`, `lake_protocol`, `schema_change`, `log_damaged`, `start_failed`.
 */
export async function startCompact(dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger } = dependencies;
  const compact = await startWhenRepaired(
    () => buildWithClosers(logger, (closers) => build(closers, dependencies, options)),
    logger,
  );
  // The caller may await `failed` late: until then its rejection is handled here.
  compact.failed.catch(() => undefined);
  return compact;
}
