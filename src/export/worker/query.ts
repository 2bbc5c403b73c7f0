import { findExport, getExport, type Dataset } from '../../datasets/dataset.ts';
import { toAddFilter, type FileFilter, type TimeRange } from '../../lake/files/prune.ts';
import type { RowsRead } from '../../lake/files/row-group-hashes.ts';
import type { AddFilter } from '../../lake/log/actions.ts';
import type { Snapshot } from '../../lake/log/snapshot.ts';
import { parseSchemaString } from '../../lake/table-schema.ts';
import type { ExportApp, ExportSpec, SecondsSpan } from '../jobs/export-spec.ts';
import type { PlanSegment, PlanTitles, ReadPlan } from '../jobs/worker-messages.ts';
import {
  dayConditions,
  fieldConditions,
  inSet,
  paramConditions,
  requirement,
  segmentJoin,
  sinceConditions,
  spanConditions,
  storedConditions,
} from './conditions.ts';
import { buildErasuresQuery } from './erasures-query.ts';
import { buildDerivedQuery, readSpan } from './derived-query.ts';
import { filesSql, noDays, orderByTime, type BoundValue, type ExportQuery } from './export-query.ts';
import { listParamsStatement, type ParamColumn } from './param-columns.ts';
import { countByDate, emptyColumns, selectSql, selectTitled, showsTitles, type Cells } from './selector-sql.ts';

/** The largest set that is compared value by value. */
const inlineSetSize = 64;

const ofSlice = 'events.file_row_number >= $fromRow AND events.file_row_number < $beforeRow';

/** Reports whether the result has no rows by the request alone: unknown event, filter or app, or an empty time span. */
export function isEmptyResult(request: ExportSpec, apps: readonly ExportApp[]): boolean {
  const { fromSeconds = -Infinity, beforeSeconds = Infinity } = request.eventTime;
  const found = findExport(request.event);
  return (
    found === undefined ||
    apps.length === 0 ||
    fieldConditions(found.dataset, request, {}) === undefined ||
    fromSeconds >= beforeSeconds
  );
}

function toTimeRange({ fromSeconds, beforeSeconds }: SecondsSpan): TimeRange {
  return {
    ...(fromSeconds === undefined ? {} : { fromMs: fromSeconds * 1000 }),
    // The span ends before this second, and statistics are rounded down to ms.
    ...(beforeSeconds === undefined ? {} : { toMs: beforeSeconds * 1000 - 1 }),
  };
}

function availability({ availableAt }: ExportSpec, sinceMs: number | undefined): TimeRange {
  const range = toTimeRange(availableAt);
  return sinceMs === undefined ? range : { ...range, fromMs: Math.max(range.fromMs ?? 0, sinceMs) };
}

interface FilterOptions {
  /** How far beyond the request's end derived rows are read, s. */
  readonly reachSeconds?: number;
  /** Only rows that became available later, Unix ms. */
  readonly sinceMs?: number | undefined;
}

/** Builds the filter on the log's statistics that skips files. */
export function fileFilter(
  request: ExportSpec,
  apps: readonly ExportApp[],
  { reachSeconds = 0, sinceMs }: FilterOptions = {},
): FileFilter {
  const event = findExport(request.event)?.event;
  const idApps = apps.map((app) => app.idApp);
  // The derivation ignores when rows became available.
  if (event !== undefined && 'derive' in event)
    return { idApps, eventTime: toTimeRange(readSpan(event, request.eventTime, reachSeconds)) };
  return {
    idApps,
    ...(event?.kind === undefined ? {} : { kinds: [event.kind] }),
    ...(request.eventName === undefined || request.eventNameInvert ? {} : { eventNames: request.eventName }),
    eventTime: toTimeRange(request.eventTime),
    availableAt: availability(request, sinceMs),
  };
}

/** Builds the filter of the log for the files that a request may read; derived rows are read at any time. */
export function neededFiles(request: ExportSpec, apps: readonly ExportApp[]): AddFilter | undefined {
  const { eventTime, ...others } = fileFilter(request, apps);
  const event = findExport(request.event)?.event;
  const isDerived = event !== undefined && 'derive' in event;
  return toAddFilter(isDerived || eventTime === undefined ? others : { ...others, eventTime });
}

/** Reports whether a request filters rows, so that far more may be read than written. */
export function isFiltered({ eventName, params, idSegment, sinceVersion, filters }: ExportSpec): boolean {
  const isSet = [eventName, params, idSegment, sinceVersion].some((filter) => filter !== undefined);
  return isSet || Object.keys(filters).length > 0;
}

interface QueryOptions {
  /**
   * Without the sort that large sets need: slower, with the memory of a few thousand rows instead of 122,880.
   * `order=time` and derived rows are sorted nevertheless.
   */
  readonly lean?: boolean;
  /** Text by default. */
  readonly cells?: Cells;
  /** The columns of the table; by default those of the dataset, which an earlier table may lack. */
  readonly columns?: readonly { readonly name: string }[];
  /** Its file is at a path that the engine may read. */
  readonly segment?: PlanSegment | undefined;
  readonly titles?: PlanTitles | undefined;
  /** Columns of parameters; undefined: not known yet. */
  readonly params?: readonly ParamColumn[] | undefined;
  /** Only rows that became available later, Unix ms. */
  readonly sinceMs?: number | undefined;
  /** Undefined: all earlier rows are read. */
  readonly firstSeen?: { readonly paths: readonly string[] } | undefined;
}

