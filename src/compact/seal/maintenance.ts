import path from 'node:path';
import { AppError, describeError, isAppError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { pause } from '../../runtime/async/retry.ts';
import { checkpointWhenDue } from '../../lake/clean.ts';
import { openDuckdb, type Duckdb, type DuckdbOptions } from '../../lake/sql/duckdb.ts';
import { createSnapshotFile } from '../../lake/sql/snapshot-file.ts';
import type { Table } from '../../lake/log/table.ts';
import { assertOwner } from '../lake-owner.ts';
import { createCleanTurns } from './clean-turns.ts';
import type { MaintenanceDependencies, MaintenanceOptions } from './maintenance-options.ts';
import { createMaintenanceTask, type MaintenanceTask } from './maintenance-task.ts';
import { createSealTurns } from './seal-turns.ts';
import { createSweepGate } from './sweep-gate.ts';

/**
 * The maintenance loop at work. `running` rejects only when another compactor has taken over the lake: whatever else fails
 * is a problem, and tried again.
 */
export interface Maintenance extends Stoppable {
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

/** An engine that can be replaced: an internal error spoils one for good. */
interface ReplaceableEngine {
  get(): Duckdb;
  /** Opens another in its place; where that fails, it stays. */
  replace(): Promise<void>;
}

async function openReplaceable(options: DuckdbOptions): Promise<ReplaceableEngine> {
  let duckdb = await openDuckdb(options);
  return {
    get: () => duckdb,
    async replace() {
      const fresh = await openDuckdb(options).catch(() => undefined);
      if (fresh === undefined) return;
      duckdb.close();
      duckdb = fresh;
    },
  };
}

/** Creates what keeps snapshot.sql near the newest commit. */
function createRenewal(
  { table, paths, clock, logger }: MaintenanceDependencies,
  retentionMs: number,
): () => Promise<void> {
  const snapshotFile = createSnapshotFile({ file: paths.snapshotSql, root: paths.root, clock, retentionMs });
  let isOld = false;
  return async () => {
    try {
      await snapshotFile.renew(table.state().version);
      isOld = false;
    } catch (error) {
      // The file of the commit before is as good for everybody but the reader of a copy. Logged once for each trouble:
      // it is tried at each turn.
      const level = isOld ? 'debug' : 'warn';
      logger[level]({ error: describeError(error) }, 'snapshot.sql was not renewed, will retry');
      isOld = true;
    }
  };
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

/** The tasks of the loop, each of which fails by itself. */
function createTasks(dependencies: MaintenanceDependencies) {
  return {
    seal: createMaintenanceTask('young rows of the lake have not been sealed', dependencies),
    checkpoint: createMaintenanceTask("the lake's log gets no checkpoint", dependencies),
    swap: createMaintenanceTask('sealed files have not been replaced by their rewrites', dependencies),
    sweep: createMaintenanceTask('files that a crash has left behind have not been removed', dependencies),
    clean: createMaintenanceTask('replaced files and old entries of the log have not been removed', dependencies),
  } as const;
}

/** Runs a task; throws only when this compactor has lost the lake. An engine that failed is replaced. */
async function attempt(
  { table, writer }: MaintenanceDependencies,
  engine: ReplaceableEngine,
  task: MaintenanceTask,
  work: () => Promise<void>,
): Promise<void> {
  if (table.foreign() !== undefined) return;
  const error = await task.run(async () => {
    await work().catch(async (thrown: unknown) => {
      if (!(await isHeldByForeignCommit(table, thrown))) throw thrown;
    });
  });
  if (error === undefined) return;
  await table.refresh().catch(() => undefined);
  assertOwner(table.lake(), writer, error);
  if (isAppError(error, 'sql') || isAppError(error, 'memory')) await engine.replace();
}

/** Starts the loop that seals, checkpoints and cleans beside the flushes. */
export async function startMaintenance(
  dependencies: MaintenanceDependencies,
  options: MaintenanceOptions,
): Promise<Maintenance> {
  const { table, crashPoint } = dependencies;
  const engine = await openReplaceable({
    memoryMb: engineMemoryMb(options.duckdbMemoryMb),
    threads: 1,
    tempDir: path.join(options.spoolDir, 'seal'),
    boundRowGroups: true,
  });
  const tasks = createTasks(dependencies);
  const seals = createSealTurns(dependencies, options);
  const cleaning = createCleanTurns(dependencies, options.retentionMs);
  const renewSnapshotFile = createRenewal(dependencies, options.retentionMs);
  const aborter = new AbortController();
  const { signal } = aborter;
  const gate = createSweepGate(dependencies, tasks.sweep, signal);

  async function run(task: MaintenanceTask, work: () => Promise<unknown>): Promise<void> {
    if (!signal.aborted) await attempt(dependencies, engine, task, async () => void (await work()));
  }

  /** One turn: maybe seal, maybe checkpoint, maybe clean. Each fails by itself. */
  async function turn(): Promise<void> {
    dependencies.assertFolder();
    await renewSnapshotFile();
    if (seals.isDue()) await run(tasks.seal, () => seals.turn(engine.get(), signal));
    else seals.forgetSealed();
    await run(tasks.checkpoint, () => checkpointWhenDue(engine.get(), table, crashPoint, options.checkpointEvery));
    await run(tasks.clean, () => cleaning.turn());
    // Last, and a problem also between two looks: damage must not keep the log from being shortened.
    await run(tasks.swap, async () => cleaning.assertSwapped());
  }

  async function loop(): Promise<void> {
    while (!signal.aborted) {
      // The flush loop, which looks at the log all the time, reports a foreign commit and sees its end.
      const isDone = await gate.turn(async () => {
        if (table.foreign() === undefined) await turn();
      });
      if (isDone) await pause(turnEveryMs, signal);
    }
  }

  const running = loop();
  running.catch(() => undefined);
  return {
    running,
    problems: () => [...seals.problems(), ...Object.values(tasks).flatMap((task) => task.problems())],
    sweep: (putAside) => gate.sweep(putAside),
    async stop() {
      aborter.abort(new AppError('stopping', 'the compactor stops'));
      engine.get().interrupt();
      await running.catch(() => undefined);
      engine.get().close();
    },
  };
}
