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
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { events } from '../datasets/dataset.ts';
import { maskOfLake } from '../datasets/event-id.ts';
import { machineClock, type Clock } from '../runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { buildWithClosers, type Closers, type Stoppable } from '../runtime/lifecycle.ts';
import { removeTree } from '../runtime/files/work-files.ts';
import { openBatchTables } from '../lake/batch/batch-tables.ts';
import { createRecentKeys } from '../lake/batch/recent-keys.ts';
import type { OnDamage } from '../lake/batch/whole-files.ts';
import { recoverFailed } from '../lake/files/failed-events.ts';
import { createErasedIdsSearch, describeUnnamedErasedIds } from '../lake/find/erased-ids.ts';
import { engineBudget } from '../lake/files/row-memory.ts';
import { lakePaths, openLake } from '../lake/lake.ts';
import type { Table } from '../lake/log/table.ts';
import { openDuckdb, type Duckdb } from '../lake/sql/duckdb.ts';
import { tryWrite } from '../lake/try-write.ts';
import { tellWatermark } from '../lake/watermark.ts';
import { startWhenRepaired } from './await-repair.ts';
import { createBatchBound } from './batch/batch-bound.ts';
import { createFlushAge } from './batch/flush-age.ts';
import { createFollowers, findAhead } from './batch/follower.ts';
import { createPurgeBehind } from './batch/purge-behind.ts';
import { createCompactMetrics } from './compact-metrics.ts';
import type { CompactDependencies, CompactOptions } from './compact-options.ts';
import { followBacklog, followTables } from './lake-gauges.ts';
import { compactFacts, createTrouble, type KnownWatermark } from './compact-status.ts';
import { runFlushLoop, type Loop } from './flush-loop.ts';
import { createKeyLearning } from './key-learning.ts';
import { createReuseReport } from './key-reuse.ts';
import { createQuietWatermark, type QuietWatermark } from './position/quiet-watermark.ts';
import { watchStreamEnd, type StreamEnd, type StreamEndDependencies } from './position/stream-end.ts';
import { createStillness } from './position/stillness.ts';
import type { FollowDependencies } from './position/stream-position.ts';
import { divideMemory } from './engine-memory.ts';
import { startMaintenance, type Maintenance } from './seal/maintenance.ts';
import { watchErasedIds } from './erased-ids-watch.ts';
import { createFactRecord } from './seen-facts.ts';
import { startWriteProbe } from './write-probe.ts';

/** A compactor at work. `failed` rejects when it cannot go on; the process then ends and a new one starts. */
export interface Compact extends Stoppable {
  readonly failed: Promise<never>;
  /** Short facts for the service's status, with `problems` and `notices`; see compact-status.ts. */
  facts(): Readonly<Record<string, unknown>>;
}

const defaultLockWaitMs = 15_000;

/** Claims the lake: from this commit on, a compactor that ran before can neither flush nor move the position. */
async function claim(table: Table, writer: string, erasedIdsFile: string): Promise<void> {
  const unnamed = table.lake().erasedIds === undefined ? await describeUnnamedErasedIds(erasedIdsFile) : undefined;
  await table.commit((_, { erasedIds = unnamed }) => ({ cause: 'start', actions: [], writer, erasedIds }));
}

/** A lake that this compactor has taken. */
interface TakenLake {
  readonly paths: ReturnType<typeof lakePaths>;
  readonly table: Table;
  readonly writer: string;
  /** Throws when the lake's folder is not the one that this compactor has locked any more. */
  readonly assertFolder: () => void;
}

/**
 * Locks the lake, empties the spool folder, opens the table and claims it, and settles what a crash has left of
 * flushes.
 */
async function takeLake(
  closers: Closers,
  clock: Clock,
  crashPoint: CrashPoint,
  options: CompactOptions,
): Promise<TakenLake> {
  const paths = lakePaths(options.lakeDir);
  const lock =
    options.withoutLock === true
      ? undefined
      : await waitForLock(paths.compactorLock, 'the compactor', options.lockWaitMs ?? defaultLockWaitMs);
  closers.add('compactor lock', () => lock?.release());
  const removeSpool = (): Promise<void> => removeTree(options.spoolDir);
  await removeSpool();
  await ensureFolder(options.spoolDir);
  // What was pulled last are events like any other: none may outlive its erasure there, while the service is stopped.
  closers.add('spool', removeSpool);
  const table = await openLake(options.lakeDir, { clock, retentionMs: options.retentionMs, crashPoint });
  const writer = randomUUID();
  await claim(table, writer, paths.erasedIds);
  await recoverFailed(paths.failed, table.dir);
  return { paths, table, writer, assertFolder: () => lock?.assertHeld() };
}

/** Opens the engine of the flushes. */
async function openFlushEngine(closers: Closers, { spoolDir, duckdbMemoryMb }: CompactOptions): Promise<Duckdb> {
  const { flushMb } = divideMemory(duckdbMemoryMb);
  const duckdb = await openDuckdb({ memoryMb: flushMb, threads: 2, tempDir: path.join(spoolDir, 'flush') });
  closers.add('duckdb', () => duckdb.close());
  return duckdb;
}

/** Starts looking at the end of the stream. */
async function openStreamEnd(
  closers: Closers,
  seeing: Pick<StreamEndDependencies, 'reader' | 'alarm' | 'stillness' | 'logger'>,
  { paths, table, assertFolder }: Pick<TakenLake, 'paths' | 'table' | 'assertFolder'>,
): Promise<StreamEnd> {
  const position = (): number => table.lake().epoch?.position ?? 0;
  const streamEnd = await watchStreamEnd({ ...seeing, file: paths.streamEnd, position, assertFolder });
  closers.add('stream end', () => streamEnd.stop());
  return streamEnd;
}

