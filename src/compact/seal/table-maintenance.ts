import { isAppError } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { events, type Dataset, datasets } from '../../datasets/dataset.ts';
import { describeForeign } from '../../lake/log/table-state.ts';
import type { Table } from '../../lake/log/table.ts';
import { assertOwner } from '../lake-owner.ts';
import { createCheckpointTask, createCleanupTask } from './cleanup-task.ts';
import { describeTable, createSealTask } from './seal-task.ts';
import {
  type MaintenanceOptions,
  type TableDependencies,
  createMaintenanceTask,
  refreshOwnCommits,
  type MaintenanceTask,
  type ReplaceableEngine,
  type MaintenanceDependencies,
} from './maintenance-task.ts';
import { createExpiryTask } from './expiry-task.ts';
import { createMergeTask } from './merge-task.ts';
import { createSchemaTask } from './schema-task.ts';
import { findUnnamedTables, hasTable, lakePaths, openDatasetTable, tablePaths } from '../../lake/lake.ts';
import { lakeStore } from '../../lake/files/data-file.ts';

/** Refreshes the table after an error; reports whether a foreign commit stops all work until its repair. */
async function isHeldByForeignCommit(table: Table, error: unknown): Promise<boolean> {
  try {
    await table.refresh();
    return isAppError(error, 'foreign_commit');
  } catch (newer) {
    if (isAppError(newer, 'foreign_commit')) return true;
    throw newer;
  }
}

function createTasks(dataset: Dataset, dependencies: TableDependencies) {
  const of = describeTable(dataset);
  const where = dataset === events ? '' : ` of ${of}`;
  const create = (what: string): MaintenanceTask => createMaintenanceTask(what, dependencies);
  return {
    follow: create(`the log of ${of} has not been read`),
    seal: create(`young rows of ${of} have not been sealed`),
    checkpoint: create(`${dataset === events ? "the lake's log" : `the log of ${of}`} has had no checkpoint`),
    schema: create(`sealed files${where} have lacked columns that were added later`),
    merge: create(`days of ${of} have not been merged`),
    expiry: create(`expired rows${where} have not been removed`),
    places: create(`sealed files${where} have not been replaced by their rewrites`),
    sweep: create(`files${where} that a crash has left behind have not been removed`),
    clean: create(
      `replaced files and old entries of ${dataset === events ? 'the log' : `the log of ${of}`} have not been removed`,
    ),
  } as const;
}

export type TableMaintenance = ReturnType<typeof createTableMaintenance>;

/** Creates the maintenance of a table. The first run checks everything; each task fails separately. */
export function createTableMaintenance(
  dependencies: TableDependencies,
  options: MaintenanceOptions,
  engine: ReplaceableEngine,
) {
  const { dataset, table, primaryTable, writer, crashPoint } = dependencies;
  const { retentionMs, checkpointEvery } = options;
  const tasks = createTasks(dataset, dependencies);
  const seals = createSealTask(dependencies, options);
  const checkpoints = createCheckpointTask(table, crashPoint, checkpointEvery);
  const cleaning = createCleanupTask(dependencies, retentionMs);
  const schema = createSchemaTask(dependencies, retentionMs);
  const merges = createMergeTask(dependencies, options);
  const expiry = createExpiryTask(dependencies, options);

  /** Runs work as a task; throws only when this compactor has lost the lake. Replaces an engine that failed. */
  async function run(task: MaintenanceTask, work: () => Promise<unknown>): Promise<void> {
    if (table.foreign() !== undefined) return;
    const error = await task.run(async () => {
      await work().catch(async (thrown: unknown) => {
        if (!(await isHeldByForeignCommit(table, thrown))) throw thrown;
      });
    });
    if (error === undefined) return;
    await table.refresh().catch(() => undefined);
    assertOwner(primaryTable.lake(), writer, error);
    if (isAppError(error, 'sql') || isAppError(error, 'memory')) await engine.replace();
  }

  return {
    ...dependencies,
    sweepTask: tasks.sweep,
    run,
    /** Reads what other processes have committed; a failure is a problem. */
    refresh: () => tasks.follow.run(() => refreshOwnCommits(table)),
    /** Runs each task that is due. Throws only when this compactor has lost the lake. */
    async runDue(signal: AbortSignal): Promise<void> {
      const runUntilStop = async (task: MaintenanceTask, work: () => Promise<unknown>): Promise<void> => {
        if (!signal.aborted) await run(task, work);
      };
      if (seals.isDue()) await runUntilStop(tasks.seal, () => seals.run(engine.get(), signal));
      else seals.forgetSealed();
      await runUntilStop(tasks.checkpoint, () => checkpoints.run(engine.get()));
      await runUntilStop(tasks.clean, () => cleaning.run());
      await runUntilStop(tasks.expiry, () => expiry.run(engine.get(), signal));
      await runUntilStop(tasks.schema, () => schema.run(engine.get(), signal));
      await runUntilStop(tasks.merge, () => merges.run(engine.get(), signal));
      // Last: damage must not keep the log from being trimmed.
      await runUntilStop(tasks.places, async () => cleaning.assertReplaced());
    },
    /** Drops unfinished work. */
    close: () => merges.close(),
    notices: () => [...schema.notices(), ...merges.notices()],
    problems(): Problem[] {
      const foreign = table === primaryTable ? undefined : table.foreign();
      return [
        ...(foreign === undefined ? [] : [describeForeign(foreign, dataset.table)]),
        ...seals.problems(),
        ...Object.values(tasks).flatMap((task) => task.problems()),
      ];
    },
  };
}

const pollIntervalMs = 1000;

/** Creates the list of secondary tables; another process may create one with its first rows. */
export function createSecondaryTableList(
  dependencies: MaintenanceDependencies,
  options: MaintenanceOptions,
  engine: ReplaceableEngine,
) {
  const { lakeDir, clock, crashPoint } = dependencies;
  const opened = new Map<Dataset, TableMaintenance>();
  const opening = new Map<Dataset, MaintenanceTask>();
  let unnamed: readonly Problem[] = [];
  let lookedAtMs = -Infinity;

  async function open(dataset: Dataset): Promise<void> {
    if (!(await hasTable(lakeDir, dataset))) return;
    const { retentionMs } = options;
    const table = await openDatasetTable(lakeDir, dataset, { clock, crashPoint, retentionMs });
    const paths = { ...lakePaths(lakeDir), ...tablePaths(lakeDir, dataset) };
    opened.set(dataset, createTableMaintenance({ ...dependencies, dataset, table, paths }, options, engine));
  }

  return {
    /** Opens new tables and refreshes open ones, at most once a second. */
    async refresh(): Promise<void> {
      if (performance.now() - lookedAtMs < pollIntervalMs) return;
      const names = new Set(await lakeStore(lakeDir).folders(''));
      for (const dataset of datasets.values()) {
        if (dataset === events || !names.has(dataset.table)) continue;
        const known = opened.get(dataset);
        if (known !== undefined) {
          await known.refresh();
          continue;
        }
        const what = `the lake's table ${dataset.table} has not been opened`;
        const task = opening.get(dataset) ?? createMaintenanceTask(what, dependencies);
        opening.set(dataset, task);
        await task.run(() => open(dataset));
      }
      unnamed = await findUnnamedTables(lakeDir);
      lookedAtMs = performance.now();
    },
    list: () => [...opened.values()],
    /** Reports tables that cannot be opened, and tables that no pipeline names. */
    problems: (): Problem[] => [...[...opening.values()].flatMap((task) => task.problems()), ...unnamed],
  };
}
