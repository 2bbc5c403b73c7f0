import { createHash } from 'node:crypto';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlList, sqlText } from '../sql/literals.ts';
import type { Notice } from './catalogue-files.ts';
import { typeColumn, typeFamilies } from './parameter-types.ts';

/** Compares the three dates up to `day`, the newest sealed one, with four weeks before. A notice repeats after five. */
export const noticeRules = {
  recentDays: 3,
  beforeDays: 28,
  repeatDays: 35,
  /** A notice survives shorter interruptions. */
  overDays: 7,
  lookedBefore: 100,
  lookedRecently: 50,
  newSeen: 10,
  lostShare: 0.2,
  changedFrom: 0.9,
  changedTo: 0.5,
  /** Volume: minimum median of the weekday in four weeks, and the share of it that is too low. */
  medianEvents: 100,
  fallenTo: 0.5,
  /** Rows of an app, largest events first, and its notices within `repeatDays` and of a day. */
  mostRows: 1000,
  mostOfApp: 100,
  mostOfDay: 50,
} as const;

const r = noticeRules;
/** Compatible types: an integer is a decimal. */
const [numbers = [], times = []] = typeFamilies;
const groups = {
  number: numbers.map(typeColumn).join(' + '),
  boolean: typeColumn('boolean'),
  time: times.map(typeColumn).join(' + '),
  text: typeColumn('text'),
} as const;

const groupSums = Object.entries(groups).map(
  ([name, counts]) =>
    `coalesce(sum(${counts}) FILTER (recent), 0) AS recent_${name}, coalesce(sum(${counts}) FILTER (NOT recent), 0) AS before_${name}`,
);
const totalOf = (when: string): string =>
  Object.keys(groups)
    .map((name) => `${when}_${name}`)
    .join(' + ');
const changedSql = Object.keys(groups)
  .map(
    (name) =>
      `(before_${name} >= ${r.changedFrom} * (${totalOf('before')}) AND recent_${name} < ${r.changedTo} * (${totalOf('recent')}))`,
  )
  .join(' OR ');

/** New, lost and changed parameters. `more` excludes incomplete lists. */
const parametersSql = (files: readonly string[], day: string): string => `
  WITH parts AS (
    SELECT *, date > DATE ${sqlText(day)} - ${r.recentDays} AS recent FROM read_parquet(${sqlList(files)})
    WHERE event IS NOT NULL AND date <= DATE ${sqlText(day)} AND date > DATE ${sqlText(day)} - ${r.recentDays + r.beforeDays}),
  looked AS (
    SELECT id_app, event, coalesce(sum(seen) FILTER (recent), 0) AS recent, coalesce(sum(seen) FILTER (NOT recent), 0) AS before, max(more) AS more
    FROM parts WHERE parameter IS NULL GROUP BY ALL),
  firsts AS (SELECT id_app, event, parameter, min(date) AS first FROM read_parquet(${sqlList(files)}) WHERE parameter IS NOT NULL GROUP BY ALL),
  counted AS (
    SELECT id_app, event, parameter, coalesce(sum(seen) FILTER (recent), 0) AS recent_seen, coalesce(sum(seen) FILTER (NOT recent), 0) AS before_seen,
      ${groupSums.join(', ')}
    FROM parts WHERE parameter IS NOT NULL GROUP BY id_app, event, parameter)
  SELECT CASE
      WHEN before_seen = 0 AND recent_seen >= ${r.newSeen} AND first > DATE ${sqlText(day)} - ${r.recentDays} AND more = 0 THEN 'parameter_new'
      WHEN recent_seen = 0 AND before_seen >= ${r.lostShare} * before AND more = 0 THEN 'parameter_lost'
      WHEN (${totalOf('before')}) >= ${r.lookedBefore} AND (${totalOf('recent')}) >= ${r.lookedRecently} AND (${changedSql}) THEN 'parameter_changed'
    END AS kind, id_app, event, parameter, recent_seen, before_seen, recent, before, ${Object.keys(groups)
      .flatMap((name) => [`before_${name}`, `recent_${name}`])
      .join(', ')}
  FROM counted JOIN looked USING (id_app, event) JOIN firsts USING (id_app, event, parameter)
  WHERE before >= ${r.lookedBefore} AND recent >= ${r.lookedRecently} AND kind IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY id_app ORDER BY before DESC, event, parameter) <= ${r.mostRows}
  ORDER BY before DESC, id_app, event, parameter`;

