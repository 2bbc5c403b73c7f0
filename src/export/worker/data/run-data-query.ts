/**
 * Queries about the data of an account's apps: events per day and kind, activity, fill rates, parameters of custom
 * events.
 *
 * In: a plan (jobs/worker-messages.ts), the newest version of the tables. Out: one outcome; nothing is written.
 * Invariant: only rows of the plan's apps are counted, exactly; what was not counted is stated.
 * Crash: nothing is left.
 */
import { datasets, events, type Dataset } from '../../../datasets/dataset.ts';
import { enrichedFields, eventFields } from '../../../datasets/event-fields.ts';
import type { Column } from '../../../datasets/field-schema.ts';
import { readCurrentCatalogue } from '../../../lake/catalogue/current-catalogue.ts';
import { pruneFiles, toAddFilter, type FileFilter } from '../../../lake/files/prune.ts';
import { listTables, tablePaths } from '../../../lake/lake.ts';
import { readSnapshot, withEmptyFile, type DataFile, type Snapshot } from '../../../lake/log/snapshot.ts';
import { sqlName } from '../../../lake/sql/literals.ts';
import { describeError, isAppError, isDamage } from '../../../runtime/errors.ts';
import { foldersOfFiles, localFiles } from '../../../runtime/store/open-store.ts';
import type { DataOutcome, DataPlan, DataQuery, DateSpan, DayCount, Fields } from '../../jobs/worker-messages.ts';
import { filesSql } from '../export-query.ts';
import { openReadEngine, type QueryEngine } from '../query-engine.ts';
import { countActivity, onlyValue } from './count-activity.ts';

/** The files of a table that may have rows of a query. */
export interface ChosenFiles {
  readonly table: string;
  readonly snapshot: Snapshot;
  readonly files: readonly DataFile[];
}

/** Chooses files of the newest version by the log's statistics. Errors: those of `readSnapshot`. */
async function chooseFiles(
  { lakeDir, apps }: DataPlan,
  dataset: Dataset,
  { from, to }: DateSpan,
  kinds?: FileFilter['kinds'],
): Promise<ChosenFiles> {
  const eventTime = { fromMs: Date.parse(`${from}T00:00:00Z`), toMs: Date.parse(`${to}T23:59:59.999Z`) };
  const filter = { idApps: apps.map(({ idApp }) => idApp), eventTime, ...(kinds === undefined ? {} : { kinds }) };
  const snapshot = await readSnapshot(tablePaths(lakeDir, dataset).table, toAddFilter(filter));
  return { table: dataset.table, snapshot, files: apps.length === 0 ? [] : pruneFiles(snapshot.files, filter) };
}

/** Counts a file by the log if all of its rows are of one app, kind and day. */
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
 * Counts the events of a table by day and kind: by the log if possible, otherwise by three columns of the row groups
 * that may have rows of the apps. Error: `sql` if a file cannot be read.
 */
export async function countDays(
  engine: QueryEngine,
  { table, snapshot, files }: ChosenFiles,
  { apps }: DataPlan,
  { from, to }: DateSpan,
): Promise<DayCount[]> {
  const ids = new Set(apps.map(({ idApp }) => idApp));
  const counts = new Map<DataFile, DayCount | undefined>(files.map((file) => [file, countByLog(file, table, ids)]));
  const logCounts = [...counts.values()].filter(
    (count) => count !== undefined && count.date >= from && count.date <= to,
  );
  const read = files.filter((file) => counts.get(file) === undefined);
  const kind = table === events.table ? 'kind' : '$table';
  const values = { from, to, ...(table === events.table ? {} : { table }) };
  const rows =
    read.length === 0
      ? []
      : await localFiles.use(withEmptyFile(snapshot, read), (paths) =>
          engine.rows({ sql: countSql(kind), values }, paths),
        );
  const found = rows.map((row) => ({
    date: String(row['date']),
    kind: String(row['kind']),
    events: Number(row['events']),
  }));
  return [...logCounts.filter((count) => count !== undefined), ...found];
}