/** The columns, the newer rows and the first-seen parts that are read. */
interface ReadTable extends Pick<QueryOptions, 'firstSeen'> {
  readonly snapshot: Pick<Snapshot, 'schemaString' | 'lake'>;
  readonly sinceMs: number | undefined;
}

function withColumns(dataset: Dataset, present: readonly { readonly name: string }[]): Dataset {
  const names = new Set(present.map(({ name }) => name));
  return { ...dataset, columns: dataset.columns.filter(({ name }) => names.has(name)) };
}

/** Lists whose join also decides how the sets of a request are compared. */
type JoinedLists = Pick<QueryOptions, 'segment' | 'titles'>;

function isJoined(request: ExportSpec, { segment, titles }: JoinedLists): boolean {
  return segment !== undefined || showsTitles(request, titles);
}

const hasSmallSets = ({ eventName = [], filters }: ExportSpec, apps: readonly ExportApp[]): boolean =>
  [apps, eventName, ...Object.values(filters)].every(({ length }) => length <= inlineSetSize);

/**
 * Returns the rows whose row groups are all that the engine reads of a file, because statements compare `id_app` with
 * the request's apps; undefined if it may read others.
 */
export function appsRead({ request, apps, ...lists }: ReadPlan): RowsRead | undefined {
  const { event } = getExport(request.event);
  const isCompared = !('derive' in event) && !isJoined(request, lists) && hasSmallSets(request, apps);
  return isCompared ? { apps: apps.map(({ idApp }) => [idApp, idApp]) } : undefined;
}

/** Builds the query of a request. Throws if no dataset has its event. */
export function buildQuery(
  request: ExportSpec,
  apps: readonly ExportApp[],
  { lean = false, cells = 'text', columns: present, segment, titles, params, sinceMs, firstSeen }: QueryOptions = {},
): ExportQuery {
  const { dataset: declared, event } = getExport(request.event);
  const dataset = present === undefined ? declared : withColumns(declared, present);
  if ('derive' in event)
    return buildDerivedQuery(request, { dataset, event, parts: firstSeen?.paths }, apps, { cells, titles });
  const inline = !isJoined(request, { segment, titles }) && (lean || hasSmallSets(request, apps));
  const values: Record<string, BoundValue> = {};
  const conditions = [
    ...storedConditions(dataset, event, values),
    ...requirement(event),
    ...(fieldConditions(dataset, request, values) ?? ['false']),
    ...spanConditions('event_time', 'event', request.eventTime, values),
    ...spanConditions('available_at', 'available', request.availableAt, values),
    ...sinceConditions(sinceMs, values),
    ...dayConditions(request, values),
    ...paramConditions(request, values),
    ...(inline ? [`events.id_app IN (${apps.map((app) => app.idApp).join(', ')})`] : []),
  ];
  if (request.eventName !== undefined) {
    const named = inSet('events.custom_event_name', 'name', request.eventName, values);
    conditions.push(request.eventNameInvert ? `NOT (${named})` : named);
  }
  const joins = inline ? [] : ['JOIN apps ON events.id_app = apps.id_app'];
  if (segment !== undefined) {
    values['segment'] = segment.absolutePath;
    joins.push(segmentJoin(segment.kind, dataset, [...conditions, 'events.id_app IN (SELECT id_app FROM apps)']));
  }
  const selectValues: Record<string, BoundValue> = { ...values };
  const plan = { request, values: selectValues, dataset, event, apps, inline, cells, params };
  const { columns, titleJoins } = selectTitled(plan, titles);
  const from = (added: readonly string[]): string =>
    `FROM ${filesSql} AS events ${[...joins, ...added].join(' ')} WHERE ${['true', ...conditions].join(' AND ')}`;
  const inOrderOfFiles = inline ? '' : 'ORDER BY events.file_index, events.file_row_number';
  const order = request.order === 'time' ? orderByTime : inOrderOfFiles;
  return {
    select: { sql: selectSql(columns, `${from(titleJoins)} ${order}`), values: selectValues },
    count: { sql: `SELECT events.file_index AS file, count(*) AS rows ${from([])} GROUP BY ALL`, values },
    days: countByDate(from([]), request.timezone, values),
    inline,
    ...(request.columns === 'params' && params === undefined
      ? { listParams: listParamsStatement(from([]), values, request) }
      : {}),
    ...(order === ''
      ? { selectRows: { sql: selectSql(columns, `${from(titleJoins)} AND ${ofSlice}`), values: selectValues } }
      : {}),
  };
}

export function buildEmptyQuery(request: ExportSpec, params: readonly ParamColumn[] = []): ExportQuery {
  if (request.erasures === true) return buildErasuresQuery(request, undefined, 'text');
  const sql = `SELECT ${emptyColumns(request, params).join(', ')} WHERE false`;
  return {
    select: { sql, values: {} },
    count: { sql: 'SELECT 0 AS file, 0 AS rows WHERE false', values: {} },
    days: noDays,
    inline: true,
  };
}

export function planQuery(
  { request, apps, segment, titles }: ReadPlan,
  { snapshot: { schemaString, lake }, sinceMs, firstSeen }: ReadTable,
  options: Required<Pick<QueryOptions, 'lean' | 'cells'>> & Pick<QueryOptions, 'params'>,
): ExportQuery {
  if (request.erasures === true) return buildErasuresQuery(request, lake?.erasures, options.cells);
  if (schemaString === undefined || isEmptyResult(request, apps)) return buildEmptyQuery(request);
  const columns = parseSchemaString(schemaString);
  return buildQuery(request, apps, { ...options, columns, sinceMs, segment, titles, firstSeen });
}
