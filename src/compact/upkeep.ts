import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { AppError, describeError, isAppError, isSystemError } from '../runtime/errors.ts';
import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import { acquireLock } from '../runtime/lock.ts';
import type { Logger } from '../runtime/logger.ts';
import { pause } from '../runtime/retry.ts';
import { checkpointWhenDue, listLeftovers, mustForget, sweep, trimLog, vacuum, type CleanOptions } from '../lake/clean.ts';
import { openDuckdb, type Duckdb } from '../lake/duckdb.ts';
import { recoverIntents } from '../lake/intent.ts';
import type { lakePaths } from '../lake/lake.ts';
import { listDueSwaps, swapDue } from '../lake/swap.ts';
import type { Table } from '../lake/table.ts';
import type { Trouble } from './compact-facts.ts';
import type { CompactMetrics } from './compact-metrics.ts';
import { createDueRows, type DueRows } from './due.ts';
import { assertOwner } from './flush.ts';
import { sealDue } from './seal.ts';

export interface UpkeepDependencies {
  readonly table: Table;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
  readonly counted: CompactMetrics;
  readonly paths: ReturnType<typeof lakePaths>;
  readonly writer: string;
  readonly trouble: Trouble;
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

/** The upkeep loop at work; `running` rejects when it cannot go on. */
export interface Upkeep extends Stoppable {
  readonly running: Promise<void>;
  /**
   * Sweeps what a crash has left, for the flush loop between two flushes. `putAside`: young files that no commit names are
   * kept in a folder of their own. False when another holds the maintenance lock.
   */
  sweep(putAside: boolean): Promise<boolean>;
}

const turnEveryMs = 500;
const cleanEveryMs = 60_000;

/**
 * Runs a task that rewrites files under the maintenance lock, after finishing what a crash left half-done; undefined when
 * another (an erasure, a replay) holds the lock.
 */
async function underLock<T>(dependencies: UpkeepDependencies, task: () => Promise<T>): Promise<T | undefined> {
  const { table, paths, crashPoint, logger } = dependencies;
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

/** Seals again and again while something is due; what is damaged is left out, and thrown when the rest is done. */
async function seal(dependencies: UpkeepDependencies & { readonly dueRows: DueRows }, duckdb: Duckdb, options: UpkeepOptions, signal: AbortSignal): Promise<void> {
  const { table, clock, crashPoint, paths, logger, counted, writer, dueRows } = dependencies;
  const leftOut = new Map<string, AppError>();
  for (let more = true; more && !signal.aborted; ) {
    const startedAt = performance.now();
    const sealed = await underLock(dependencies, () => {
      assertOwner(table.lake(), writer);
      return sealDue({ table, duckdb, clock, crashPoint, stagingDir: paths.staging, dueRows }, options, leftOut);
    });
    more = sealed !== undefined;
    if (sealed === undefined) break;
    const durationMs = Math.round(performance.now() - startedAt);
    counted.sealed(sealed, durationMs);
    logger.info({ ...sealed, durationMs }, 'sealed');
  }
  for (const damage of leftOut.values()) throw damage;
}

/** Starts the loop that seals, checkpoints and cleans beside the flushes. */
export async function startUpkeep(dependencies: UpkeepDependencies, options: UpkeepOptions): Promise<Upkeep> {
  const { table, clock, crashPoint, paths, logger, writer, trouble } = dependencies;
  const duckdb = await openDuckdb({ memoryMb: Math.max(128, Math.ceil(options.duckdbMemoryMb / 2)), threads: 1, tempDir: path.join(options.spoolDir, 'seal') });
  const dueRows = createDueRows(options);
  const aborter = new AbortController();
  const { signal } = aborter;
  const sealEveryMs = Math.max(50, Math.min(options.sealAgeMs / 10, 30_000));
  let sealCheckedAtMs = 0;
  let nextCleanMs = 0;
  let youngBytesSeen = 0;
  /** The damage that the last look for due rows has met. */
  let sealDamage: unknown;
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

  /** One turn: maybe seal, maybe checkpoint, maybe clean. */
  async function turn(): Promise<void> {
    if (isSealTime()) {
      // The time before the look: what falls due during a seal is seen by the next.
      const checkedAtMs = clock.nowMs();
      sealDamage = await seal({ ...dependencies, dueRows }, duckdb, options, signal).then(
        () => undefined,
        (error: unknown) => {
          if (isAppError(error, 'corrupt')) return error;
          throw error;
        },
      );
      sealCheckedAtMs = checkedAtMs;
    } else if (!table.snapshot().files.some((file) => file.young)) {
      // What was damaged has been erased.
      sealDamage = undefined;
    }
    await clean();
    // Last: damage must not keep the log from being shortened, nor be looked for twice a second.
    const damage = sealDamage ?? swapDamage;
    if (damage !== undefined) throw damage;
  }

  /** Maybe checkpoint, maybe remove what nobody needs any more. */
  async function clean(): Promise<void> {
    await checkpointWhenDue(duckdb, table, crashPoint, options.checkpointEvery);
    const cleaning = { nowMs: clock.nowMs(), retentionMs: options.retentionMs, crashPoint };
    const forget = await mustForget(table, cleaning.nowMs);
    if (forget !== 'no') await underLock(dependencies, () => removeOld(forget === 'now' ? { ...cleaning, retentionMs: 0 } : cleaning));
    if (performance.now() < nextCleanMs) return;
    // What a killed command has left in staging is finished, or removed, by whoever takes the lock.
    const isLocking = listDueSwaps(table.state(), cleaning).length > 0 || (await readdir(paths.staging)).length > 0;
    if (isLocking) await underLock(dependencies, () => removeOld(cleaning));
    else await removeOld(cleaning);
    nextCleanMs = performance.now() + Math.min(cleanEveryMs, options.retentionMs / 2);
  }

  /** Removes what nobody within the retention reads any more. Swaps, for which the caller holds the maintenance lock, come first: they need what would be removed. */
  async function removeOld(cleaning: CleanOptions): Promise<void> {
    assertOwner(table.lake(), writer);
    swapDamage = await swapDue(table, { ...cleaning, stagingDir: paths.staging }).then(
      (files) => void (files > 0 && logger.info({ files }, 'replaced sealed files by their rewrites without erased rows')),
      (error: unknown) => {
        if (isAppError(error, 'corrupt')) return error;
        throw error;
      },
    );
    await vacuum(table, cleaning);
    await trimLog(table, paths.failed, cleaning);
  }

  async function sweepOnce(putAside: boolean): Promise<boolean> {
    if (isTurning) return false;
    const swept = sweepLeftovers(putAside).catch((error: unknown) => {
      // A damaged intent stops what it would rewrite, which the turn tells of, and not the flushes.
      if (isAppError(error, 'corrupt')) return false;
      throw error;
    });
    sweeping = swept.catch(() => undefined);
    return swept.finally(() => {
      sweeping = undefined;
    });
  }

  async function sweepLeftovers(putAside: boolean): Promise<boolean> {
    const swept = await underLock(dependencies, async () => {
      const leftovers = await listLeftovers(table);
      await table.refresh();
      assertOwner(table.lake(), writer);
      return sweep(table, leftovers, crashPoint, putAside ? paths.orphans : undefined);
    });
    if (swept !== undefined && swept > 0) logger[putAside ? 'error' : 'info']({ swept, ...(putAside ? { putAside: paths.orphans } : {}) }, 'swept files that no commit names');
    return swept !== undefined;
  }

  async function run(): Promise<void> {
    while (!signal.aborted) {
      await sweeping;
      // Another sweep may have begun at this instant: the turn then waits for its next time.
      if (sweeping !== undefined) continue;
      isTurning = true;
      try {
        await turn();
        trouble.clear();
      } catch (error) {
        if (signal.aborted) return;
        await table.refresh();
        assertOwner(table.lake(), writer, error);
        // A damaged file keeps its rows from being rewritten, and nothing else from going on: the flushes least of all.
        const passing = isAppError(error) && (error.retryable || error.code === 'corrupt');
        if (!passing && !isSystemError(error, 'ENOSPC', 'EDQUOT')) throw error;
        logger[trouble.note(error) === 0 ? 'warn' : 'debug']({ error: describeError(error) }, 'upkeep waits');
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
    sweep: sweepOnce,
    async stop() {
      aborter.abort(new AppError('stopping', 'the compactor stops'));
      duckdb.interrupt();
      await running.catch(() => undefined);
      duckdb.close();
    },
  };
}