export function sumDays(counts: readonly DayCount[]): DayCount[] {
  const sums = new Map<string, DayCount>();
  for (const count of counts) {
    const key = `${count.date} ${count.kind}`;
    sums.set(key, { ...count, events: count.events + (sums.get(key)?.events ?? 0) });
  }
  return [...sums].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, count]) => count);
}

/** Rows of the row groups that may have rows of the apps, in the newest files; approximate. */
const maxRows = 20_000_000;
/** Newest files whose footers are read, at most. */
const maxFiles = 500;

/** Lists the columns of a kind that hold a field: of events, those of its schema and of the enrichment. */
function fieldColumns({ table, columns }: Dataset, kind: string): Column[] {
  if (table !== events.table) return columns.filter(({ field }) => field !== undefined);
  const own = new Set([
    ...eventFields.filter(({ kinds }) => kinds.includes(kind)).map(({ schema }) => schema['x-column']),
    ...enrichedFields.map(({ schema }) => schema['x-column']),
  ]);
  return columns.filter(({ name }) => own.has(name));
}

const groupsSql = `SELECT file_name AS file, sum(row_group_num_rows) AS rows FROM parquet_metadata($files)
  WHERE path_in_schema = 'id_app' AND NOT (
    coalesce(TRY_CAST(stats_max_value AS BIGINT) < $least, false) OR coalesce(TRY_CAST(stats_min_value AS BIGINT) > $most, false))
  GROUP BY file_name`;

function timeOf({ maxValues }: DataFile): string {
  const { event_time: time } = maxValues;
  return typeof time === 'string' ? time : '';
}

/** The newest files with rows of the apps, up to the bounds. */
interface Newest {
  readonly chosen: readonly DataFile[];
  readonly isComplete: boolean;
}

/** Chooses the newest files, at least one; rows of other accounts do not count. */
async function chooseNewest(engine: QueryEngine, files: readonly DataFile[], { apps }: DataPlan): Promise<Newest> {
  const newest = files.toSorted((a, b) => (timeOf(a) < timeOf(b) ? 1 : -1)).slice(0, maxFiles);
  const ids = apps.map(({ idApp }) => idApp);
  const values = { least: BigInt(Math.min(...ids)), most: BigInt(Math.max(...ids)) };
  const rows = await localFiles.use(newest, async (paths) => {
    const found = await engine.rows({ sql: groupsSql, values }, paths);
    return new Map(found.map((row) => [newest[paths.indexOf(String(row['file']))], Number(row['rows'])]));
  });
  const own = newest.filter((file) => (rows.get(file) ?? 0) > 0);
  let left = maxRows;
  // Files after an excluded one are excluded, so that the counted dates have no gap.
  const end = own.findIndex((file, index) => {
    left -= rows.get(file) ?? 0;
    return left < 0 && index > 0;
  });
  const chosen = end === -1 ? own : own.slice(0, end);
  return { chosen, isComplete: chosen.length === own.length && newest.length === files.length };
}

/** Counts how many of the newest events of a kind have each field. Error: `sql` if a file cannot be read. */
export async function countFields(
  engine: QueryEngine,
  { snapshot, files }: ChosenFiles,
  plan: DataPlan,
  { dataset, kind, dates }: { readonly dataset: Dataset; readonly kind: string; readonly dates: DateSpan },
): Promise<Omit<Fields, 'version'>> {
  const columns = fieldColumns(dataset, kind);
  const describe = (filled: (index: number) => number) =>
    columns.map(({ name, type, description, field = name, default: value }, index) => ({
      name: field,
      column: name,
      type,
      description,
      nonNullEvents: filled(index),
      ...(value === undefined ? {} : { default: value }),
    }));
  const nothing = { kind, sampledEvents: 0, isComplete: true, fields: describe(() => 0) };
  if (files.length === 0) return nothing;
  const { chosen, isComplete } = await chooseNewest(engine, files, plan);
  if (chosen.length === 0) return { ...nothing, isComplete };
  const isEvent = dataset === events;
  const counts = columns
    .map(({ name, default: value }) =>
      value === undefined ? `events.${sqlName(name)}` : `nullif(events.${sqlName(name)}, ${value})`,
    )
    .map((value, index) => `count(${value}) AS f${index}`)
    .join(', ');
  const statement = {
    sql: `SELECT count(*) AS looked, strftime(min(date), '%Y-%m-%d') AS date_from, strftime(max(date), '%Y-%m-%d') AS date_to, ${counts}
      FROM ${filesSql} AS events WHERE id_app IN (SELECT id_app FROM apps)${isEvent ? ' AND kind = $kind' : ''}
      AND date BETWEEN CAST($from AS DATE) AND CAST($to AS DATE)`,
    values: { ...dates, ...(isEvent ? { kind } : {}) },
  };
  const [row = {}] = await localFiles.use(withEmptyFile(snapshot, chosen), (paths) => engine.rows(statement, paths));
  const sampledEvents = Number(row['looked']);
  return {
    kind,
    sampledEvents,
    ...(sampledEvents === 0 ? {} : { dateFrom: String(row['date_from']), dateTo: String(row['date_to']) }),
    isComplete,
    fields: describe((index) => Number(row[`f${index}`])),
  };
}