/** Events that may exist in addition to those in the parts. */
const unnamedSql = 'CASE WHEN event IS NULL THEN 0 ELSE coalesce(unnamed.most, 0) END';

/** Events below half of their weekday's median, with a smaller share of it than their app, whose row has no event. */
const fallenSql = (files: readonly string[], day: string): string => `
  WITH parts AS (
    SELECT id_app, event, (DATE ${sqlText(day)} - date) // 7 AS week, events FROM read_parquet(${sqlList(files)})
    WHERE id_app IS NOT NULL AND parameter IS NULL AND (DATE ${sqlText(day)} - date) IN (0, 7, 14, 21, 28)),
  named AS (SELECT id_app, event, week, events FROM parts WHERE event IS NOT NULL UNION ALL SELECT id_app, NULL, week, events FROM parts),
  weeks AS (
    SELECT id_app, event, ${[0, 1, 2, 3, 4].map((week) => `coalesce(sum(events) FILTER (week = ${week}), 0)::DOUBLE AS w${week}`).join(', ')}
    FROM named GROUP BY id_app, event),
  volumes AS (SELECT id_app, event, w0 AS events, list_median([w1, w2, w3, w4]) AS usual FROM weeks),
  rests AS (
    SELECT key, id_app, coalesce(sum(events) FILTER (event IS NULL AND date = DATE ${sqlText(day)}), 0) AS rest, coalesce(min(events) FILTER (event IS NOT NULL), 0) AS fewest
    FROM read_parquet(${sqlList(files)}) WHERE id_app IS NOT NULL AND parameter IS NULL GROUP BY key, id_app),
  unnamed AS (SELECT id_app, sum(least(rest, fewest))::DOUBLE AS most FROM rests WHERE rest > 0 GROUP BY id_app),
  apps AS (SELECT id_app, events AS app_events, usual AS app_usual FROM volumes WHERE event IS NULL)
  SELECT id_app, event, events::BIGINT AS events, usual::BIGINT AS usual FROM volumes JOIN apps USING (id_app) LEFT JOIN unnamed USING (id_app)
  WHERE usual >= ${r.medianEvents} AND events + ${unnamedSql} < ${r.fallenTo} * usual
    AND (event IS NULL OR (events + ${unnamedSql}) * app_usual < app_events * usual)
  QUALIFY row_number() OVER (PARTITION BY id_app ORDER BY usual DESC, event NULLS FIRST) <= ${r.mostRows}
  ORDER BY usual DESC, id_app, event NULLS FIRST`;

/** A row of either query, as JSON, which keeps all characters of a text. */
interface Row {
  readonly id_app: number;
  readonly event: string | null;
  readonly parameter?: string;
  readonly kind?: 'parameter_new' | 'parameter_lost' | 'parameter_changed';
  readonly [figure: string]: string | number | null | undefined;
}

async function readRows(duckdb: Duckdb, sql: string): Promise<Row[]> {
  return (await duckdb.rows(`SELECT to_json(t)::VARCHAR AS row FROM (${sql}) t`)).map(
    ({ row }) => JSON.parse(String(row)) as Row,
  );
}

function describeType(row: Row, when: 'before' | 'recent'): string {
  const counts = Object.keys(groups).map((name) => ({ name, count: Number(row[`${when}_${name}`]) }));
  const [first] = counts.toSorted((a, b) => b.count - a.count);
  return `${first?.name} in ${first?.count} of ${counts.reduce((sum, { count }) => sum + count, 0)} values`;
}

