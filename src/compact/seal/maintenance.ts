import path from 'node:path';
import { AppError, describeError } from '../../runtime/errors.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { pause } from '../../runtime/async/retry.ts';
import { events, type Dataset } from '../../datasets/dataset.ts';
import { listLeftovers, type Leftovers } from '../../lake/cleanup.ts';
import { lakePaths, listTables, tablePaths } from '../../lake/lake.ts';
import type { Snapshot } from '../../lake/log/snapshot.ts';
import type { TableSize } from '../../lake/log/table-state.ts';
import { createSnapshotFile } from '../../lake/sql/snapshot-sql.ts';
import { createAgeLimits } from './age-limits.ts';
import { createCatalogueTask } from './catalogue-task.ts';
import { sweepLeftovers } from './cleanup-task.ts';
import { createFirstSeenTask } from './first-seen-task.ts';
import { createSecondaryTableList, createTableMaintenance, type TableMaintenance } from './table-maintenance.ts';
import {
  type MaintenanceDependencies,
  type MaintenanceOptions,
  createMaintenanceTask,
  openReplaceable,
} from './maintenance-task.ts';

/** Delay between runs while something changes, and while idle, ms. */
const turnEveryMs = { busy: 500, idle: 5000 } as const;
/** Longest time between two reads of the age limits, ms. */
const ageRulesMs = 60_000;
/** Time after a commit during which the lake counts as busy, ms. */
const busyMs = 15_000;

/** Creates the delay after a run. It is short if rows are sealed, or replaced files removed, soon. */
function createRest({ sealAgeMs, retentionMs }: MaintenanceOptions): (tables: readonly TableMaintenance[]) => number {
  const idleMs = Math.max(turnEveryMs.busy, Math.min(turnEveryMs.idle, sealAgeMs / 10, retentionMs / 10));
  let versions = '';
  let changedAtMs = 0;
  return (tables) => {
    const now = tables.map(({ dataset, table }) => `${dataset.table} ${table.state().version}`).join();
    if (now !== versions) changedAtMs = performance.now();
    versions = now;
    return performance.now() - changedAtMs < busyMs ? turnEveryMs.busy : idleMs;
  };
}

function createRenewal(
  { lakeDir, clock, logger }: MaintenanceDependencies,
  retentionMs: number,
): (tables: readonly TableMaintenance[]) => Promise<void> {
  const { root } = lakePaths(lakeDir);
  const snapshotFile = createSnapshotFile({ root, clock, retentionMs });
  let isOld = false;
  return async (tables) => {
    try {
      await snapshotFile.renew(new Map(tables.map(({ dataset, table }) => [dataset, table.state().version])));
      isOld = false;
    } catch (error) {
      // Only readers of a copy need it. One line per failure: it is retried at each run.
      const level = isOld ? 'debug' : 'warn';
      logger[level]({ error: describeError(error) }, 'cannot renew snapshot.sql, will retry');
      isOld = true;
    }
  };
}

async function listAllLeftovers(lakeDir: string): Promise<Map<Dataset, Leftovers>> {
  const found = new Map<Dataset, Leftovers>();
  for (const dataset of await listTables(lakeDir)) {
    const { table, staging } = tablePaths(lakeDir, dataset);
    // Files next to the tables belong to the leader.
    found.set(dataset, await listLeftovers(table, staging, dataset === events));
  }
  return found;
}

async function sweepTables(
  tables: readonly TableMaintenance[],
  leftovers: Map<Dataset, Leftovers>,
  putAside: boolean,
): Promise<void> {
  for (const table of tables) {
    const found = leftovers.get(table.dataset);
    if (found === undefined) continue;
    await table.run(table.sweepTask, async () => {
      if (await sweepLeftovers(table, found, putAside)) leftovers.delete(table.dataset);
    });
  }
}

export type Maintenance = Awaited<ReturnType<typeof startMaintenance>>;

/**
 * Starts the loop that seals, checkpoints and cleans the tables one after the other. `running` rejects only when
 * another compactor has taken over the lake: any other failure is a problem, and retried.
 */
