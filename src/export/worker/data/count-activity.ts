import { events } from '../../../datasets/dataset.ts';
import { pruneFiles, toAddFilter } from '../../../lake/files/prune.ts';
import { listTables, tablePaths } from '../../../lake/lake.ts';
import { readSnapshot, withEmptyFile, type DataFile, type Snapshot } from '../../../lake/log/snapshot.ts';
import { localFiles } from '../../../runtime/store/open-store.ts';
import { activityDays, type Activity, type AppActivity, type DataPlan } from '../../jobs/worker-messages.ts';
import { filesSql } from '../export-query.ts';
import type { QueryEngine } from '../query-engine.ts';

/**
 * Counts all events of apps by kind and day: by the log if a file has one app, day and kind, otherwise by three columns
 * of the newest files, as far as the time allows.
 */

/** Time after which no further files are read, ms; a query has 20 s. */
const readMs = 8000;
/** Rows of the files that are read at once. */
const rowsAtOnce = 20_000_000;
const dayMs = 86_400_000;

interface KindCounts {
  events: number;
  firstDate: string;
  lastDate: string;
  /** The newest days, at least those of the sparkline. */
  readonly days: Map<string, number>;
}

type Counts = Map<number, Map<string, KindCounts>>;

interface TableFile {
  readonly file: DataFile;
  readonly table: string;
  readonly snapshot: Snapshot;
}

/** Returns the only value of a column in a file by the log; undefined if there are several or it is unknown. */
export function onlyValue({ minValues, maxValues }: DataFile, column: string): unknown {
  return minValues[column] === maxValues[column] ? minValues[column] : undefined;
}

const lastDateOf = ({ maxValues: { date } }: DataFile): string => (typeof date === 'string' ? date : '9999-12-31');

type Day = readonly [date: string, events: number];

/** Adds events of a kind; `days` are its newest ones, ascending. */
function add(
  counts: Counts,
  idApp: number,
  kind: string,
  { days, ...added }: Omit<KindCounts, 'days'> & { readonly days: readonly Day[] },
): void {
  const ofApp = counts.get(idApp) ?? new Map<string, KindCounts>();
  counts.set(idApp, ofApp);
  const known = ofApp.get(kind) ?? { ...added, events: 0, days: new Map<string, number>() };
  ofApp.set(kind, known);
  known.events += added.events;
  if (added.firstDate < known.firstDate) known.firstDate = added.firstDate;
  if (added.lastDate > known.lastDate) known.lastDate = added.lastDate;
  for (const [date, events_] of days) known.days.set(date, (known.days.get(date) ?? 0) + events_);
}

/** Counts a file by the log. Returns whether it could. */
function countByLog(counts: Counts, { file, table }: TableFile, apps: ReadonlySet<number>): boolean {
  const [idApp, date] = [onlyValue(file, 'id_app'), onlyValue(file, 'date')];
  const kind = table === events.table ? onlyValue(file, 'kind') : table;
  const { numRecords } = file;
  if (typeof idApp !== 'number' || typeof date !== 'string' || typeof kind !== 'string' || numRecords === undefined)
    return false;
  if (apps.has(idApp))
    add(counts, idApp, kind, { events: numRecords, firstDate: date, lastDate: date, days: [[date, numRecords]] });
  return true;
}

const countSql = (kind: string): string => `
  WITH counted AS (
    SELECT id_app, ${kind} AS kind, strftime(date, '%Y-%m-%d') AS day, count(*) AS n
    FROM ${filesSql} WHERE id_app IN (SELECT id_app FROM apps) GROUP BY ALL)
  SELECT id_app, kind, sum(n)::BIGINT AS events, min(day) AS first_date, max(day) AS last_date,
    to_json(list([day, n::VARCHAR] ORDER BY day DESC)[1:${activityDays}])::VARCHAR AS days
  FROM counted GROUP BY id_app, kind`;

