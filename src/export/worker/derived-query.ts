import type { DerivedExport } from '../../datasets/pipeline-file.ts';
import type { ExportApp, ExportSpec, SecondsSpan } from '../jobs/export-spec.ts';
import { dayConditions, spanConditions, subjectSql } from './conditions.ts';
import { filesSql, type BoundValue, type ExportQuery, type Preparation } from './export-query.ts';
import { selectColumns, zoneDate } from './selector-sql.ts';

/**
 * Rows that are derived from imported events (docs/api.md): the first event of each user or device, the first of each
 * of its days, the first of each of its sessions. First the narrow columns are read, and which rows these are is kept as
 * file and place; then those rows alone are read whole.
 */

/** A pause longer than this ends a session, seconds. */
const sessionPauseSeconds = 1800;
/** No calendar day of any zone is longer than this, seconds, also where a zone crosses the date line. */
const longestDaySeconds = 2 * 86_400;
/**
 * How far beyond the request's end sessions are followed, seconds: a day nearly always holds their ends, and the last
 * reach is the whole lake.
 */
const sessionReaches = [86_400, 8 * 86_400, 64 * 86_400, Infinity];

/** How far beyond the end of its time the event reads, seconds: each when the one before was not enough. */
export function listReaches({ derive }: DerivedExport): readonly number[] {
  if (derive === 'sessions') return sessionReaches;
  return [derive === 'days' ? longestDaySeconds : 0];
}

/** The span of event times that decides which rows of a span there are. */
export function readSpan({ derive }: DerivedExport, span: SecondsSpan, reachSeconds: number): SecondsSpan {
  const { fromSeconds, beforeSeconds } = span;
  const lead = { first: Infinity, days: longestDaySeconds, sessions: sessionPauseSeconds }[derive];
  const from = (fromSeconds ?? -Infinity) - lead;
  const before = (beforeSeconds ?? Infinity) + reachSeconds;
  return {
    ...(from === -Infinity ? {} : { fromSeconds: Math.max(0, from) }),
    ...(before === Infinity ? {} : { beforeSeconds: before }),
  };
}

/** A row's place and what orders it among those of its subject, as one value: the least is the subject's first. */
const placeSql =
  'struct_pack(event_time := event_time, event_id := event_id, file_index := file_index, file_row_number := file_row_number)';
const inSubjectOrder = 'PARTITION BY id_app, subject ORDER BY event_time, event_id, file_index, file_row_number';
const pauseMicros = sessionPauseSeconds * 1_000_000;

/**
 * SQL of the relation `found` over `source` (the events that have a subject, in narrow columns): for each row its
 * `place`, and what it stands for.
 */
const foundSql: Readonly<Record<DerivedExport['derive'], string>> = {
  // The subjects of the span, a day's as a rule; then those among them that an event before the span has.
  first: `
  seen AS MATERIALIZED (
    SELECT id_app, subject, min(${placeSql}) AS place FROM source WHERE NOT is_before GROUP BY id_app, subject),
  earlier AS (SELECT DISTINCT id_app, subject FROM source SEMI JOIN seen USING (id_app, subject) WHERE is_before),
  found AS (
    SELECT place, NULL::BIGINT AS count_event, NULL::BIGINT AS duration, NULL::TIMESTAMPTZ AS ends_at
    FROM seen ANTI JOIN earlier USING (id_app, subject))`,
  days: `
  found AS (
    SELECT min(${placeSql}) AS place, count(*) AS count_event, NULL::BIGINT AS duration, NULL::TIMESTAMPTZ AS ends_at
    FROM source AS events GROUP BY id_app, subject, ${zoneDate('event_time')})`,
  sessions: `
  marked AS (
    SELECT *, epoch_us(event_time) - lag(epoch_us(event_time)) OVER (${inSubjectOrder}) <= ${pauseMicros} AS goes_on
    FROM source),
  numbered AS (
    SELECT *, count(*) FILTER (goes_on IS NOT true) OVER (${inSubjectOrder} ROWS UNBOUNDED PRECEDING) AS session
    FROM marked),
  found AS (
    SELECT min(${placeSql}) AS place, count(*) AS count_event,
      (epoch_us(max(event_time)) - epoch_us(min(event_time))) // 1000000 AS duration, max(event_time) AS ends_at
    FROM numbered GROUP BY id_app, subject, session)`,
};