export async function startMaintenance(dependencies: MaintenanceDependencies, options: MaintenanceOptions) {
  const { primaryTable, lakeDir, logger, assertFolder } = dependencies;
  const { spoolDir, memoryMb, retentionMs, sealAgeMs } = options;
  const tempDir = path.join(spoolDir, 'seal');
  const engine = await openReplaceable({ memoryMb, threads: 1, tempDir, boundRowGroups: true });
  const everyMs = Math.max(turnEveryMs.busy, Math.min(ageRulesMs, sealAgeMs / 10));
  const ageLimits = createAgeLimits(dependencies, options.readAgeRules, everyMs);
  const ageTask = createMaintenanceTask('the age limits have not been read', dependencies);
  const ofAll = { ...dependencies, ageLimits };
  const ofLeader = { ...ofAll, dataset: events, table: primaryTable, paths: lakePaths(lakeDir) };
  const first = createTableMaintenance(ofLeader, options, engine);
  const catalogue = createCatalogueTask(ofLeader, sealAgeMs);
  const catalogueTask = createMaintenanceTask('the catalogue of parameters has not been renewed', dependencies);
  const firstSeen = createFirstSeenTask(ofLeader, sealAgeMs);
  const firstSeenTask = createMaintenanceTask('the first-seen parts have not been renewed', dependencies);
  const secondaryTables = createSecondaryTableList(ofAll, options, engine);
  const renewSnapshotFile = createRenewal(dependencies, retentionMs);
  const restMs = createRest(options);
  const tables = (): readonly TableMaintenance[] => [first, ...secondaryTables.list()];
  const problems = (): Problem[] =>
    [secondaryTables, ...tables(), catalogueTask, firstSeenTask, ageTask].flatMap((table) => table.problems());
  const aborter = new AbortController();
  const { signal } = aborter;
  const leftovers = await listAllLeftovers(lakeDir);
  let putAside: boolean | undefined;

  async function renew(derived: typeof catalogue | typeof firstSeen): Promise<void> {
    await derived.run(engine.get(), signal).catch((error: unknown) => {
      // The next process completes what a stop interrupts.
      if (!signal.aborted) throw error;
    });
  }

  async function turn(): Promise<void> {
    assertFolder();
    await secondaryTables.refresh().catch((error: unknown) => {
      logger.debug({ error: describeError(error) }, 'cannot list the tables of the lake, will retry');
    });
    await renewSnapshotFile(tables());
    if (putAside !== undefined && !signal.aborted) await sweepTables(tables(), leftovers, putAside);
    await first.run(ageTask, () => ageLimits.refresh(tables()));
    // The flush loop reports a foreign commit, and detects its repair.
    for (const table of tables()) if (table.table.foreign() === undefined) await table.runDue(signal);
    // Last: they get the time that the seals leave.
    if (!signal.aborted) await first.run(catalogueTask, () => renew(catalogue));
    if (!signal.aborted) await first.run(firstSeenTask, () => renew(firstSeen));
  }

  async function loop(): Promise<void> {
    while (!signal.aborted) {
      await turn();
      await pause(problems().length > 0 ? turnEveryMs.busy : restMs(tables()), signal);
    }
  }

  const running = loop();
  running.catch(() => undefined);
  return {
    running,
    problems,
    notices: (): Problem[] => [...tables().flatMap((table) => table.notices()), ...ageLimits.notices()],
    /** Returns the figures of the age limits; undefined without any. */
    ageLimits: () => ageLimits.figures(),
    secondaryTables: (): ReadonlyMap<string, Snapshot> =>
      new Map(secondaryTables.list().map(({ dataset, table }) => [dataset.table, table.snapshot()])),
    sizes: (): ReadonlyMap<string, TableSize> =>
      new Map(secondaryTables.list().map(({ dataset, table }) => [dataset.table, table.state().size])),
    /**
     * Lets the next runs sweep what a crash left before this start. `aside`: young files that no commit names are
     * quarantined, since the stream does not agree with the log.
     */
    sweep: (aside: boolean): void => void (putAside ??= aside),
    async stop(): Promise<void> {
      aborter.abort(new AppError('stopping', 'the compactor stops'));
      engine.get().interrupt();
      await running.catch(() => undefined);
      // The next start removes what cannot be removed now.
      for (const table of tables()) await table.close().catch(() => undefined);
      engine.get().close();
    },
  };
}
