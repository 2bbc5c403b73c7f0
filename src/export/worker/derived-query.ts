import type { Dataset } from '../../datasets/dataset.ts';
import type { DerivedExport, Subject } from '../../datasets/pipeline-file.ts';
import { subjectKeySql, subjectSql } from '../../datasets/subject.ts';
import { earlierKeysSql } from '../../lake/first-seen/part-rows.ts';
import type { ExportApp, ExportSpec, SecondsSpan } from '../jobs/export-spec.ts';
import type { PlanTitles } from '../jobs/worker-messages.ts';
import { dayConditions, fieldConditions, spanConditions } from './conditions.ts';
import {
  filesSql,
  orderByTime,
  type BoundValue,
  type ExportQuery,
  type Preparation,
  type ExportStatement,
} from './export-query.ts';
import { countByDate, selectSql, selectTitled, zoneDate, type Cells } from './selector-sql.ts';

/**
 * Rows derived from imported events (docs/api.md): the first event of each user or device, of each of its days, or of
 * each of its sessions. The narrow columns are read first, and the file and position of each such row are stored; then
 * the rows of the request's time are read and joined with them.
 */

/** A longer pause ends a session, s. */
const sessionPauseSeconds = 1800;
/** Longest calendar day of any zone, s, date line included. */
const maxDaySeconds = 2 * 86_400;
/** Steps of reading sessions beyond the request's end, s: usually a day is enough; the last is the whole lake. */
const sessionReaches = [86_400, 8 * 86_400, 64 * 86_400, Infinity];

/** Lists how far an event reads beyond its end, s; each step follows if the previous one was not enough. */
function listReaches({ derive }: DerivedExport): readonly number[] {
  if (derive === 'sessions') return sessionReaches;
  return [derive === 'days' ? maxDaySeconds : 0];
}

/** Returns the span of event times that determines the derived rows of a span. */
export function readSpan({ derive }: DerivedExport, span: SecondsSpan, reachSeconds: number): SecondsSpan {
  const { fromSeconds, beforeSeconds } = span;
  const lead = { first: Infinity, days: maxDaySeconds, sessions: sessionPauseSeconds }[derive];
  const from = (fromSeconds ?? -Infinity) - lead;
  const before = (beforeSeconds ?? Infinity) + reachSeconds;
  return {
    ...(from === -Infinity ? {} : { fromSeconds: Math.max(0, from) }),
    ...(before === Infinity ? {} : { beforeSeconds: before }),
  };
}

/** A row's position and order among those of its subject; the least is the first. */
const placeSql =
  'struct_pack(event_time := event_time, event_id := event_id, file_index := file_index, file_row_number := file_row_number)';
/** Events of one second are peers: all are in one session. */
const historySql = 'PARTITION BY id_app, subject ORDER BY event_time';
const pauseMicros = sessionPauseSeconds * 1_000_000;
const noFiguresSql = 'NULL::BIGINT AS count_event, NULL::BIGINT AS duration, NULL::TIMESTAMPTZ AS ends_at';

/** `earlier` with the rows of the source, and the first-seen parts of all other files. */
const earlierOfParts = (of: Subject, idApps: readonly number[]): string => `
  keyed AS MATERIALIZED (SELECT id_app, subject, ${subjectKeySql('subject')} AS key FROM seen),
  known AS MATERIALIZED (SELECT DISTINCT id_app, key FROM (${earlierKeysSql(of, idApps)}) SEMI JOIN keyed USING (id_app, key)),
  earlier AS (
    SELECT id_app, subject FROM source SEMI JOIN seen USING (id_app, subject) WHERE is_before
    UNION SELECT id_app, subject FROM keyed SEMI JOIN known USING (id_app, key)),`;
const earlierOfSource = `
  earlier AS (SELECT DISTINCT id_app, subject FROM source SEMI JOIN seen USING (id_app, subject) WHERE is_before),`;