async function countByRows(counts: Counts, engine: QueryEngine, files: readonly TableFile[]): Promise<void> {
  for (const snapshot of new Set(files.map((file) => file.snapshot))) {
    const ofTable = files.filter((file) => file.snapshot === snapshot);
    const table = ofTable[0]?.table ?? '';
    const isEvents = table === events.table;
    const statement = { sql: countSql(isEvents ? 'kind' : '$table'), values: isEvents ? {} : { table } };
    const all = withEmptyFile(
      snapshot,
      ofTable.map(({ file }) => file),
    );
    for (const row of await localFiles.use(all, (paths) => engine.rows(statement, paths))) {
      const days = JSON.parse(String(row['days'])) as (readonly [string, string])[];
      add(counts, Number(row['id_app']), String(row['kind']), {
        events: Number(row['events']),
        firstDate: String(row['first_date']),
        lastDate: String(row['last_date']),
        days: days.map(([date, n]) => [date, Number(n)] as const),
      });
    }
  }
}

/** Divides files into groups of about `rowsAtOnce` rows, each of whole days, the newest first. */
function groupByDays(files: readonly TableFile[]): TableFile[][] {
  const groups: TableFile[][] = [];
  let rows = Infinity;
  let date = '';
  for (const each of files.toSorted((a, b) => (lastDateOf(a.file) < lastDateOf(b.file) ? 1 : -1))) {
    if (rows >= rowsAtOnce && lastDateOf(each.file) !== date) {
      groups.push([]);
      rows = 0;
    }
    groups.at(-1)?.push(each);
    rows += each.file.numRecords ?? 0;
    date = lastDateOf(each.file);
  }
  return groups;
}

const dateOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

function describeApp(idApp: number, ofApp: ReadonlyMap<string, KindCounts>): AppActivity {
  const all = [...ofApp.values()];
  const lastDate = all.reduce((last, kind) => (kind.lastDate > last ? kind.lastDate : last), '');
  const firstDate = all.reduce((first, kind) => (kind.firstDate < first ? kind.firstDate : first), lastDate);
  const sumOf = (date: string): number => all.reduce((sum, { days }) => sum + (days.get(date) ?? 0), 0);
  const days = Array.from({ length: activityDays }, (_, index) =>
    sumOf(dateOf(Date.parse(lastDate) - (activityDays - 1 - index) * dayMs)),
  );
  const kinds = [...ofApp].map(([kind, { events: n, lastDate: last }]) => ({ kind, events: n, lastDate: last }));
  return {
    idApp,
    events: kinds.reduce((sum, kind) => sum + kind.events, 0),
    firstDate,
    lastDate,
    days,
    kinds: kinds.toSorted((a, b) => b.events - a.events),
  };
}

/** Counts the events of apps. Error: `sql` if a file cannot be read. */
export async function countActivity(plan: DataPlan, engine: QueryEngine, maxMs = readMs): Promise<Activity> {
  const untilMs = performance.now() + maxMs;
  const idApps = plan.apps.map(({ idApp }) => idApp);
  const ids = new Set(idApps);
  const counts: Counts = new Map();
  const unread: TableFile[] = [];
  for (const { table } of idApps.length === 0 ? [] : await listTables(plan.lakeDir)) {
    const snapshot = await readSnapshot(tablePaths(plan.lakeDir, { table }).table, toAddFilter({ idApps }));
    const files = pruneFiles(snapshot.files, { idApps }).map((file) => ({ file, table, snapshot }));
    unread.push(...files.filter((file) => !countByLog(counts, file, ids)));
  }
  const groups = groupByDays(unread);
  let read = 0;
  while (read < groups.length && performance.now() < untilMs) {
    await countByRows(counts, engine, groups[read] ?? []);
    read += 1;
  }
  const [leftOut] = groups[read] ?? [];
  return {
    apps: [...counts].map(([idApp, ofApp]) => describeApp(idApp, ofApp)).toSorted((a, b) => b.events - a.events),
    isComplete: leftOut === undefined,
    ...(leftOut === undefined
      ? {}
      : { countedFrom: dateOf(Math.min(Date.parse(lastDateOf(leftOut.file)), Date.now()) + dayMs) }),
  };
}
