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
 * Two loops run side by side: `flush` is the loop below; the maintenance loop (seal/maintenance.ts) seals, checkpoints
 * and cleans.
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { AppError, describeError, isAppError, isSystemError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../runtime/crash-point.ts';
import { buildWithClosers, type Closers, type Stoppable } from '../runtime/lifecycle.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { pause } from '../runtime/async/retry.ts';
import { openDuckdb, type Duckdb } from '../lake/sql/duckdb.ts';
import { recoverFailed } from '../lake/files/failed-events.ts';
import { lakePaths, openLake } from '../lake/lake.ts';
import type { Epoch } from '../lake/log/lake-state.ts';
import { engineBudget } from '../lake/files/row-memory.ts';
import type { Table } from '../lake/log/table.ts';
import { refusesWrites, tryWrite } from '../lake/try-write.ts';
import type { StreamReader } from '../stream/stream.ts';
import { startWhenRepaired } from './await-repair.ts';
import { createBatchBound, type BatchBound } from './batch/batch-bound.ts';
import { compactFacts, createTrouble, type SeenFault, type Trouble } from './compact-status.ts';
import { createClockWatch } from './clock-watch.ts';
import { createCompactMetrics, type CompactMetrics } from './compact-metrics.ts';
import { flushBatch } from './batch/flush.ts';
import { faultExplanations, findStreamFault, followStream, isStillWhole, skipHole, type FollowDependencies } from './position/stream-position.ts';
import { gatherBatch } from './batch/pull-batch.ts';
import { openRecentKeys, type RecentKeys } from '../lake/batch/recent-keys.ts';
import { watchStreamEnd, type StreamEnd } from './position/stream-end.ts';
import { engineMemoryMb, startUpkeep, type Upkeep } from './seal/maintenance.ts';
import { startWriteProbe } from './write-probe.ts';

export interface CompactDependencies {
  readonly reader: StreamReader;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly crashPoint?: CrashPoint;
}

export interface CompactOptions {
  readonly lakeDir: string;
  /** Working folder of this compactor alone: emptied at start. */
  readonly spoolDir: string;
  readonly flushAgeMs: number;
  readonly flushMaxBytes: number;
  readonly flushMaxRows: number;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  readonly retentionMs: number;
  readonly duckdbMemoryMb: number;
  /** Commits from one checkpoint to the next; 100 by default. */
  readonly checkpointEvery?: number;
  /** Take no lock, so that tests can let two compactors compete; the fence in the log must hold by itself. */
  readonly withoutLock?: boolean;
  /** For how long the answer to whose the stream is holds; less in tests. */
  readonly ownerHoldsMs?: number;
  /** How long to wait for a compactor that is on its way out. */
  readonly lockWaitMs?: number;
}

/** A compactor at work. `failed` rejects when it cannot go on; the process then ends and a new one starts. */
export interface Compact extends Stoppable {
  readonly failed: Promise<never>;
  /** Short facts for the service's status, with `problems` and `notices`; see compact-status.ts. */
  facts(): Readonly<Record<string, unknown>>;
}

const defaultLockWaitMs = 15_000;
const retryEveryMs = 500;
/** A retryable error of another kind that lasts longer than this ends the process. */
const maxTroubleMs = 60_000;

interface Loop {
  readonly table: Table;
  readonly duckdb: Duckdb;
  readonly keys: RecentKeys;
  readonly failedDir: string;
  readonly writer: string;
  readonly crashPoint: CrashPoint;
  readonly counted: CompactMetrics;
  readonly dependencies: CompactDependencies;
  readonly options: CompactOptions;
  readonly alarm: FollowDependencies['alarm'];
  readonly trouble: Trouble;
  readonly upkeep: Upkeep;
  readonly streamEnd: StreamEnd;
  /** What of this start's work is done, and whether the stream was at fault before the sweep. */
  readonly bound: BatchBound;
  readonly start: { swept: boolean; faulty: boolean; keysKnown: boolean };
  /** Throws when the lake's folder is not the one that this compactor has locked any more. */
  readonly assertFolder: () => void;
}

/** Loads the keys of the last hours. In the loop and not before it: the files take their time to be read, and the start has a limit. */
async function loadKeys({ keys, dependencies }: Loop, signal: AbortSignal): Promise<void> {
  const { clock, logger } = dependencies;
  const startedAt = performance.now();
  await keys.warmUp(clock.nowMs(), signal);
  logger.info({ durationMs: Math.round(performance.now() - startedAt) }, 'loaded the recent keys');
}

/** One turn of the flush loop: pull, convert, flush, commit, purge. */
async function flushOnce(loop: Loop, signal: AbortSignal): Promise<void> {
  const { table, dependencies, options, writer, alarm } = loop;
  const { reader, logger } = dependencies;
  const follow = { table, reader, writer, alarm };
  await table.refresh();
  await loop.streamEnd.look();
  const epoch = await followStream(follow);
  // Not before the stream was compared with the log: where the two disagree, a file that the log does not name may be all there is.
  if (!loop.start.swept) loop.start.swept = await loop.upkeep.sweep(loop.start.faulty);
  if (!loop.start.keysKnown) {
    await loadKeys(loop, signal);
    loop.start.keysKnown = true;
  }
  const limits = { maxBytes: loop.bound.maxBytes, maxRows: options.flushMaxRows, maxAgeMs: options.flushAgeMs };
  const batch = await gatherBatch(reader, epoch.position, limits, path.join(options.spoolDir, `${writer}.ndjson`), signal).catch(async (error: unknown) => {
    if (!isAppError(error, 'stream_gap')) throw error;
    await skipHole(follow, epoch);
    return undefined;
  });
  if (batch === undefined) return;
  // Messages pulled from a stream that has lost its anchor meanwhile may be others than those that follow our position.
  const fault = await findStreamFault(reader, epoch);
  if (fault !== undefined && !(await isStillWhole(reader, epoch, fault, batch))) return;
  if (fault !== undefined) logger.error({ fault, firstSequence: batch.firstSequence, lastSequence: batch.lastSequence }, 'messages were removed from the stream while they were read: they are taken in all the same');

  loop.assertFolder();
  const startedAt = performance.now();
  const flushing = { table, duckdb: loop.duckdb, keys: loop.keys, clock: dependencies.clock, crashPoint: loop.crashPoint, failedDir: loop.failedDir, writer, assertStreamOwner: async () => reader.assertOwner?.(), ...(options.ownerHoldsMs === undefined ? {} : { ownerHoldsMs: options.ownerHoldsMs }), isolate: loop.bound.isolate };
  const flushed = await flushBatch(flushing, batch, epoch).catch((error: unknown) => {
    if (isAppError(error, 'memory')) loop.bound.ranOut(batch);
    throw error;
  });
  loop.bound.passed();
  await purge(reader, flushed.epoch);
  await loop.crashPoint('flush-purged');
  const durationMs = Math.round(performance.now() - startedAt);
  loop.counted.flushed(flushed, durationMs);
  const { version, events, rows, failed, repeats, sizeBytes, refused } = flushed;
  if (refused !== undefined) logger.warn({ error: describeError(refused) }, 'the engine could not read a batch as a whole: its lines were read one by one');
  logger.info({ version, events, rows, failed, repeats, sizeBytes, durationMs, lastSequence: batch.lastSequence }, 'flushed');
}

/** Purges what the lake has, unless the stream is not what it was: then it still holds messages that the lake has not. */
async function purge(reader: StreamReader, epoch: Epoch): Promise<void> {
  if ((await findStreamFault(reader, epoch)) === undefined) await reader.purgeBelow(epoch.position);
}

/** Runs the flush loop until the signal aborts. A passing trouble (broker away, disk full or read-only) is waited out; others throw. */
async function runFlushLoop(loop: Loop, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await flushOnce(loop, signal);
      loop.trouble.clear();
    } catch (error) {
      if (signal.aborted) return;
      const lastedMs = loop.trouble.note(error);
      // A broker that is away or a full disk is waited for, want of memory is met by smaller batches; anything else that lasts may go better in a
      // new process, but not while the lake refuses to be written, whatever the error says.
      const fullDisk = isSystemError(error, 'ENOSPC', 'EDQUOT');
      const passing = fullDisk || (isAppError(error) && (['disk', 'memory', 'broker_away', 'broker_refused', 'foreign_commit', 'stream_shut'].includes(error.code) || (error.retryable && lastedMs < maxTroubleMs))) || (await refusesWrites(loop.options.lakeDir, loop.assertFolder));
      if (!passing) throw error;
      // Once for each trouble: it is tried twice a second.
      loop.dependencies.logger[lastedMs === 0 ? 'warn' : 'debug']({ error: describeError(error) }, 'flush failed, will retry');
      await pause(retryEveryMs, signal);
    }
  }
}

