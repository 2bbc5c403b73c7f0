import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { datasets, type Dataset } from '../../src/datasets/dataset.ts';
import { openDuckdb, type Duckdb, type SqlRow } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { ensureLake, openDatasetTable, tablePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import {
  loadFile,
  type LoadDependencies,
  type LoadInput,
  type LoadOptions,
  type LoadOutcome,
} from '../../src/admin/load/load.ts';
import { undoLoad, type UndoDependencies, type UndoneLoad } from '../../src/admin/load/undo-load.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../src/runtime/crash-point.ts';

const limits = { memoryMb: 512, threads: 1 } as const;
const retentionMs = 3_600_000;

/** The apps that tests load rows of. */
export const loadableApps = [
  { idApp: 1, sdkKey: 'first-key' },
  { idApp: 2, sdkKey: 'second-key' },
] as const;

/** Returns a dataset by name. Throws if it does not exist. */
export function getDataset(name: string): Dataset {
  const dataset = datasets.get(name);
  if (dataset === undefined) throw new Error(`no dataset ${name}`);
  return dataset;
}

/** A lake in a test's folder that files are loaded into, without a service. */
export interface LoadArea {
  readonly lakeDir: string;
  readonly tableDir: string;
  /** Writes a file and returns its path. */
  write(name: string, content: string | Uint8Array): string;
  load(from: LoadInput['from'], options?: LoadOptions, more?: Partial<LoadDependencies>): Promise<LoadOutcome>;
  undo(loadId: string, more?: Partial<UndoDependencies>): Promise<UndoneLoad>;
  /** Returns columns of the rows that the log names, by time and identity. */
  rows(columns: string): Promise<SqlRow[]>;
}

/** Opens an area for one dataset. */
export async function openLoadArea(folder: string, name: string): Promise<LoadArea> {
  const dataset = getDataset(name);
  const lakeDir = path.join(folder, 'lake');
  const { table: tableDir } = tablePaths(lakeDir, dataset);
  const clock = createClock(0);
  const options = { clock, retentionMs, crashPoint: noCrashPoint };
  await ensureLake(lakeDir, options);
  /** Opened by the first read: most areas are only loaded into. */
  let duckdb: Promise<Duckdb> | undefined;
  const common = {
    lakeDir,
    dataset,
    apps: loadableApps,
    clock,
    crashPoint: noCrashPoint,
    signal: new AbortController().signal,
    limits,
  };
  return {
    lakeDir,
    tableDir,
    write(file, content) {
      const target = path.join(folder, file);
      writeFileSync(target, content);
      return target;
    },
    async load(from, loadOptions = {}, more = {}) {
      const table = await openDatasetTable(lakeDir, dataset, options);
      const input = { name: typeof from === 'string' ? path.basename(from) : '-', from };
      return loadFile({ ...common, table, ...more }, input, loadOptions);
    },
    undo: async (loadId, more = {}) =>
      undoLoad({ ...common, table: await openDatasetTable(lakeDir, dataset, options), ...more }, loadId),
    async rows(columns) {
      const { files, emptyFile } = await readSnapshot(tableDir);
      const all = sqlList([emptyFile, ...files.map((file) => file.absolutePath)]);
      duckdb ??= openDuckdb(limits);
      return (await duckdb).rows(
        `SELECT ${columns} FROM read_parquet(${all}, union_by_name = true, hive_partitioning = false) ORDER BY event_time, event_id`,
      );
    },
  };
}

/** Runs `act` once, when a load reaches a step. */
export function at(wanted: string, act: () => unknown): { readonly crashPoint: CrashPoint } {
  let left = 1;
  return {
    async crashPoint(step) {
      if (step === wanted && (left -= 1) === 0) await act();
    },
  };
}
