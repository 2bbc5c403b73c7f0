import type { Problem } from '../../runtime/conditions/problem.ts';
import { datasets, events, type Dataset } from '../../datasets/dataset.ts';
import { findUnnamedTables, hasTable, lakePaths, openDatasetTable, tablePaths } from '../../lake/lake.ts';
import { findNames } from '../../runtime/files/folder-names.ts';
import type { MaintenanceDependencies, MaintenanceOptions } from './maintenance-options.ts';
import { createMaintenanceTask, type MaintenanceTask } from './maintenance-task.ts';
import type { ReplaceableEngine } from './replaceable-engine.ts';
import { createTableTurns, type TableTurns } from './table-turns.ts';

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