/** A moment that is bound as microseconds. */
const momentSql = (name: string): string => `make_timestamptz(CAST($${name} AS BIGINT))`;
const toMicros = (seconds: number): bigint => BigInt(seconds) * 1_000_000n;

/** Makes the table `derived`: the place of each row whose own time is in the request's span. */
function prepare(
  request: ExportSpec,
  event: DerivedExport,
  apps: readonly ExportApp[],
  reachSeconds: number,
): Preparation {
  const { derive, of } = event;
  const { fromSeconds, beforeSeconds } = request.eventTime;
  const values: Record<string, BoundValue> = derive === 'days' ? { timezone: request.timezone } : {};
  const read = spanConditions('event_time', 'read', readSpan(event, request.eventTime, reachSeconds), values);
  const subject = subjectSql(of);
  const isBefore = fromSeconds === undefined ? 'false' : `events.event_time < ${momentSql('spanFrom')}`;
  const isInSpan = [
    ...(fromSeconds === undefined ? [] : [`place.event_time >= ${momentSql('spanFrom')}`]),
    ...(beforeSeconds === undefined ? [] : [`place.event_time < ${momentSql('spanBefore')}`]),
  ];
  if (fromSeconds !== undefined) values['spanFrom'] = toMicros(fromSeconds);
  if (beforeSeconds !== undefined) values['spanBefore'] = toMicros(beforeSeconds);
  const isOurs = `events.id_app IN (${apps.map((app) => app.idApp).join(', ')})`;
  const columns = 'events.id_app, events.event_time, events.event_id, events.file_index, events.file_row_number';
  const statement = `CREATE OR REPLACE TEMP TABLE derived AS
WITH source AS NOT MATERIALIZED (
    SELECT ${columns}, ${subject} AS subject, ${isBefore} AS is_before
    FROM ${filesSql} AS events WHERE ${[isOurs, `${subject} IS NOT NULL`, ...read].join(' AND ')}),${foundSql[derive]}
SELECT place.file_index AS file_index, place.file_row_number AS file_row_number, count_event, duration, ends_at
FROM found${isInSpan.length === 0 ? '' : ` WHERE ${isInSpan.join(' AND ')}`}`;
  if (derive !== 'sessions' || beforeSeconds === undefined || reachSeconds === Infinity) return { statement, values };
  return {
    statement,
    values,
    unfinished: {
      statement: `SELECT count(*) AS rows FROM derived WHERE ends_at >= ${momentSql('settled')}`,
      values: { settled: toMicros(beforeSeconds + reachSeconds - sessionPauseSeconds) },
    },
  };
}

/**
 * Builds the query of a request for derived rows. They come in the order of time. Filters on apps choose events before
 * anything is derived; those on time choose rows after it.
 */
export function buildDerivedQuery(
  request: ExportSpec,
  event: DerivedExport,
  apps: readonly ExportApp[],
  reachSeconds: number,
): ExportQuery {
  const filterValues: Record<string, BoundValue> = {};
  const conditions = [
    ...spanConditions('event_time', 'event', request.eventTime, filterValues),
    ...spanConditions('available_at', 'available', request.availableAt, filterValues),
    ...dayConditions(request, filterValues),
  ];
  const selectValues: Record<string, BoundValue> = {};
  const columns = selectColumns(request, { event, apps, inline: false }, selectValues);
  const from = `FROM ${filesSql} AS events
JOIN derived ON events.file_index = derived.file_index AND events.file_row_number = derived.file_row_number
JOIN apps ON events.id_app = apps.id_app${conditions.length === 0 ? '' : ` WHERE ${conditions.join(' AND ')}`}`;
  return {
    select: `SELECT ${columns.join(', ')} ${from} ORDER BY events.event_time, events.event_id`,
    count: `SELECT count(*) AS rows ${from}`,
    filterValues,
    selectValues,
    inline: false,
    preparation: prepare(request, event, apps, reachSeconds),
  };
}