function describe(row: Row): string {
  const parameter = `parameter ${JSON.stringify(row.parameter)}`;
  switch (row.kind) {
    case 'parameter_new':
      return `${parameter} is new: ${row['recent_seen']} of ${row['recent']} sampled events have it`;
    case 'parameter_lost':
      return `${parameter} is missing: ${row['before_seen']} of ${row['before']} sampled events of the previous four weeks had it, none of ${row['recent']} since`;
    case 'parameter_changed':
      return `${parameter} changed its type: ${describeType(row, 'before')} of the previous four weeks, ${describeType(row, 'recent')} since`;
    case undefined:
      return `${row['events']} events; the same weekday had ${row['usual']} in the previous four weeks`;
    default:
      return row.kind satisfies never;
  }
}

const subjectOf = ({
  kind,
  idApp,
  customEventName,
  parameter,
}: Omit<Notice, 'id' | 'what' | 'foundAt' | 'date'>): string =>
  JSON.stringify([kind, idApp, customEventName, parameter]);

function toNotice(row: Row, day: string, nowMs: number): Notice {
  const notice = {
    kind: row.kind ?? 'volume_fallen',
    idApp: row.id_app,
    ...(row.event === null ? {} : { customEventName: row.event }),
    ...(row.parameter === undefined ? {} : { parameter: row.parameter }),
  } as const;
  const id = `nt_${createHash('sha256').update(subjectOf(notice)).update(day).digest('hex').slice(0, 16)}`;
  return { id, ...notice, date: day, foundAt: new Date(nowMs).toISOString(), what: describe(row) };
}

const dayMs = 86_400_000;
const daysBetween = (from: string, to: string): number => (Date.parse(to) - Date.parse(from)) / dayMs;

function follow(notice: Notice, isSo: boolean, day: string): Notice {
  const { isResolved: _, ...rest } = notice;
  if (day < (notice.lastDate ?? notice.date)) return notice;
  if (!isSo) return { ...rest, isResolved: true };
  return day === notice.date ? rest : { ...rest, lastDate: day };
}

function isTold({ date, lastDate = date, isResolved }: Notice, day: string): boolean {
  const isAnother = isResolved === true && daysBetween(lastDate, day) > r.overDays;
  return daysBetween(date, day) < r.repeatDays && !isAnother;
}

function boundApps(found: readonly Notice[], known: readonly Notice[], day: string): Notice[] {
  const countOf = new Map<number, { young: number; ofDay: number }>();
  function isTaken({ idApp, date }: Notice): boolean {
    const count = countOf.get(idApp) ?? { young: 0, ofDay: 0 };
    countOf.set(idApp, count);
    if (count.young >= r.mostOfApp || count.ofDay >= r.mostOfDay) return false;
    if (daysBetween(date, day) < r.repeatDays) count.young += 1;
    if (date === day) count.ofDay += 1;
    return true;
  }
  for (const notice of known) isTaken(notice);
  return found.filter(isTaken);
}

/** Finds new notices, and updates known ones. `day` must be completely sealed. */
export async function findNotices(
  duckdb: Duckdb,
  files: readonly string[],
  known: readonly Notice[],
  { day, nowMs }: { readonly day: string; readonly nowMs: number },
) {
  if (files.length === 0) return { found: [], known };
  const rows = [
    ...(await readRows(duckdb, fallenSql(files, day))),
    ...(await readRows(duckdb, parametersSql(files, day))),
  ];
  const seen = rows.map((row) => toNotice(row, day, nowMs));
  const isSo = new Set(seen.map(subjectOf));
  // The newest notice of a subject continues.
  const newest = new Map(known.toReversed().map((notice) => [subjectOf(notice), notice]));
  const fresh = seen.filter((notice) => {
    const before = newest.get(subjectOf(notice));
    return before === undefined || !isTold(before, day);
  });
  const isFresh = new Set(fresh.map(subjectOf));
  function followOne(notice: Notice): Notice {
    const subject = subjectOf(notice);
    return newest.get(subject) === notice && !isFresh.has(subject) ? follow(notice, isSo.has(subject), day) : notice;
  }
  return { found: boundApps(fresh, known, day), known: known.map(followOne) };
}