/** SQL of the relation `found` over `source` (events with a subject): the `place` and figures of each derived row. */
const foundSql: Readonly<Record<DerivedExport['derive'], (earlier: string) => string>> = {
  // The subjects of the span, usually a day; then those among them that have an earlier event.
  first: (earlier) => `
  seen AS MATERIALIZED (
    SELECT id_app, subject, min(${placeSql}) AS place FROM source WHERE NOT is_before GROUP BY id_app, subject),${earlier}
  found AS (SELECT id_app, subject, place, ${noFiguresSql} FROM seen ANTI JOIN earlier USING (id_app, subject))`,
  days: () => `
  found AS (
    SELECT id_app, subject, min(${placeSql}) AS place, count(*) AS count_event, NULL::BIGINT AS duration,
      NULL::TIMESTAMPTZ AS ends_at
    FROM source AS events GROUP BY id_app, subject, ${zoneDate('event_time')})`,
  sessions: () => `
  marked AS (
    SELECT *, epoch_us(event_time) - lag(epoch_us(event_time)) OVER (${historySql}) <= ${pauseMicros} AS goes_on
    FROM source),
  numbered AS (
    SELECT *, count(*) FILTER (goes_on IS NOT true) OVER (${historySql}) AS session FROM marked),
  found AS (
    SELECT id_app, subject, min(${placeSql}) AS place, count(*) AS count_event,
      (epoch_us(max(event_time)) - epoch_us(min(event_time))) // 1000000 AS duration, max(event_time) AS ends_at
    FROM numbered GROUP BY id_app, subject, session)`,
};

const momentSql = (name: string): string => `make_timestamptz(CAST($${name} AS BIGINT))`;
const toMicros = (seconds: number): bigint => BigInt(seconds) * 1_000_000n;

interface DerivedRows {
  readonly dataset: Dataset;
  readonly event: DerivedExport;
  /** Paths of the first-seen parts that have the files that are not read; none by default. */
  readonly parts?: readonly string[] | undefined;
}

/** Builds the rows of the table `derived`, whose own time is in the request's span. */
function derivedRows(
  request: ExportSpec,
  { dataset, event, parts = [] }: DerivedRows,
  apps: readonly ExportApp[],
  reachSeconds: number,
  join: string,
): ExportStatement {
  const { eventTime, timezone } = request;
  const { fromSeconds, beforeSeconds } = eventTime;
  const values: Record<string, BoundValue> = event.derive === 'days' ? { timezone } : {};
  const subject = subjectSql(event.of);
  const idApps = apps.map((app) => app.idApp);
  const conditions = [
    `events.id_app IN (${idApps.join(', ')})`,
    `${subject} IS NOT NULL`,
    ...spanConditions('event_time', 'read', readSpan(event, eventTime, reachSeconds), values),
    ...(fieldConditions(dataset, request, values) ?? ['false']),
  ];
  const isBefore = fromSeconds === undefined ? 'false' : `events.event_time < ${momentSql('spanFrom')}`;
  const isInSpan = ['true'];
  if (fromSeconds !== undefined) {
    values['spanFrom'] = toMicros(fromSeconds);
    isInSpan.push(`place.event_time >= ${momentSql('spanFrom')}`);
  }
  if (beforeSeconds !== undefined) {
    values['spanBefore'] = toMicros(beforeSeconds);
    isInSpan.push(`place.event_time < ${momentSql('spanBefore')}`);
  }
  if (parts.length > 0) values['parts'] = parts;
  const earlier = parts.length > 0 ? earlierOfParts(event.of, idApps) : earlierOfSource;
  const columns = 'events.id_app, events.event_time, events.event_id, events.file_index, events.file_row_number';
  return {
    sql: `WITH source AS NOT MATERIALIZED (
    SELECT ${columns}, ${subject} AS subject, ${isBefore} AS is_before
    FROM ${filesSql} AS events ${join} WHERE ${conditions.join(' AND ')}),${foundSql[event.derive](earlier)}
SELECT id_app, subject, place.file_index AS file_index, place.file_row_number AS file_row_number, count_event, duration, ends_at
FROM found WHERE ${isInSpan.join(' AND ')}`,
    values,
  };
}

