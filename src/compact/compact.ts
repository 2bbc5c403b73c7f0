/**
 * The compactor: takes what is in the stream into the lake, exactly once.
 *
 * In: messages of event lines, from the stream, after the position that the lake's log names.
 * Out: commits to the lake; young files at once, sealed files in time; failed events with their reason.
 * Invariant: a message is purged from the stream only when a durable commit has its events. The order is always write,
 * fsync, commit, purge; the position is in the commit itself, so a batch is in the lake once or not at all.
 * Crash: at any instruction. The next start reads the position from the log, compares the stream with it, sweeps what
 * no commit names, finishes a seal that had begun to rename, and reads on.
 *
 * Two loops run side by side: flush-loop.ts takes batches in; seal/maintenance.ts seals, checkpoints and cleans.
 */
import path from 'node:path';
import { events } from '../datasets/dataset.ts';
import { maskOfLake } from '../datasets/event-id.ts';
import { machineClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError, isAppError } from '../runtime/errors.ts';
import { pause } from '../runtime/async/retry.ts';
import type { Logger } from '../runtime/logger.ts';
import { type Closers, type Stoppable, buildWithClosers } from '../runtime/lifecycle.ts';
import { openBatchTables } from '../lake/batch/batch-tables.ts';
import { createRecentKeys } from '../lake/batch/recent-keys.ts';
import type { OnDamage } from '../lake/batch/known-rows.ts';
import { engineBudget } from '../lake/files/row-memory.ts';
import { lakePaths } from '../lake/lake.ts';
import type { Table } from '../lake/log/table.ts';
import { type Duckdb, openDuckdb } from '../lake/sql/duckdb.ts';
import { tellWatermark } from '../lake/watermark.ts';
import { type FlushLimits, createFlushLimits } from './batch/flush-limits.ts';
import { createFollowers } from './batch/follower.ts';
import { createBatchPuller } from './batch/pull-batch.ts';
import { createQuietWatermark } from './position/quiet-watermark.ts';
import { type StreamEnd, type StreamEndDependencies, watchStreamEnd } from './position/stream-end.ts';
import { compactFacts, createFactRecord, createTrouble } from './compact-status.ts';
import { type Loop, createFlushReport, createPurgeBehind, runFlushLoop } from './flush-loop.ts';
import { createStartWork } from './start-work.ts';
import { startLakeWatches } from './lake-watches.ts';
import { createCompactMetrics, followBacklog, followTables } from './compact-metrics.ts';
import { type CompactDependencies, type CompactOptions, divideMemory } from './compact-options.ts';
import { createReuseReport } from './key-reuse.ts';
import { type FollowDependencies, createFollowedStream, createStillness } from './position/stream-position.ts';
import { type Maintenance, startMaintenance } from './seal/maintenance.ts';
import { type OwnLake, takeLake } from './lake-owner.ts';

/** A compactor at work. `failed` rejects when it cannot go on; the process then ends and a new one starts. */
export interface Compact extends Stoppable {
  readonly failed: Promise<never>;
  /** Short facts for the service's status, with `problems` and `notices`; see compact-status.ts. */
  facts(): Readonly<Record<string, unknown>>;
}

/** Opens the engine of the flushes. */
async function openFlushEngine(closers: Closers, { spoolDir, duckdbMemoryMb }: CompactOptions): Promise<Duckdb> {
  const { flushMb } = divideMemory(duckdbMemoryMb);
  const duckdb = await openDuckdb({ memoryMb: flushMb, threads: 2, tempDir: path.join(spoolDir, 'flush') });
  closers.add('duckdb', () => duckdb.close());
  return duckdb;
}

/** Starts to look at the end of the stream. */
async function openStreamEnd(
  closers: Closers,
  seeing: Pick<StreamEndDependencies, 'reader' | 'alarm' | 'stillness' | 'logger'>,
  { dir, table, assertFolder }: OwnLake,
): Promise<StreamEnd> {
  const position = (): number => table.lake().epoch?.position ?? 0;
  const streamEnd = await watchStreamEnd({ ...seeing, file: lakePaths(dir).streamEnd, position, assertFolder });
  closers.add('stream end', () => streamEnd.stop());
  return streamEnd;
}

/** Runs the flush loop until it is closed. */
function startFlushing(closers: Closers, loop: Loop, aborter: AbortController): Promise<void> {
  const running = runFlushLoop(loop, aborter.signal);
  closers.add('flush loop', async () => {
    aborter.abort();
    await running.catch(() => undefined);
  });
  return running;
}

function limitFlushes({ memoryMb }: Duckdb, { flushMaxBytes, flushMaxRows, flushAgeMs }: CompactOptions): FlushLimits {
  const bytes = Math.min(flushMaxBytes, engineBudget(memoryMb).lineBytes);
  return createFlushLimits({ bytes, rows: flushMaxRows, ageMs: flushAgeMs });
}

/** Shows what is in the lake, and what is not yet, as gauges. */
function showLake({ metrics, reader, clock }: CompactDependencies, table: Table, maintenance: Maintenance): void {
  followBacklog(metrics, { reader, clock, findEpoch: () => table.lake().epoch });
  followTables(metrics, () => new Map([[events.table, table.state().size], ...maintenance.sizes()]));
}

