import { isAppError } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { events, type Dataset, datasets } from '../../datasets/dataset.ts';
import { describeForeign } from '../../lake/log/table-state.ts';
import type { Table } from '../../lake/log/table.ts';
import { assertOwner } from '../lake-owner.ts';
import { createCheckpointTurns, createCleanTurns } from './clean-turns.ts';
import { describeTable, createSealTurns } from './seal-turns.ts';
import {
  type MaintenanceOptions,
  type TableDependencies,
  createMaintenanceTask,
  type MaintenanceTask,
  type ReplaceableEngine,
  type MaintenanceDependencies,
} from './maintenance-task.ts';
import { createSchemaTurns } from './schema-turns.ts';
import { findUnnamedTables, hasTable, lakePaths, openDatasetTable, tablePaths } from '../../lake/lake.ts';
import { findNames } from '../../runtime/files/folder-names.ts';

/** The maintenance of one table: each of its tasks fails by itself. */
export interface TableTurns extends TableDependencies {
  /** Maybe seals, maybe checkpoints, maybe cleans. Throws only when this compactor has lost the lake. */
  turn(signal: AbortSignal): Promise<void>;
  /** Runs work as a task of this table; returns what it has thrown. Throws as `turn` does. */
  run(task: MaintenanceTask, work: () => Promise<unknown>): Promise<void>;
  /** Takes in what other processes have committed; a failure is a problem. */
  refresh(): Promise<void>;
  readonly sweepTask: MaintenanceTask;
  /** What does not get done, and since when. */
  problems(): Problem[];
  /** What an operator should know while everything works. */
  notices(): Problem[];
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

/** The tasks of a table, by what does not happen while they fail. */
function createTasks(dataset: Dataset, dependencies: TableDependencies) {
  const of = describeTable(dataset);
  const where = dataset === events ? '' : ` of ${of}`;
  const create = (what: string): MaintenanceTask => createMaintenanceTask(what, dependencies);
  return {
    follow: create(`the log of ${of} has not been read`),
    seal: create(`young rows of ${of} have not been sealed`),
    checkpoint: create(`${dataset === events ? "the lake's log" : `the log of ${of}`} gets no checkpoint`),
    schema: create(`sealed files${where} have not got the columns that were added later`),
    places: create(`sealed files${where} have not been replaced by their rewrites`),
    sweep: create(`files${where} that a crash has left behind have not been removed`),
    clean: create(
      `replaced files and old entries of ${dataset === events ? 'the log' : `the log of ${of}`} have not been removed`,
    ),
  } as const;
}

/** Creates the maintenance of a table; the first turn looks at everything. */
export function createTableTurns(
  dependencies: TableDependencies,
  options: MaintenanceOptions,
  engine: ReplaceableEngine,
): TableTurns {
  const { dataset, table, leader, writer, crashPoint } = dependencies;
  const tasks = createTasks(dataset, dependencies);
  const seals = createSealTurns(dependencies, options);
  const checkpoints = createCheckpointTurns(table, crashPoint, options.checkpointEvery);
  const cleaning = createCleanTurns(dependencies, options.retentionMs);
  const schema = createSchemaTurns(dependencies, options.retentionMs);

  /** Runs a task; throws only when this compactor has lost the lake. An engine that failed is replaced. */
  async function run(task: MaintenanceTask, work: () => Promise<unknown>): Promise<void> {
    if (table.foreign() !== undefined) return;
    const error = await task.run(async () => {
      await work().catch(async (thrown: unknown) => {
        if (!(await isHeldByForeignCommit(table, thrown))) throw thrown;
      });
    });
    if (error === undefined) return;
    await table.refresh().catch(() => undefined);
    assertOwner(leader.lake(), writer, error);
    if (isAppError(error, 'sql') || isAppError(error, 'memory')) await engine.replace();
  }

  return {
    ...dependencies,
    sweepTask: tasks.sweep,
    run,
    async refresh() {
      await tasks.follow.run(async () => {
        await table.refresh().catch((error: unknown) => {
          if (!isAppError(error, 'foreign_commit')) throw error;
        });
      });
    },
    async turn(signal) {
      const runUntilStop = async (task: MaintenanceTask, work: () => Promise<unknown>): Promise<void> => {
        if (!signal.aborted) await run(task, work);
      };
      if (seals.isDue()) await runUntilStop(tasks.seal, () => seals.turn(engine.get(), signal));
      else seals.forgetSealed();
      await runUntilStop(tasks.checkpoint, () => checkpoints.turn(engine.get()));
      await runUntilStop(tasks.clean, () => cleaning.turn());
      await runUntilStop(tasks.schema, () => schema.turn(engine.get(), signal));
      // Last, and a problem also between two looks: damage must not keep the log from being shortened.
      await runUntilStop(tasks.places, async () => cleaning.assertShown());
    },
    notices: () => schema.notices(),
    problems() {
      const foreign = table === leader ? undefined : table.foreign();
      return [
        ...(foreign === undefined ? [] : [describeForeign(foreign, dataset.table)]),
        ...seals.problems(),
        ...Object.values(tasks).flatMap((task) => task.problems()),
      ];
    },
  };
}

/**
 * The tables beside that of the events. Each comes into being with its first rows, perhaps by another process, while
 * this one runs.
 */
export interface FollowerTables {
  /**
   * Opens the tables that have come, and takes in what was committed to those that are open: one listing of the lake's
   * folder, and one look for the next entry of each log. Nothing more than once in a while, unless `now`.
   */
  look(now?: boolean): Promise<void>;
  /** Those that are open. */
  list(): readonly TableTurns[];
  /** What keeps a table from being opened, and the tables that no pipeline names. */
  problems(): Problem[];
}

const lookEveryMs = 1000;

/** Creates the memory; the first look is due at once. */
export function createFollowerTables(
  dependencies: MaintenanceDependencies,
  options: MaintenanceOptions,
  engine: ReplaceableEngine,
): FollowerTables {
  const { lakeDir } = dependencies;
  const opened = new Map<Dataset, TableTurns>();
  const opening = new Map<Dataset, MaintenanceTask>();
  let unnamed: readonly Problem[] = [];
  let lookedAtMs = -Infinity;

  async function open(dataset: Dataset): Promise<void> {
    if (!(await hasTable(lakeDir, dataset))) return;
    const { clock, crashPoint } = dependencies;
    const { retentionMs } = options;
    const table = await openDatasetTable(lakeDir, dataset, { clock, crashPoint, retentionMs });
    const paths = { ...lakePaths(lakeDir), ...tablePaths(lakeDir, dataset) };
    opened.set(dataset, createTableTurns({ ...dependencies, dataset, table, paths }, options, engine));
  }

  return {
    async look(now = false) {
      if (!now && performance.now() - lookedAtMs < lookEveryMs) return;
      const names = new Set(await findNames(lakeDir));
      for (const dataset of datasets.values()) {
        if (dataset === events || !names.has(dataset.table)) continue;
        const known = opened.get(dataset);
        if (known !== undefined) {
          await known.refresh();
          continue;
        }
        const task =
          opening.get(dataset) ??
          createMaintenanceTask(`the lake's table ${dataset.table} has not been opened`, dependencies);
        opening.set(dataset, task);
        await task.run(() => open(dataset));
      }
      unnamed = await findUnnamedTables(lakeDir);
      lookedAtMs = performance.now();
    },
    list: () => [...opened.values()],
    problems: () => [...[...opening.values()].flatMap((task) => task.problems()), ...unnamed],
  };
}
