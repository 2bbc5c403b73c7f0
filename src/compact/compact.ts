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
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError, describeError } from '../runtime/errors.ts';
import { ensureFolder } from '../runtime/files/durable-file.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { buildWithClosers, type Closers, type Stoppable } from '../runtime/lifecycle.ts';
import { openRecentKeys } from '../lake/batch/recent-keys.ts';
import { recoverFailed } from '../lake/files/failed-events.ts';
import { engineBudget } from '../lake/files/row-memory.ts';
import { lakePaths, openLake } from '../lake/lake.ts';
import type { Table } from '../lake/log/table.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { tryWrite } from '../lake/try-write.ts';
import { startWhenRepaired } from './await-repair.ts';
import { createBatchBound } from './batch/batch-bound.ts';
import { createClockWatch } from './clock-watch.ts';
import { createCompactMetrics } from './compact-metrics.ts';
import type { CompactDependencies, CompactOptions } from './compact-options.ts';
import { compactFacts, createTrouble, type SeenFault } from './compact-status.ts';
import { runFlushLoop, type Loop } from './flush-loop.ts';
import { watchStreamEnd } from './position/stream-end.ts';
import { faultExplanations, type FollowDependencies } from './position/stream-position.ts';
import { engineMemoryMb, startUpkeep } from './seal/maintenance.ts';
import { startWriteProbe } from './write-probe.ts';

/** A compactor at work. `failed` rejects when it cannot go on; the process then ends and a new one starts. */
export interface Compact extends Stoppable {
  readonly failed: Promise<never>;
  /** Short facts for the service's status, with `problems` and `notices`; see compact-status.ts. */
  facts(): Readonly<Record<string, unknown>>;
}

const defaultLockWaitMs = 15_000;
/** Claims the lake: from this commit on, a compactor that ran before can neither flush nor move the position. */
async function claim(table: Table, writer: string): Promise<void> {
  await table.commit(() => ({ cause: 'start', actions: [], writer }));
}

async function build(closers: Closers, dependencies: CompactDependencies, options: CompactOptions): Promise<Compact> {
  const { logger, clock } = dependencies;
  const crashPoint = dependencies.crashPoint ?? noCrashPoint;
  const paths = lakePaths(options.lakeDir);
  const lock =
    options.withoutLock === true
      ? undefined
      : await waitForLock(paths.compactorLock, 'the compactor', options.lockWaitMs ?? defaultLockWaitMs);
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
  const duckdb = await openDuckdb({
    memoryMb: engineMemoryMb(options.duckdbMemoryMb),
    threads: 2,
    tempDir: path.join(options.spoolDir, 'flush'),
  });
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
    faults.push({
      fault,
      at: new Date(clock.nowMs()).toISOString(),
      ...(typeof backupOf === 'string' ? { backupOf } : {}),
    });
  };
  const streamEnd = await watchStreamEnd({
    reader: dependencies.reader,
    file: paths.streamEnd,
    position: () => table.lake().epoch?.position ?? 0,
    assertFolder,
    alarm: tell,
    logger: dependencies.logger,
  });
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
  const loop: Loop = {
    table,
    duckdb,
    keys,
    failedDir: paths.failed,
    writer,
    crashPoint,
    counted,
    dependencies,
    options,
    follow: { table, reader: dependencies.reader, writer, alarm },
    trouble,
    upkeep,
    streamEnd,
    bound,
    start,
    assertFolder,
  };
  const running = runFlushLoop(loop, aborter.signal);
  closers.add('flush loop', async () => {
    aborter.abort();
    await running.catch(() => undefined);
  });
  return {
    failed: Promise.race([running, upkeep.running]).then(() =>
      Promise.reject(new AppError('stopping', 'the compactor has stopped')),
    ),
    stop: () => closers.stop(),
    facts: () =>
      compactFacts(
        table,
        { faults, damages, clockProblems: clockWatch.problems() },
        { flush: trouble, upkeep: [...writeProbe.problems(), ...upkeep.problems()] },
      ),
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
