import { events } from '../../../datasets/dataset.ts';
import type { DataFile } from '../../../lake/log/snapshot.ts';
import type { DataPlan, DateSpan, DayCount } from '../../jobs/data-messages.ts';
import { filesSql } from '../export-query.ts';
import type { QueryEngine } from '../query-engine.ts';
import type { Chosen } from './choose-files.ts';

/** The only value of a column in a file by the log's statistics; undefined where there are several, or it is unknown. */
function onlyValue({ minValues, maxValues }: DataFile, column: string): unknown {
  return minValues[column] === maxValues[column] ? minValues[column] : undefined;
}

/** What a file has where all of its rows are one app's, of one kind and one day: then the log has counted them. */
function countByLog(file: DataFile, table: string, apps: ReadonlySet<number>): DayCount | undefined {
  const [idApp, date] = [onlyValue(file, 'id_app'), onlyValue(file, 'date')];
  const kind = table === events.table ? onlyValue(file, 'kind') : table;
  const { numRecords } = file;
  return typeof idApp === 'number' &&
    apps.has(idApp) &&
    typeof date === 'string' &&
    typeof kind === 'string' &&
    numRecords !== undefined
    ? { date, kind, events: numRecords }
    : undefined;
}

const countSql = (
  kind: string,
): string => `SELECT strftime(date, '%Y-%m-%d') AS date, ${kind} AS kind, count(*) AS events
  FROM ${filesSql} WHERE id_app IN (SELECT id_app FROM apps) AND date BETWEEN CAST($from AS DATE) AND CAST($to AS DATE) GROUP BY ALL`;

/**
 * Counts the events of one table by day and kind: by the log where it tells, else by the three columns that say it, of
 * row groups that may have rows of the apps. Errors: `sql` where a file cannot be read.
 */
export async function countDays(
  engine: QueryEngine,
  { table, snapshot, files }: Chosen,
  { apps }: DataPlan,
  { from, to }: DateSpan,
): Promise<DayCount[]> {
  const ids = new Set(apps.map(({ idApp }) => idApp));
  const counts = new Map<DataFile, DayCount | undefined>(files.map((file) => [file, countByLog(file, table, ids)]));
  const told = [...counts.values()].filter((count) => count !== undefined && count.date >= from && count.date <= to);
  const read = files.filter((file) => counts.get(file) === undefined);
  const kind = table === events.table ? 'kind' : '$table';
  const values = { from, to, ...(table === events.table ? {} : { table }) };
  const rows =
    read.length === 0
      ? []
      : await engine.rows({ sql: countSql(kind), values }, [
          snapshot.emptyFile,
          ...read.map(({ absolutePath }) => absolutePath),
        ]);
  const found = rows.map((row) => ({
    date: String(row['date']),
    kind: String(row['kind']),
    events: Number(row['events']),
  }));
  return [...told.filter((count) => count !== undefined), ...found];
}

/** Adds up what several files and tables have of the same day and kind; sorted by day, then by kind. */
export function sumDays(counts: readonly DayCount[]): DayCount[] {
  const sums = new Map<string, DayCount>();
  for (const count of counts) {
    const key = `${count.date} ${count.kind}`;
    sums.set(key, { ...count, events: count.events + (sums.get(key)?.events ?? 0) });
  }
  return [...sums].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, count]) => count);
}
