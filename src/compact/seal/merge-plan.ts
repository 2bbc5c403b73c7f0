import type { Dataset } from '../../datasets/dataset.ts';
import { engineBudget, rowBytesSql } from '../../lake/files/row-memory.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { cutPortions, fits, type Portion } from './merge-policy.ts';
import { wideSql } from './seal-outputs.ts';

/** Rows of a merged file, and the first and last of their apps. */
export interface Range {
  readonly where: string;
  readonly apps: readonly [number, number];
}

/** The rows of an app, or of a second (Unix) of an app. */
interface KeyPortion extends Portion {
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
  /** Passes the SQL of the day's rows to a query. */
  readonly read: <T>(work: (source: string) => Promise<T>) => Promise<T>;
  /** Size of the day's files. */
  readonly bytes: number;
}

/** Measures groups of the day's rows. Memory: that of one scan. */
async function measure({ dataset, duckdb, read }: PlanSource, key: string, where: string): Promise<KeyPortion[]> {
  const rows = await read((source) =>
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

/**
 * Cuts a day between apps into files of at most `fileBytes`, whose rows the engine can sort. An app that is too large
 * for a file is cut between seconds. Returns also the number of rows.
 */
export async function planRanges(source: PlanSource, fileBytes: number): Promise<{ ranges: Range[]; rows: number }> {
  const apps = await measure(source, 'id_app', 'true');
  const memoryBytes = apps.reduce((sum, { bytes }) => sum + bytes, 0);
  // In memory, as the portions are.
  const bytes = (fileBytes * memoryBytes) / Math.max(1, source.bytes);
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
      const seconds = await measure(source, secondSql, `id_app = ${app.key}`);
      ranges.push(...secondRanges(app.key, cutPortions(seconds, limit)));
    }
  }
  endSmall();
  return { ranges, rows: apps.reduce((sum, { rows }) => sum + rows, 0) };
}
