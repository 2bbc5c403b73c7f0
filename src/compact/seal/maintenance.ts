import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { AppError, describeError, isAppError, isDamage } from '../../runtime/errors.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import { acquireLock } from '../../runtime/files/lock.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { pause } from '../../runtime/async/retry.ts';
import {
  checkpointWhenDue,
  listLeftovers,
  mustForget,
  sweep,
  trimLog,
  vacuum,
  type CleanOptions,
} from '../../lake/clean.ts';
import { openDuckdb } from '../../lake/sql/duckdb.ts';
import { recoverIntents } from '../../lake/files/staged-rewrite.ts';
import type { lakePaths } from '../../lake/lake.ts';
import { createSnapshotFile } from '../../lake/sql/snapshot-file.ts';
import { listDueSwaps, swapDue } from '../../lake/files/swap.ts';
import type { Table } from '../../lake/log/table.ts';
import type { CompactMetrics } from '../compact-metrics.ts';
import { createDueRows } from './seal-policy.ts';
import { assertOwner } from '../lake-owner.ts';
import { createLeftOut } from './left-out.ts';
import { sealDue, type SealDependencies } from './seal.ts';
import type { MeasuredParts } from './seal-slices.ts';
import { createUpkeepTask, type UpkeepTask } from './maintenance-task.ts';

export interface UpkeepDependencies {
  readonly table: Table;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
  readonly counted: CompactMetrics;
  readonly paths: ReturnType<typeof lakePaths>;
  readonly writer: string;
  /**
   * Throws when the lake's folder is not the one that this compactor has locked any more: what lies there belongs to
   * somebody else.
   */
  readonly assertFolder: () => void;
}

export interface UpkeepOptions {
  readonly spoolDir: string;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  readonly retentionMs: number;
  readonly duckdbMemoryMb: number;
  /** Commits from one checkpoint to the next; 100 by default. */
  readonly checkpointEvery?: number;
}

/**
 * The upkeep loop at work. `running` rejects only when another compactor has taken over the lake: whatever else fails
 * is a problem, and tried again.
 */
export interface Upkeep extends Stoppable {
  readonly running: Promise<void>;
  /** What does not get done, and since when. */
  problems(): Problem[];
  /**
   * Sweeps what a crash has left, for the flush loop between two flushes. `putAside`: young files that no commit names
   * are kept in a folder of their own. False when another holds the maintenance lock.
   */
  sweep(putAside: boolean): Promise<boolean>;
}

/** The share of the memory setting that each of the compactor's two engines gets. */
export function engineMemoryMb(memoryMb: number): number {
  return Math.max(128, Math.ceil(memoryMb / 2));
}

const turnEveryMs = 500;
const cleanEveryMs = 60_000;

/**
 * Runs a task that rewrites files under the maintenance lock, after finishing what a crash left half-done; undefined
 * when another (an erasure, a replay) holds the lock.
 */
async function underLock<T>(dependencies: UpkeepDependencies, task: () => Promise<T>): Promise<T | undefined> {
  const { table, paths, crashPoint, logger, assertFolder } = dependencies;
  assertFolder();
  let lock;
  try {
    lock = acquireLock(paths.maintenanceLock, 'the compactor');
  } catch (error) {
    if (isAppError(error, 'locked')) return undefined;
    throw error;
  }
  try {
    await table.refresh();
    const finished = await recoverIntents(table, paths.staging, crashPoint);
    if (finished > 0) logger.warn({ finished }, 'finished rewrites that were interrupted');
    return await task();
  } finally {
    lock.release();
  }
}

/** Refreshes the table after an error; says whether another engine's commit holds all work up until it is repaired. */
async function isHeldByForeignCommit(table: Table, error: unknown): Promise<boolean> {
  try {
    await table.refresh();
    return isAppError(error, 'foreign_commit');
  } catch (newer) {
    if (isAppError(newer, 'foreign_commit')) return true;
    throw newer;
  }
}

/** Seals again and again while something is due; what cannot be sealed is noted in `leftOut`. */
async function seal(
  dependencies: UpkeepDependencies,
  sealing: SealDependencies & { readonly signal: AbortSignal },
  options: UpkeepOptions,
  leftOut: Map<string, AppError>,
): Promise<void> {
  const { table, logger, counted, writer } = dependencies;
  for (let more = true; more && !sealing.signal.aborted;) {
    const startedAt = performance.now();
    const sealed = await underLock(dependencies, () => {
      assertOwner(table.lake(), writer);
      return sealDue(sealing, options, leftOut);
    });
    more = sealed !== undefined;
    if (sealed === undefined) break;
    const durationMs = Math.round(performance.now() - startedAt);
    counted.sealed(sealed, durationMs);
    logger.info({ ...sealed, durationMs }, 'sealed');
  }
}

