import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Action } from '../../src/lake/log/actions.ts';
import { toAdd, writeDataFile } from '../../src/lake/files/data-file.ts';
import type { Duckdb } from '../../src/lake/sql/duckdb.ts';
import { lakePaths, openLake } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { eventColumns } from '../../src/datasets/event-fields.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { sumOf } from './bench-report.ts';

/** Select list of the table's columns. */
export const columnList = eventColumns.map(({ name }) => name).join(', ');

/** Opens `folder`/lake with write access, as the compactor does. */
export function openBenchLake(folder: string): Promise<Table> {
  return openLake(path.join(folder, 'lake'), {
    clock: createClock(0),
    retentionMs: 86_400_000,
    crashPoint: noCrashPoint,
  });
}

/** Planned data files: path relative to the table's folder, and the query of the file's rows. */
export type FilePlan = readonly (readonly [relativePath: string, query: string])[];

/** Writes data files into the table's folder and adds them in one commit. */
export async function addDataFiles(table: Table, duckdb: Duckdb, plan: FilePlan): Promise<void> {
  const actions: Action[] = [];
  let rows = 0;
  for (const [relative, query] of plan) {
    const file = path.join(table.dir, relative);
    await mkdir(path.dirname(file), { recursive: true });
    const written = await writeDataFile(duckdb, query, file);
    rows += written.numRecords;
    actions.push({ add: toAdd(relative, written, Date.now(), true) });
  }
  await table.commit(() => ({ cause: 'flush', actions, totals: { streamed: rows, stored: rows } }));
}

export interface LakeSize {
  readonly paths: readonly string[];
  readonly rows: number;
  readonly bytes: number;
}

/** Reads the size of `folder`/lake from its log. */
export async function readLakeSize(folder: string): Promise<LakeSize> {
  const { files } = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  return {
    paths: files.map((file) => file.absolutePath),
    rows: sumOf(files.map((file) => file.numRecords ?? 0)),
    bytes: sumOf(files.map((file) => file.sizeBytes)),
  };
}