async function build(closers: Closers, dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger, clock, reader, enrichment, metrics, crashPoint = noCrashPoint } = dependencies;
  const { lakeDir, spoolDir, retentionMs, refusals } = options;
  const lake = await takeLake(closers, { clock, crashPoint }, options);
  const { table, writer, assertFolder } = lake;
  const counted = createCompactMetrics(metrics);
  const seen = createFactRecord({ logger, clock, counted, availableAtMs: () => table.lake().availableAtMs });
  const trouble = createTrouble(clock);
  const duckdb = await openFlushEngine(closers, options);
  const maintenance = await startMaintenance(
    { leader: table, lakeDir, clock, crashPoint, logger, counted, writer, assertFolder },
    options,
  );
  closers.add('maintenance', () => maintenance.stop());
  const watches = startLakeWatches(closers, lake, { clock, logger });
  const stillness = createStillness(reader);
  const streamEnd = await openStreamEnd(closers, { reader, alarm: seen.fault, stillness, logger }, lake);
  const slices = { folder: path.join(spoolDir, 'keys'), rows: options.keySliceRows };
  const tables = await openBatchTables(duckdb, enrichment, slices, maskOfLake(table.state().metaData?.id));
  const onDamage: OnDamage = (found) => seen.damages(found);
  const keys = createRecentKeys({ tables, table, onDamage });
  const following = { lakeDir, leader: table, writer, tables, onDamage, options: { clock, crashPoint, retentionMs } };
  const followers = createFollowers(following);
  const startWork = createStartWork({ maintenance, keys, clock, crashPoint, logger });
  const watermark = createQuietWatermark({ lakeDir, assertFolder, logger, clock: machineClock });
  const alarm: FollowDependencies['alarm'] = (fault, figures) => {
    streamEnd.reset();
    startWork.noteFault();
    seen.fault(fault, figures);
  };
  const limits = limitFlushes(duckdb, options);
  const aborter = new AbortController();
  const { ownerHoldsMs } = options;
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
    trouble,
    report: createFlushReport(counted, createReuseReport({ lakeDir, refusals, clock, logger }), logger),
  };
  const findWatermarkMs = (): number | undefined => watermark.find(table.lake().epoch);
  counted.followWatermark(clock, findWatermarkMs);
  showLake(dependencies, table, maintenance);
  const running = startFlushing(closers, loop, aborter);
  const troubles = () => ({
    flush: trouble,
    maintenance: [...watches.problems(), ...maintenance.problems()],
    notices: [enrichment?.problems() ?? [], maintenance.notices(), watches.notices()].flat(),
  });
  const knownWatermark = () => ({
    watermarkMs: tellWatermark(findWatermarkMs(), machineClock),
    brokerAheadMs: watermark.brokerAheadMs(),
  });
  return {
    failed: failWith([running, maintenance.running]),
    stop: () => closers.stop(),
    facts: () => compactFacts(table, knownWatermark(), seen.facts(), troubles(), maintenance.followers()),
  };
}

/** Rejects when one of the loops ends, also when it ends by itself. */
async function failWith(loops: readonly Promise<void>[]): Promise<never> {
  await Promise.race(loops);
  throw new AppError('stopping', 'the compactor has stopped');
}

const retryEveryMs = 1000;

/** Starts, or returns the error that another engine's commit is. */
async function tryStart(
  start: () => Promise<Compact>,
): Promise<{ readonly compact: Compact } | { readonly foreign: AppError }> {
  try {
    return { compact: await start() };
  } catch (error) {
    if (isAppError(error, 'foreign_commit')) return { foreign: error };
    throw error;
  }
}

/**
 * Starts a compactor, also on a table that another engine has changed while none ran: then it waits, with that as its
 * problem, and begins its work once the table is repaired. The process would not get better by being started again, and
 * import and export need not wait with it. Errors: those of `start`, but for `foreign_commit`.
 */
async function startWhenRepaired(start: () => Promise<Compact>, logger: Logger): Promise<Compact> {
  const first = await tryStart(start);
  if ('compact' in first) return first.compact;
  logger.error({ error: first.foreign.message }, 'compactor waits for the lake to be repaired');
  const stopping = new AbortController();
  let { foreign } = first;
  let compact: Compact | undefined;

  async function wait(): Promise<void> {
    for (;;) {
      await pause(retryEveryMs, stopping.signal);
      if (stopping.signal.aborted) return;
      const next = await tryStart(start);
      if ('compact' in next) {
        compact = next.compact;
        logger.info('lake is repaired, compactor goes on');
        return;
      }
      ({ foreign } = next);
    }
  }

  const waiting = wait();
  return {
    failed: waiting.then(() => compact?.failed ?? Promise.reject(foreign)),
    async stop() {
      stopping.abort();
      await waiting.catch(() => undefined);
      await compact?.stop();
    },
    facts: () =>
      compact?.facts() ?? {
        problems: [{ code: 'foreign_commit', what: foreign.message, todo: foreign.hint ?? '' }],
        notices: [],
      },
  };
}

/**
 * Starts the compactor on a lake: takes its lock, creates or upgrades the table, puts right what a crash has left, then
 * runs. Errors: `locked`, `lake_protocol`, `schema_change`, `log_damaged`, `start_failed`.
 */
export async function startCompact(dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger } = dependencies;
  const compact = await startWhenRepaired(
    () => buildWithClosers(logger, (closers) => build(closers, dependencies, options)),
    logger,
  );
  // The caller may look at `failed` late; until then its rejection is no unhandled one.
  compact.failed.catch(() => undefined);
  return compact;
}