/** Attempts: files that are replaced meanwhile may be removed soon. */
const attempts = 3;

async function withEngine<T>(plan: DataPlan, work: (engine: QueryEngine) => Promise<T>): Promise<T> {
  const engine = await openReadEngine(plan, foldersOfFiles(plan.lakeDir), false);
  try {
    return await work(engine);
  } finally {
    engine.close();
  }
}

async function findVolume(
  plan: DataPlan,
  { dates }: Extract<DataQuery, { ask: 'volume' }>,
  engine: QueryEngine,
): Promise<DataOutcome> {
  const counts = [];
  let version = -1;
  for (const dataset of await listTables(plan.lakeDir)) {
    const chosenFiles = await chooseFiles(plan, dataset, dates);
    if (dataset === events) version = chosenFiles.snapshot.version;
    counts.push(...(await countDays(engine, chosenFiles, plan, dates)));
  }
  return { kind: 'volume', volume: { version, days: sumDays(counts) } };
}

function datasetOf(kind: string): Dataset {
  return events.kinds.includes(kind) ? events : (datasets.get(kind) ?? events);
}

async function findFields(
  plan: DataPlan,
  { kind, dates }: Extract<DataQuery, { ask: 'fields' }>,
  engine: QueryEngine,
): Promise<DataOutcome> {
  const dataset = datasetOf(kind);
  const chosenFiles = await chooseFiles(plan, dataset, dates, dataset === events ? [kind] : undefined);
  const found = await countFields(engine, chosenFiles, plan, { dataset, kind, dates });
  return { kind: 'fields', fields: { version: chosenFiles.snapshot.version, ...found } };
}

async function findCatalogue(
  { apps, lakeDir }: DataPlan,
  { dates, customEventName, days: maxDays }: Extract<DataQuery, { ask: 'catalogue' }>,
): Promise<DataOutcome> {
  const idApp = apps[0]?.idApp ?? 0;
  const { customEvents, ...catalogue } = await readCurrentCatalogue(lakeDir, { idApp, dates, customEventName });
  const shortened = customEvents.map(({ days, ...event }) => ({ ...event, days: days.slice(0, maxDays) }));
  return { kind: 'catalogue', catalogue: { ...catalogue, customEvents: shortened } };
}

export async function runDataQuery(plan: DataPlan): Promise<DataOutcome> {
  const { question } = plan;
  for (let attempt = 1; ; attempt += 1) {
    try {
      if (question.ask === 'catalogue') return await findCatalogue(plan, question);
      return await withEngine(plan, async (engine) => {
        if (question.ask === 'activity') return { kind: 'activity', activity: await countActivity(plan, engine) };
        return question.ask === 'volume' ? findVolume(plan, question, engine) : findFields(plan, question, engine);
      });
    } catch (error) {
      if (attempt < attempts && !isAppError(error, 'memory')) continue;
      return { kind: 'failed', reason: isDamage(error) ? 'damage' : 'error', error: describeError(error) };
    }
  }
}
