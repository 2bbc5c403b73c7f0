import path from 'node:path';
import { AppError, describeError } from '../../runtime/errors.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import { pause } from '../../runtime/async/retry.ts';
import { events, type Dataset } from '../../datasets/dataset.ts';
import { listLeftovers, type Leftovers } from '../../lake/clean.ts';
import { divideMemory } from '../compact-options.ts';
import { lakePaths, listTables, tablePaths } from '../../lake/lake.ts';
import type { Snapshot } from '../../lake/log/snapshot.ts';
import type { TableSize } from '../../lake/log/table-state.ts';
import { createSnapshotFile } from '../../lake/sql/snapshot-sql.ts';
import { createCatalogueTurns } from './catalogue-turns.ts';
import { sweepLeftovers } from './clean-turns.ts';
import { createFollowerTables, createTableTurns, type TableTurns } from './table-turns.ts';
import {
  type MaintenanceDependencies,
  type MaintenanceOptions,
  createMaintenanceTask,
  openReplaceable,
} from './maintenance-task.ts';

/**
 * The maintenance loop at work. `running` rejects only when another compactor has taken over the lake: whatever else fails
 * is a problem, and tried again.
 */
export interface Maintenance extends Stoppable {
  readonly running: Promise<void>;
  /** What does not get done, and since when. */
  problems(): Problem[];
  /** What an operator should know while everything works. */
  notices(): Problem[];
  /** The other tables of the lake as they are known, by name. */
  followers(): ReadonlyMap<string, Snapshot>;
  /** How large they are, by name. */
  sizes(): ReadonlyMap<string, TableSize>;
  /**
   * Has what a crash had left before this start swept by the next turns. `putAside`: young files that no commit names
   * are kept in a folder of their own, since the stream does not agree with the log.
   */
  sweep(putAside: boolean): void;
}

/** Between turns while something changes, and while nothing does, milliseconds. */
const turnEveryMs = { busy: 500, idle: 5000 } as const;
/** For so long after the last commit turns follow each other closely: there may be more to do, milliseconds. */
const busyMs = 15_000;

/**
 * How long to rest after a turn. Where rows are sealed soon, or replaced files removed soon, nothing is idle for long.
 */
function createRest({ sealAgeMs, retentionMs }: MaintenanceOptions): (tables: readonly TableTurns[]) => number {
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

/** Creates what keeps snapshot.sql near the newest commit, and naming the tables that there are. */
function createRenewal(
  { lakeDir, clock, logger }: MaintenanceDependencies,
  retentionMs: number,
): (tables: readonly TableTurns[]) => Promise<void> {
  const { snapshotSql: file, root } = lakePaths(lakeDir);
  const snapshotFile = createSnapshotFile({ file, root, clock, retentionMs });
  let isOld = false;
  return async (tables) => {
    try {
      await snapshotFile.renew(new Map(tables.map(({ dataset, table }) => [dataset, table.state().version])));
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

/** Lists what may be left over of each table. */
async function listAllLeftovers(lakeDir: string): Promise<Map<Dataset, Leftovers>> {
  const found = new Map<Dataset, Leftovers>();
  for (const dataset of await listTables(lakeDir)) {
    const { table, staging } = tablePaths(lakeDir, dataset);
    // What lies beside the tables is the leader's.
    const beside = dataset === events ? [lakePaths(lakeDir).root] : [];
    found.set(dataset, await listLeftovers(table, staging, beside));
  }
  return found;
}

/** Sweeps each table that has been found by now, and whose maintenance lock is free. */
async function sweepTables(
  tables: readonly TableTurns[],
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

/** Starts the loop that seals, checkpoints and cleans the tables, each in its turn, beside the flushes. */
export async function startMaintenance(
  dependencies: MaintenanceDependencies,
  options: MaintenanceOptions,
): Promise<Maintenance> {
  const { leader, lakeDir } = dependencies;
  const engine = await openReplaceable({
    memoryMb: divideMemory(options.duckdbMemoryMb).sealMb,
    threads: 1,
    tempDir: path.join(options.spoolDir, 'seal'),
    boundRowGroups: true,
  });
  const ofLeader = { ...dependencies, dataset: events, table: leader, paths: lakePaths(lakeDir) };
  const first = createTableTurns(ofLeader, options, engine);
  const catalogue = createCatalogueTurns(ofLeader, options);
  const catalogueTask = createMaintenanceTask('the catalogue of parameters has not been renewed', dependencies);
  const followers = createFollowerTables(dependencies, options, engine);
  const renewSnapshotFile = createRenewal(dependencies, options.retentionMs);
  const restMs = createRest(options);
  const tables = (): readonly TableTurns[] => [first, ...followers.list()];
  const problems = (): Problem[] => [followers, ...tables(), catalogueTask].flatMap((table) => table.problems());
  const aborter = new AbortController();
  const { signal } = aborter;
  const leftovers = await listAllLeftovers(lakeDir);
  let putAside: boolean | undefined;

  /** What a stop breaks off is no failure: the next process completes it. */
  async function renewCatalogue(): Promise<void> {
    await catalogue.turn(engine.get(), signal).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }

  async function turn(): Promise<void> {
    dependencies.assertFolder();
    await followers.look().catch((error: unknown) => {
      dependencies.logger.debug({ error: describeError(error) }, 'the lake was not looked through, will retry');
    });
    await renewSnapshotFile(tables());
    if (putAside !== undefined && !signal.aborted) await sweepTables(tables(), leftovers, putAside);
    // The flush loop, which looks at the log all the time, reports a foreign commit and sees its end.
    for (const table of tables()) if (table.table.foreign() === undefined) await table.turn(signal);
    // After the seals: it has the time that they leave.
    if (!signal.aborted) await first.run(catalogueTask, () => renewCatalogue());
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
    notices: () => tables().flatMap((table) => table.notices()),
    followers: () => new Map(followers.list().map(({ dataset, table }) => [dataset.table, table.snapshot()])),
    sizes: () => new Map(followers.list().map(({ dataset, table }) => [dataset.table, table.state().size])),
    sweep: (aside) => void (putAside ??= aside),
    async stop() {
      aborter.abort(new AppError('stopping', 'the compactor stops'));
      engine.get().interrupt();
      await running.catch(() => undefined);
      engine.get().close();
    },
  };
}
