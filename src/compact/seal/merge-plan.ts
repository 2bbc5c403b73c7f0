import type { Dataset } from '../../datasets/dataset.ts';
import { engineBudget, rowBytesSql } from '../../lake/files/row-memory.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sumBytes } from './seal-task.ts';
import { cutPortions, fits, type Portion } from './merge-policy.ts';
import { wideSql } from './seal-outputs.ts';

/** Rows of a merged file, and the first and last of their apps. */
export interface Range {
  readonly where: string;
  readonly apps: readonly [number, number];
}

/** The rows of an app, or of a second (Unix) of an app. */
export interface KeyPortion extends Portion {
  readonly key: number;
}

const secondSql = 'epoch_us(event_time) // 1000000';

const timeSql = ({ key }: KeyPortion): string => `TIMESTAMPTZ '${new Date(key * 1000).toISOString()}'`;

function appRange(portions: readonly KeyPortion[]): Range {
  const [first, last] = [portions[0]?.key ?? 0, portions.at(-1)?.key ?? 0];
  return { where: `id_app BETWEEN ${first} AND ${last}`, apps: [first, last] };
}

/** Returns the ranges of an app's seconds, which files divide between them. */
function secondRanges(idApp: number, files: readonly (readonly KeyPortion[])[]): Range[] {
  return files.map(([first], index) => {
    const next = files[index + 1]?.[0];
    const from = first === undefined || index === 0 ? '' : ` AND event_time >= ${timeSql(first)}`;
    const to = next === undefined ? '' : ` AND event_time < ${timeSql(next)}`;
    return { where: `id_app = ${idApp}${from}${to}`, apps: [idApp, idApp] };
  });
}

export interface PlanSource {
  readonly dataset: Dataset;
  readonly duckdb: Duckdb;
  /** Passes the SQL of the rows of files to a query. */
  readonly read: <T>(files: readonly DataFile[], work: (source: string) => Promise<T>) => Promise<T>;
}

/** Measures groups of the rows of files. Memory: that of one scan. */
async function measure(
  { dataset, duckdb, read }: PlanSource,
  files: readonly DataFile[],
  key: string,
  where: string,
): Promise<KeyPortion[]> {
  const rows = await read(files, (source) =>
    duckdb.rows(
      `SELECT key, count(*) AS rows, sum(bytes)::BIGINT AS bytes, ${wideSql(engineBudget(duckdb.memoryMb))}
       FROM (SELECT ${key} AS key, ${rowBytesSql(dataset.columns)} AS bytes FROM ${source} WHERE ${where})
       GROUP BY key ORDER BY key`,
    ),
  );
  return rows.map((row) => ({
    key: Number(row['key']),
    rows: Number(row['rows']),
    bytes: Number(row['bytes']),
    wideBytes: Number(row['wide']),
  }));
}

/** Measures the rows of each app of a file. */
export function measureApps(source: PlanSource, file: DataFile): Promise<KeyPortion[]> {
  return measure(source, [file], 'id_app', 'true');
}

function addUp(measured: readonly KeyPortion[]): KeyPortion[] {
  const sums = new Map<number, KeyPortion>();
  for (const { key, rows, bytes, wideBytes } of measured) {
    const sum = sums.get(key) ?? { key, rows: 0, bytes: 0, wideBytes: 0 };
    sums.set(key, { key, rows: sum.rows + rows, bytes: sum.bytes + bytes, wideBytes: sum.wideBytes + wideBytes });
  }
  return [...sums.values()].toSorted((a, b) => a.key - b.key);
}

/**
 * Cuts a day between apps into files of at most `fileBytes`, whose rows the engine can sort. An app that is too large
 * for a file is cut between seconds. `measured`: the apps of each file. Returns also the number of rows.
 */
export async function planRanges(
  source: PlanSource,
  files: readonly DataFile[],
  measured: readonly KeyPortion[],
  fileBytes: number,
): Promise<{ ranges: Range[]; rows: number }> {
  const apps = addUp(measured);
  const memoryBytes = apps.reduce((sum, { bytes }) => sum + bytes, 0);
  // In memory, as the portions are.
  const bytes = (fileBytes * memoryBytes) / Math.max(1, sumBytes(files));
  const limit = { bytes, wideBytes: engineBudget(source.duckdb.memoryMb).wideBytes };
  const ranges: Range[] = [];
  let small: KeyPortion[] = [];
  const endSmall = (): void => {
    ranges.push(...cutPortions(small, limit).map(appRange));
    small = [];
  };
  for (const app of apps) {
    if (fits(app, limit)) small.push(app);
    else {
      endSmall();
      const seconds = await measure(source, files, secondSql, `id_app = ${app.key}`);
      ranges.push(...secondRanges(app.key, cutPortions(seconds, limit)));
    }
  }
  endSmall();
  return { ranges, rows: apps.reduce((sum, { rows }) => sum + rows, 0) };
}