/** Claims the lake: from this commit on, a compactor that ran before can neither flush nor move the position. */
async function claim(table: Table, writer: string): Promise<void> {
  await table.commit(() => ({ cause: 'start', actions: [], writer }));
}

async function build(closers: Closers, dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger, clock } = dependencies;
  const crashPoint = dependencies.crashPoint ?? noCrashPoint;
  const paths = lakePaths(options.lakeDir);
  const lock = options.withoutLock === true ? undefined : await waitForLock(paths.compactorLock, 'the compactor', options.lockWaitMs ?? defaultLockWaitMs);
  closers.add('compactor lock', () => lock?.release());
  const assertFolder = (): void => lock?.assertHeld();
  const removeSpool = (): Promise<void> => rm(options.spoolDir, { recursive: true, force: true });
  await removeSpool();
  await ensureFolder(options.spoolDir);
  // What was gathered last are events like any other: none may outlive its erasure there, while the service is stopped.
  closers.add('spool', removeSpool);
  const table = await openLake(options.lakeDir, { clock, retentionMs: options.retentionMs, crashPoint });
  const writer = randomUUID();
  await claim(table, writer);
  await recoverFailed(paths.failed, table.dir);

  const counted = createCompactMetrics(dependencies.metrics);
  const trouble = createTrouble(clock);
  const duckdb = await openDuckdb({ memoryMb: engineMemoryMb(options.duckdbMemoryMb), threads: 2, tempDir: path.join(options.spoolDir, 'flush') });
  closers.add('duckdb', () => duckdb.close());
  const upkeep = await startUpkeep({ table, clock, crashPoint, logger, counted, paths, writer, assertFolder }, options);
  closers.add('upkeep', () => upkeep.stop());
  const writeProbe = startWriteProbe({ tryWrite: () => tryWrite(options.lakeDir, assertFolder), clock, logger });
  closers.add('write probe', () => writeProbe.stop());

  const faults: SeenFault[] = [];
  const damages: string[] = [];
  const start = { swept: false, faulty: false, keysKnown: false };
  const tell: FollowDependencies['alarm'] = (fault, figures) => {
    logger.error({ fault, ...figures }, faultExplanations[fault]);
    counted.streamFault(fault);
    const { backupOf } = figures;
    faults.push({ fault, at: new Date(clock.nowMs()).toISOString(), ...(typeof backupOf === 'string' ? { backupOf } : {}) });
  };
  const streamEnd = await watchStreamEnd({ reader: dependencies.reader, file: paths.streamEnd, position: () => table.lake().epoch?.position ?? 0, assertFolder, alarm: tell, logger: dependencies.logger });
  closers.add('stream end', () => streamEnd.stop());
  const alarm: FollowDependencies['alarm'] = (fault, figures) => {
    streamEnd.reset();
    start.faulty ||= !start.swept;
    tell(fault, figures);
  };
  const clockWatch = createClockWatch(clock, () => table.lake().availableAtMs);
  const bound = createBatchBound(Math.min(options.flushMaxBytes, engineBudget(duckdb.memoryMb).lineBytes));
  const aborter = new AbortController();
  const onDamage = (found: readonly AppError[]): void => {
    for (const error of found.map(describeError)) {
      logger.error({ error }, 'keys of a damaged file are not known: a repeat of one would be stored again');
      if (!damages.includes(error)) damages.push(error);
    }
  };
  const keys = await openRecentKeys({ duckdb, table, onDamage });
  const loop: Loop = { table, duckdb, keys, failedDir: paths.failed, writer, crashPoint, counted, dependencies, options, alarm, trouble, upkeep, streamEnd, bound, start, assertFolder };
  const running = runFlushLoop(loop, aborter.signal);
  closers.add('flush loop', async () => {
    aborter.abort();
    await running.catch(() => undefined);
  });
  return {
    failed: Promise.race([running, upkeep.running]).then(() => Promise.reject(new AppError('stopping', 'the compactor has stopped'))),
    stop: () => closers.stop(),
    facts: () => compactFacts(table, { faults, damages, clockProblems: clockWatch.problems() }, { flush: trouble, upkeep: [...writeProbe.problems(), ...upkeep.problems()] }),
  };
}

/**
 * Starts the compactor on a lake: takes its lock, creates or upgrades the table, puts right what a crash has left, then
 * runs. Errors: `locked`, `lake_protocol`, `schema_change`, `log_damaged`, `start_failed`.
 */
export async function startCompact(dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger } = dependencies;
  const compact = await startWhenRepaired(() => buildWithClosers(logger, (closers) => build(closers, dependencies, options)), logger);
  // The caller may look at `failed` late; until then its rejection is no unhandled one.
  compact.failed.catch(() => undefined);
  return compact;
}