function createPreparation(request: ExportSpec, derived: DerivedRows, apps: readonly ExportApp[]): Preparation {
  const { event } = derived;
  const reachSeconds = listReaches(event);
  const { beforeSeconds } = request.eventTime;
  /** Sessions that end earlier are complete after a step. */
  const settledAt = (step: number): bigint | undefined => {
    const reach = reachSeconds[step] ?? Infinity;
    return event.derive !== 'sessions' || beforeSeconds === undefined || reach === Infinity
      ? undefined
      : toMicros(beforeSeconds + reach - sessionPauseSeconds);
  };
  const rowsOf = (step: number, join: string): ExportStatement =>
    derivedRows(request, derived, apps, reachSeconds[step] ?? 0, join);
  return {
    reachSeconds,
    statements(step) {
      if (step === 0) {
        const { sql, values } = rowsOf(step, '');
        return [{ sql: `CREATE TEMP TABLE derived AS ${sql}`, values }];
      }
      const settled = settledAt(step - 1) ?? 0n;
      const unfinished = `SELECT DISTINCT id_app, subject FROM derived WHERE ends_at >= ${momentSql('settled')}`;
      const ofUnfinished = `SEMI JOIN unfinished ON events.id_app = unfinished.id_app AND ${subjectSql(event.of)} = unfinished.subject`;
      const { sql, values } = rowsOf(step, ofUnfinished);
      return [
        { sql: `CREATE OR REPLACE TEMP TABLE unfinished AS ${unfinished}`, values: { settled } },
        {
          sql: 'DELETE FROM derived USING unfinished WHERE derived.id_app = unfinished.id_app AND derived.subject = unfinished.subject',
          values: {},
        },
        { sql: `INSERT INTO derived ${sql}`, values },
      ];
    },
    unfinished(step) {
      const settled = settledAt(step);
      return settled === undefined
        ? undefined
        : {
            sql: `SELECT count(*) AS rows FROM derived WHERE ends_at >= ${momentSql('settled')}`,
            values: { settled },
          };
    },
  };
}

interface DerivedOptions {
  readonly cells: Cells;
  /** Its file is at a path that the engine may read. */
  readonly titles: PlanTitles | undefined;
}

/**
 * Builds the query of derived rows, in the order of time. Filters on apps and fields select events before the
 * derivation; those on time select rows after it.
 */
export function buildDerivedQuery(
  request: ExportSpec,
  { dataset, event, parts }: DerivedRows,
  apps: readonly ExportApp[],
  { cells, titles }: DerivedOptions,
): ExportQuery {
  const values: Record<string, BoundValue> = {};
  const ofRow = [
    ...spanConditions('available_at', 'available', request.availableAt, values),
    ...dayConditions(request, values),
  ];
  const conditions = [...spanConditions('event_time', 'event', request.eventTime, values), ...ofRow];
  const from = (added: readonly string[]): string => `FROM ${filesSql} AS events
JOIN derived ON events.file_index = derived.file_index AND events.file_row_number = derived.file_row_number
JOIN apps ON events.id_app = apps.id_app ${added.join(' ')}${conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`}`;
  const selectValues: Record<string, BoundValue> = { ...values };
  const plan = { request, values: selectValues, dataset, event, apps, inline: false, cells };
  const { columns, titleJoins } = selectTitled(plan, titles);
  return {
    select: { sql: selectSql(columns, `${from(titleJoins)} ${orderByTime}`), values: selectValues },
    // The table has only rows of the time.
    count:
      ofRow.length === 0
        ? { sql: 'SELECT file_index AS file, count(*) AS rows FROM derived GROUP BY ALL', values: {} }
        : { sql: `SELECT events.file_index AS file, count(*) AS rows ${from([])} GROUP BY ALL`, values },
    days: countByDate(from([]), request.timezone, values),
    inline: false,
    preparation: createPreparation(request, { dataset, event, parts }, apps),
  };
}
