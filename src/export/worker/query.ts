import { events } from '../../datasets/dataset.ts';
import type { FileFilter, TimeRange } from '../../lake/files/prune.ts';
import { emptyValuesMatch, type ExportApp, type ExportSpec, type SecondsSpan } from '../jobs/export-spec.ts';
import { dayConditions, inSet, paramConditions, requirement, spanConditions } from './conditions.ts';
import { buildDerivedQuery, readSpan } from './derived-query.ts';
import { filesSql, orderByTime, type BoundValue, type ExportQuery } from './export-query.ts';
import { emptyColumns, selectColumns, type Cells } from './selector-sql.ts';

/** The largest set that is compared value by value. */
const inlineSetSize = 64;

/**
 * Whether no row of the `events` table can be in the result: the event reads another dataset, a filter asks for a value
 * that no imported event has, no app is left, or the time span is empty.
 */
export function isEmptyResult(request: ExportSpec, apps: readonly ExportApp[]): boolean {
  const { fromSeconds = -Infinity, beforeSeconds = Infinity } = request.eventTime;
  return (
    !events.exports.has(request.event) ||
    apps.length === 0 ||
    !emptyValuesMatch(request.unknowable) ||
    fromSeconds >= beforeSeconds
  );
}

function toTimeRange({ fromSeconds, beforeSeconds }: SecondsSpan): TimeRange {
  return {
    ...(fromSeconds === undefined ? {} : { fromMs: fromSeconds * 1000 }),
    ...(beforeSeconds === undefined ? {} : { toMs: beforeSeconds * 1000 }),
  };
}

/** What of a request the log's statistics can be compared with, to leave files unopened. */
export function fileFilter(request: ExportSpec, apps: readonly ExportApp[], reachSeconds = 0): FileFilter {
  const event = events.exports.get(request.event);
  const idApps = apps.map((app) => app.idApp);
  // Which rows are derived does not depend on when they became available.
  if (event !== undefined && 'derive' in event)
    return { idApps, eventTime: toTimeRange(readSpan(event, request.eventTime, reachSeconds)) };
  return {
    idApps,
    ...(event === undefined ? {} : { kinds: [event.kind] }),
    eventTime: toTimeRange(request.eventTime),
    availableAt: toTimeRange(request.availableAt),
  };
}

export interface QueryOptions {
  /**
   * Without the sort that large sets need otherwise, whatever their size: slower, and needs the memory of a few thousand
   * rows instead of 122,880. The order of time, where it is asked for, and derived rows are sorted all the same.
   */
  readonly lean?: boolean;
  /** Text by default. */
  readonly cells?: Cells;
}

/** Builds the query of a request whose event reads the `events` table; throws on any other, whose result is empty. */
export function buildQuery(
  request: ExportSpec,
  apps: readonly ExportApp[],
  { lean = false, cells = 'text' }: QueryOptions = {},
): ExportQuery {
  const event = events.exports.get(request.event);
  if (event === undefined) throw new Error(`${request.event} reads no table`);
  if ('derive' in event) return buildDerivedQuery(request, event, apps, cells);
  const inline = lean || (apps.length <= inlineSetSize && (request.eventName?.length ?? 0) <= inlineSetSize);
  const values: Record<string, BoundValue> = { kind: event.kind };
  const conditions = [
    'events.kind = $kind',
    ...requirement(event),
    ...spanConditions('event_time', 'event', request.eventTime, values),
    ...spanConditions('available_at', 'available', request.availableAt, values),
    ...dayConditions(request, values),
    ...paramConditions(request, values),
    ...(inline ? [`events.id_app IN (${apps.map((app) => app.idApp).join(', ')})`] : []),
  ];
  if (request.eventName !== undefined) {
    const names = inSet('events.custom_event_name', 'name', request.eventName);
    conditions.push(request.eventNameInvert ? `NOT (${names.condition})` : names.condition);
    Object.assign(values, names.values);
  }
  const selectValues: Record<string, BoundValue> = { ...values };
  const columns = selectColumns(request, { event, apps, inline, cells }, selectValues);
  const join = inline ? '' : 'JOIN apps ON events.id_app = apps.id_app';
  const from = `FROM ${filesSql} AS events ${join} WHERE ${conditions.join(' AND ')}`;
  const inOrderOfFiles = inline ? '' : 'ORDER BY events.file_index, events.file_row_number';
  const order = request.order === 'time' ? orderByTime : inOrderOfFiles;
  return {
    select: { sql: `SELECT ${columns.join(', ')} ${from} ${order}`, values: selectValues },
    count: { sql: `SELECT count(*) AS rows ${from}`, values },
    inline,
  };
}

/** Builds the query of a result without rows, whatever the event: the columns that it would have. */
export function buildEmptyQuery(request: ExportSpec): ExportQuery {
  const sql = `SELECT ${emptyColumns(request).join(', ')} WHERE false`;
  const none = { sql, values: {} };
  return { select: none, count: { sql: `SELECT count(*) AS rows FROM (${sql})`, values: {} }, inline: true };
}