/** Watches what no loop would notice: whether the lake can be written, and the hashes of erased ids. */
function startWatches(
  closers: Closers,
  { paths, assertFolder }: Pick<TakenLake, 'paths' | 'assertFolder'>,
  { clock, logger }: Pick<CompactDependencies, 'clock' | 'logger'>,
) {
  const writeProbe = startWriteProbe({ tryWrite: () => tryWrite(paths.root, assertFolder), clock, logger });
  closers.add('write probe', () => writeProbe.stop());
  const erasedIds = watchErasedIds(createErasedIdsSearch(paths));
  closers.add('erased ids', () => erasedIds.stop());
  return { problems: () => writeProbe.problems(), notices: () => erasedIds.notices() };
}

/** Runs the flush loop until it is closed. */
function startFlushing(closers: Closers, loop: Loop): Promise<void> {
  const aborter = new AbortController();
  const running = runFlushLoop(loop, aborter.signal);
  closers.add('flush loop', async () => {
    aborter.abort();
    await running.catch(() => undefined);
  });
  return running;
}

/** Gives the gauges of what is in the lake, and of what is not yet. */
function showLake({ metrics, reader, clock }: CompactDependencies, table: Table, maintenance: Maintenance): void {
  followBacklog(metrics, { reader, clock, findEpoch: () => table.lake().epoch });
  followTables(metrics, () => new Map([[events.table, table.state().size], ...maintenance.sizes()]));
}

function knowWatermark(table: Table, watermark: QuietWatermark): KnownWatermark {
  return {
    watermarkMs: tellWatermark(watermark.find(table.lake().epoch), machineClock),
    brokerAheadMs: watermark.brokerAheadMs(),
  };
}

async function build(closers: Closers, dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger, clock, reader, crashPoint = noCrashPoint } = dependencies;
  const { paths, table, writer, assertFolder } = await takeLake(closers, clock, crashPoint, options);
  const counted = createCompactMetrics(dependencies.metrics);
  const seen = createFactRecord({ logger, clock, counted, availableAtMs: () => table.lake().availableAtMs });
  const trouble = createTrouble(clock);
  const duckdb = await openFlushEngine(closers, options);
  const maintenance = await startMaintenance(
    { leader: table, lakeDir: options.lakeDir, clock, crashPoint, logger, counted, writer, assertFolder },
    options,
  );
  closers.add('maintenance', () => maintenance.stop());
  const watches = startWatches(closers, { paths, assertFolder }, { clock, logger });
  const seeing = { reader, alarm: seen.fault, stillness: createStillness(reader), logger };
  const streamEnd = await openStreamEnd(closers, seeing, { paths, table, assertFolder });
  const start = { faulty: false };
  const alarm: FollowDependencies['alarm'] = (fault, figures) => {
    streamEnd.reset();
    start.faulty = true;
    seen.fault(fault, figures);
  };
  const slices = { folder: path.join(options.spoolDir, 'keys'), rows: options.keySliceRows };
  const tables = await openBatchTables(duckdb, dependencies.enrichment, slices, maskOfLake(table.state().metaData?.id));
  const onDamage: OnDamage = (found) => seen.damages(found);
  const { lakeDir, retentionMs, refusals } = options;
  const following = { lakeDir, leader: table, writer, tables, onDamage, options: { clock, crashPoint, retentionMs } };
  const followers = createFollowers(following);
  const keys = createRecentKeys({ tables, table, onDamage });
  const watermark = createQuietWatermark({ lakeDir, assertFolder, logger, clock: machineClock });
  const loop: Loop = {
    table,
    followers,
    tables,
    keys,
    learning: createKeyLearning({ keys, clock, crashPoint, logger }),
    failedDir: paths.failed,
    writer,
    crashPoint,
    counted,
    reportReuse: createReuseReport({ lakeDir, refusals, clock, logger }),
    dependencies,
    options,
    follow: { table, reader, writer, alarm, findAhead: (epoch) => findAhead(followers, epoch) },
    trouble,
    maintenance,
    streamEnd,
    stillness: seeing.stillness,
    watermark,
    bound: createBatchBound(Math.min(options.flushMaxBytes, engineBudget(duckdb.memoryMb).lineBytes)),
    purging: createPurgeBehind(),
    age: createFlushAge(options.flushAgeMs),
    start,
    assertFolder,
  };
  counted.followWatermark(clock, () => watermark.find(table.lake().epoch));
  showLake(dependencies, table, maintenance);
  const running = startFlushing(closers, loop);
  const troubles = () => ({
    flush: trouble,
    maintenance: [...watches.problems(), ...maintenance.problems()],
    notices: [dependencies.enrichment?.problems() ?? [], maintenance.notices(), watches.notices()].flat(),
  });
  return {
    failed: failWith([running, maintenance.running]),
    stop: () => closers.stop(),
    facts: () =>
      compactFacts(table, knowWatermark(table, watermark), seen.facts(), troubles(), maintenance.followers()),
  };
}

/** Rejects when one of the loops ends, also when it ends by itself. */
async function failWith(loops: readonly Promise<void>[]): Promise<never> {
  await Promise.race(loops);
  throw new AppError('stopping', 'the compactor has stopped');
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