/** Starts the loop that seals, checkpoints and cleans beside the flushes. */
export async function startUpkeep(dependencies: UpkeepDependencies, options: UpkeepOptions): Promise<Upkeep> {
  const { table, clock, crashPoint, paths, logger, writer } = dependencies;
  const engine = {
    memoryMb: engineMemoryMb(options.duckdbMemoryMb),
    threads: 1,
    tempDir: path.join(options.spoolDir, 'seal'),
    boundRowGroups: true,
  };
  let duckdb = await openDuckdb(engine);
  const tasks = {
    seal: createUpkeepTask('young rows of the lake have not been sealed', dependencies),
    checkpoint: createUpkeepTask("the lake's log gets no checkpoint", dependencies),
    swap: createUpkeepTask('sealed files have not been replaced by their rewrites', dependencies),
    sweep: createUpkeepTask('files that a crash has left behind have not been removed', dependencies),
    clean: createUpkeepTask('replaced files and old entries of the log have not been removed', dependencies),
  };
  const snapshotFile = createSnapshotFile({
    file: paths.snapshotSql,
    root: paths.root,
    clock,
    retentionMs: options.retentionMs,
  });
  let isSnapshotFileOld = false;
  const leftOut = createLeftOut(clock);
  const measured: MeasuredParts = new Map();
  const dueRows = createDueRows(options);
  const aborter = new AbortController();
  const { signal } = aborter;
  const sealEveryMs = Math.max(50, Math.min(options.sealAgeMs / 10, 30_000));
  let sealCheckedAtMs = 0;
  let nextCleanMs = 0;
  let youngBytesSeen = 0;
  /** The damage of a rewrite that was to take its place, at the last look. */
  let swapDamage: unknown;
  /** The sweep takes every temporary for a leftover, so a checkpoint must not be under way. */
  let isTurning = false;
  let sweeping: Promise<unknown> | undefined;

  /** Looking for due rows reads three columns of every young file: done now and then, and when much has come. */
  function isSealTime(): boolean {
    const young = table.snapshot().files.filter((file) => file.young);
    const bytes = young.reduce((sum, file) => sum + file.sizeBytes, 0);
    // By the service's clock, as the ages are; a clock that was set back must not stop the sealing.
    const elapsedMs = Math.abs(clock.nowMs() - sealCheckedAtMs);
    if (young.length === 0 || (elapsedMs < sealEveryMs && bytes - youngBytesSeen < options.sealMaxBytes)) return false;
    youngBytesSeen = bytes;
    return true;
  }

  const onRetry = (error: AppError): void =>
    logger.warn({ error: describeError(error) }, 'a seal failed, will try fewer files');

  /** Seals what is due, and remembers what could not be sealed. */
  async function sealTurn(): Promise<void> {
    // The time before the look: what falls due during a seal is seen by the next.
    const checkedAtMs = clock.nowMs();
    const files = leftOut.begin();
    const known = new Set(files.values());
    try {
      await seal(
        dependencies,
        { table, duckdb, clock, crashPoint, stagingDir: paths.staging, dueRows, measured, onRetry, signal },
        options,
        files,
      );
      sealCheckedAtMs = checkedAtMs;
    } finally {
      for (const [file, error] of files)
        if (!known.has(error)) logger.warn({ file, error: describeError(error) }, 'left out of sealing');
      noteLeftOut(files);
    }
  }

  function noteLeftOut(files: ReadonlyMap<string, AppError>): void {
    const young = table.snapshot().files.filter((file) => file.young);
    leftOut.end(files, new Set(young.map((file) => file.path)));
    const kept = new Set(young.map((file) => file.absolutePath));
    for (const file of measured.keys()) if (!kept.has(file)) measured.delete(file);
  }

  /** Where it fails, the file of the commit before is as good for everybody but the reader of a copy. */
  async function renewSnapshotFile(): Promise<void> {
    try {
      await snapshotFile.renew(table.state().version);
      isSnapshotFileOld = false;
    } catch (error) {
      // Once for each trouble: it is tried at each turn.
      const level = isSnapshotFileOld ? 'debug' : 'warn';
      logger[level]({ error: describeError(error) }, 'snapshot.sql was not renewed, will retry');
      isSnapshotFileOld = true;
    }
  }

  /** One turn: maybe seal, maybe checkpoint, maybe clean. Each fails by itself. */
  async function turn(): Promise<void> {
    dependencies.assertFolder();
    await renewSnapshotFile();
    if (isSealTime()) await attempt(tasks.seal, sealTurn);
    else if (!table.snapshot().files.some((file) => file.young)) noteLeftOut(new Map());
    await attempt(
      tasks.checkpoint,
      async () => void (await checkpointWhenDue(duckdb, table, crashPoint, options.checkpointEvery)),
    );
    await attempt(tasks.clean, clean);
    // Last, and a problem also between two looks: damage must not keep the log from being shortened.
    await attempt(tasks.swap, async () => {
      if (swapDamage !== undefined) throw swapDamage;
    });
  }

  /**
   * Runs a task; throws only when this compactor has lost the lake. An engine that failed is replaced: an internal
   * error spoils it for good.
   */
  async function attempt(task: UpkeepTask, work: () => Promise<void>): Promise<void> {
    if (signal.aborted || table.foreign() !== undefined) return;
    const error = await task.run(async () => {
      await work().catch(async (thrown: unknown) => {
        if (!(await isHeldByForeignCommit(table, thrown))) throw thrown;
      });
    });
    if (error === undefined) return;
    await table.refresh().catch(() => undefined);
    assertOwner(table.lake(), writer, error);
    if (!isAppError(error, 'sql') && !isAppError(error, 'memory')) return;
    const fresh = await openDuckdb(engine).catch(() => undefined);
    if (fresh === undefined) return;
    duckdb.close();
    duckdb = fresh;
  }

  /** Maybe remove what nobody needs any more. */
  async function clean(): Promise<void> {
    const cleaning = { nowMs: clock.nowMs(), retentionMs: options.retentionMs, crashPoint };
    const forget = await mustForget(table, cleaning.nowMs);
    if (forget !== 'no')
      await underLock(dependencies, () => removeOld(forget === 'now' ? { ...cleaning, retentionMs: 0 } : cleaning));
    if (performance.now() < nextCleanMs) return;
    // What a killed command has left in staging is finished, or removed, by whoever takes the lock.
    const isLocking = listDueSwaps(table.state(), cleaning).length > 0 || (await readdir(paths.staging)).length > 0;
    if (isLocking) await underLock(dependencies, () => removeOld(cleaning));
    else await removeOld(cleaning);
    nextCleanMs = performance.now() + Math.min(cleanEveryMs, options.retentionMs / 2);
  }

  /**
   * Removes what nobody within the retention reads any more. Swaps, for which the caller holds the maintenance lock,
   * come first: they need what would be removed.
   */
  async function removeOld(cleaning: CleanOptions): Promise<void> {
    assertOwner(table.lake(), writer);
    swapDamage = await swapDue(table, { ...cleaning, stagingDir: paths.staging }).then(
      (files) => void (files > 0 && logger.info({ files }, 'replaced sealed files by their rewrites')),
      (error: unknown) => {
        if (isDamage(error)) return error;
        throw error;
      },
    );
    await vacuum(table, cleaning);
    await trimLog(table, paths.failed, cleaning);
  }

  async function sweepOnce(putAside: boolean): Promise<boolean> {
    if (isTurning) return false;
    let swept = false;
    const task = tasks.sweep.run(async () => {
      swept = await sweepLeftovers(putAside);
    });
    sweeping = task;
    const error = await task;
    sweeping = undefined;
    // A damaged intent, say, stops what it would rewrite, and not the flushes.
    if (isAppError(error, 'fenced')) throw error;
    return swept;
  }

  async function sweepLeftovers(putAside: boolean): Promise<boolean> {
    const swept = await underLock(dependencies, async () => {
      const leftovers = await listLeftovers(table);
      await table.refresh();
      assertOwner(table.lake(), writer);
      return sweep(table, leftovers, crashPoint, putAside ? paths.orphans : undefined);
    });
    if (swept !== undefined && swept > 0)
      logger[putAside ? 'error' : 'info'](
        { swept, ...(putAside ? { putAside: paths.orphans } : {}) },
        'swept files that no commit names',
      );
    return swept !== undefined;
  }

  async function run(): Promise<void> {
    while (!signal.aborted) {
      await sweeping;
      // Another sweep may have begun at this instant: the turn then waits for its next time.
      if (sweeping !== undefined) continue;
      // The flush loop, which looks at the log all the time, reports it and sees its end.
      if (table.foreign() !== undefined) {
        await pause(turnEveryMs, signal);
        continue;
      }
      isTurning = true;
      try {
        await turn();
      } finally {
        isTurning = false;
      }
      await pause(turnEveryMs, signal);
    }
  }

  const running = run();
  running.catch(() => undefined);
  return {
    running,
    problems: () => [...leftOut.problems(), ...Object.values(tasks).flatMap((task) => task.problems())],
    sweep: sweepOnce,
    async stop() {
      aborter.abort(new AppError('stopping', 'the compactor stops'));
      duckdb.interrupt();
      await running.catch(() => undefined);
      duckdb.close();
    },
  };
}
