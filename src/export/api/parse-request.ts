import { defined } from '../../runtime/files/checksummed-json.ts';
import { compressions, csvDialects, defaultFormat, isFileFormat } from '../../datasets/file-formats.ts';
import { parseCursor, findVersionUnavailableReason, type AvailableVersions } from '../../lake/log/change-feed.ts';
import { isAppError } from '../../runtime/errors.ts';
import { findNearest } from '../../runtime/nearest-name.ts';
import { erasureColumns, selectApps, type ExportApp, type ExportSpec, type SecondsSpan } from '../jobs/export-spec.ts';
import { quote, type Arguments } from './arguments.ts';
import type { Calendar } from './calendar.ts';
import { badRequest, isApiError, type ExportApiError } from './envelope.ts';
import { isParamArgument, paramArgumentNames, parseParams } from './parse-params.ts';
import { filterNames, parameters, parametersByName, setSizeLimit, type Parameter } from './parameters.ts';

type Values = ReadonlyMap<string, readonly string[]>;

/** Minimum age of an availability bound, s (docs/api.md#parameters-of-create). */
const availabilityLagSeconds = 3 * 3600;
export const defaultTimezone = 'Europe/Moscow';
const describeGiven = (text: string, meant: string | undefined): string =>
  meant === undefined ? quote(text) : `${quote(text)} (did you mean ${meant}?)`;

function refuseValue(parameter: Parameter, value: string): ExportApiError {
  const { name, rule } = parameter;
  const given = describeGiven(value, rule.suggest?.(value));
  if (name === 'event')
    return badRequest(`Argument event is not in the allowed set: ${given}; allowed: ${rule.allowed}`);
  return badRequest(`Argument ${name} is invalid: ${given}; allowed: ${rule.allowed}`);
}

/** Splits a set at its commas, except those after a backslash if a parameter has escapes. */
function splitSet(text: string, { hasEscapes }: Parameter): readonly string[] {
  if (hasEscapes !== true || !text.includes('\\')) return text.split(',');
  const items = [''];
  for (const [token] of text.matchAll(/\\[\\,]|[^]/gu))
    if (token === ',') items.push('');
    else items[items.length - 1] += token.length > 1 && token.startsWith('\\') ? token.slice(1) : token;
  return items;
}

function parseValues(parameter: Parameter, argumentTexts: readonly string[]): readonly string[] | ExportApiError {
  const { name, shape, rule } = parameter;
  const texts = new Set(shape === 'set' ? argumentTexts.flatMap((text) => splitSet(text, parameter)) : argumentTexts);
  if (shape === 'one' && texts.size > 1)
    return badRequest(
      `Argument ${name} takes one value, ${texts.size} are given: ${[...texts].slice(0, 5).map(quote).join(', ')}`,
    );
  if (texts.size >= setSizeLimit)
    return badRequest(
      `Argument ${name} is too large: ${texts.size} values, the set size must be below ${setSizeLimit}`,
    );
  const values = new Set<string>();
  for (const text of texts) {
    const value = rule.accept(text);
    if (value === undefined) return refuseValue(parameter, text);
    values.add(value);
  }
  return [...values];
}

/** Checks each argument in the order of the parameters; unknown names first. */
function parseEach(callArguments: Arguments): Values | ExportApiError {
  for (const name of callArguments.keys()) {
    if (!parametersByName.has(name) && !isParamArgument(name))
      return badRequest(
        `Argument ${describeGiven(name, findNearest(name, parametersByName.keys()))} is unknown; allowed: ${[...parametersByName.keys(), ...paramArgumentNames].join(', ')}`,
      );
  }
  const values = new Map<string, readonly string[]>();
  for (const parameter of parameters) {
    const texts = callArguments.get(parameter.name);
    const isList = callArguments.has('erasures');
    const required = parameter.name === 'event' || (parameter.name === 'selectors' && !isList);
    if (required && (texts === undefined || texts.every((text) => text === '')))
      return badRequest(`Argument ${parameter.name} is expected but not set`);
    if (texts === undefined) continue;
    const event = values.get('event')?.[0] ?? '';
    if (parameter.events !== undefined && !parameter.events.includes(event)) {
      return badRequest(
        `Argument ${parameter.name} is not allowed for event ${event}; it is only for ${parameter.events.join(', ')}`,
      );
    }
    const parsed = parseValues(parameter, texts);
    if (isApiError(parsed)) return parsed;
    values.set(parameter.name, parsed);
  }
  return values;
}

interface Bounds {
  readonly names: readonly [string, string];
  readonly from: number | undefined;
  readonly to: number | undefined;
}

function readBounds(values: Values, from: string, to: string): Bounds {
  const read = (name: string): number | undefined => {
    const value = values.get(name)?.[0];
    return value === undefined ? undefined : Number(value);
  };
  return { names: [from, to], from: read(from), to: read(to) };
}

/** Checks that two timestamps are ordered and at most `latest`, which `limit` describes. */
function refuseBounds({ names, from, to }: Bounds, latest: number, limit: string): ExportApiError | undefined {
  for (const [index, value] of [from, to].entries())
    if (value !== undefined && value > latest)
      return badRequest(`Argument ${names[index]} is invalid: ${value} must be ${limit}`);
  if (from !== undefined && to !== undefined && from > to)
    return badRequest(`Argument ${names[0]} is invalid: ${from} must not be after ${names[1]} ${to}`);
  return undefined;
}

const toSpan = ({ from, to }: Bounds): SecondsSpan =>
  defined({ fromSeconds: from, beforeSeconds: to === undefined ? undefined : to + 1 });

/**
 * Parses `dateFrom` and `dateTo` to a span of time. `localDates` are present if clocks go back over midnight at an end
 * of the span, which then has moments of other dates.
 */
async function parseDays(
  values: Values,
  zone: string,
  nowMs: number,
  days: Calendar,
): Promise<Pick<ExportSpec, 'eventTime' | 'localDates'> | ExportApiError> {
  const [from, to] = [values.get('dateFrom')?.[0], values.get('dateTo')?.[0]];
  if (from === undefined || to === undefined) return { eventTime: {} };
  const today = await days.currentDate(zone, nowMs);
  for (const [name, date] of Object.entries({ dateFrom: from, dateTo: to }))
    if (date > today)
      return badRequest(
        `Argument ${name} is invalid: ${quote(date)} must not be after the current date, ${today} in ${zone}`,
      );
  if (from > to)
    return badRequest(`Argument dateFrom is invalid: ${quote(from)} must not be after dateTo ${quote(to)}`);
  const [begin, end] = [await days.beginOf(zone, from), await days.beginOf(zone, days.nextDay(to))];
  const eventTime = { fromSeconds: begin.firstSeconds, beforeSeconds: end.settledSeconds };
  const isExact = begin.firstSeconds === begin.settledSeconds && end.firstSeconds === end.settledSeconds;
  return isExact ? { eventTime } : { eventTime, localDates: { from, to } };
}

function intersect(a: SecondsSpan, b: SecondsSpan): SecondsSpan {
  const from = Math.max(a.fromSeconds ?? -Infinity, b.fromSeconds ?? -Infinity);
  const before = Math.min(a.beforeSeconds ?? Infinity, b.beforeSeconds ?? Infinity);
  return defined({
    fromSeconds: from === -Infinity ? undefined : from,
    beforeSeconds: before === Infinity ? undefined : before,
  });
}

const withErasures = ['event', 'erasures', 'sinceVersion', 'asOf', 'timezone', 'format', 'compression'];
const appNames = ['idApp', 'SDKKey', 'idAccount', 'idProject'];

/** Refuses a request for erased rows that selects rows by their fields, which the list does not have. */
function refuseErasures(values: Values, callArguments: Arguments): ExportApiError | undefined {
  if (!values.has('erasures')) return undefined;
  if (!values.has('sinceVersion'))
    return badRequest('Argument sinceVersion is expected but not set: erasures needs it');
  const allowed = [...withErasures, ...appNames];
  const other = [...callArguments.keys()].find((name) => !allowed.includes(name));
  if (other === undefined) return undefined;
  return badRequest(`Argument ${other} is not allowed with erasures; allowed: ${allowed.join(', ')}`);
}

/** Refuses bounds of availability with a cursor: rows that they exclude would never be exported. */
function refuseBoundedFeed(values: Values): ExportApiError | undefined {
  const bound = ['availabilityTsFrom', 'availabilityTsTo'].find((name) => values.has(name));
  if (bound === undefined || !values.has('sinceVersion')) return undefined;
  return badRequest(
    `Argument ${bound} is invalid: sinceVersion already selects rows by availability; leave out ${bound}`,
  );
}

function refuseDialect(values: Values): ExportApiError | undefined {
  const [format = defaultFormat] = values.get('format') ?? [];
  const [compression = 'none'] = values.get('compression') ?? [];
  if (format === 'xlsx' && compression !== 'none')
    return badRequest(`Argument compression is invalid: ${quote(compression)}; allowed for xlsx: none`);
  return values.has('dialect') && format !== 'csv'
    ? badRequest(`Argument dialect is not allowed for format ${format}; it is only for csv`)
    : undefined;
}

function refusePairs(values: Values): ExportApiError | undefined {
  // A cursor replaces a pair: it is a bound, and late events may have any date.
  let pairs = values.has('sinceVersion') ? 1 : 0;
  for (const pair of [
    ['dateFrom', 'dateTo'],
    ['tsFrom', 'tsTo'],
  ]) {
    const [missing, ...others] = pair.filter((name) => !values.has(name));
    if (missing === undefined) pairs += 1;
    else if (others.length === 0) {
      const presentName = pair.find((name) => name !== missing);
      return badRequest(`Argument ${missing} is expected but not set: ${presentName} needs it`);
    }
  }
  return pairs > 0
    ? undefined
    : badRequest('At least one complete pair is expected but not set: dateFrom with dateTo, or tsFrom with tsTo');
}

/**
 * Parses the arguments of a create call (docs/api.md#parameters-of-create). Returns the first error, with the
 * argument, the value and the allowed values.
 */
export async function parseExportRequest(
  callArguments: Arguments,
  nowMs: number,
  days: Calendar,
): Promise<ExportSpec | ExportApiError> {
  const values = parseEach(callArguments);
  if (isApiError(values)) return values;
  const one = (name: string): string | undefined => values.get(name)?.[0];
  const event = one('event') ?? '';
  const params = parseParams(callArguments, event);
  if (isApiError(params)) return params;
  const nowSeconds = Math.floor(nowMs / 1000);
  const timezone = one('timezone') ?? defaultTimezone;
  const timestamps = readBounds(values, 'tsFrom', 'tsTo');
  const availability = readBounds(values, 'availabilityTsFrom', 'availabilityTsTo');
  const exportApiError =
    refuseErasures(values, callArguments) ??
    refuseDialect(values) ??
    refuseBoundedFeed(values) ??
    refusePairs(values) ??
    refuseBounds(timestamps, nowSeconds, `not after the current timestamp, ${nowSeconds}`) ??
    refuseBounds(
      availability,
      nowSeconds - availabilityLagSeconds - 1,
      `less than the current timestamp minus 3 hours, ${nowSeconds - availabilityLagSeconds}`,
    );
  if (exportApiError !== undefined) return exportApiError;
  const dates = await parseDays(values, timezone, nowMs, days);
  if (isApiError(dates)) return dates;
  const lists = ['idApp', 'SDKKey', 'idAccount', 'idProject', 'eventName'] as const;
  const pick = (names: readonly string[]): Readonly<Record<string, readonly string[]>> =>
    Object.fromEntries(names.flatMap((name) => (values.has(name) ? [[name, values.get(name) ?? []]] : [])));
  return {
    event,
    selectors: values.has('erasures') ? erasureColumns : (values.get('selectors') ?? []),
    timezone,
    ...dates,
    eventTime: intersect(dates.eventTime, toSpan(timestamps)),
    availableAt: toSpan(availability),
    ...pick(lists),
    eventNameInvert: one('eventNameInvert') === '1',
    ...params,
    ...defined({
      sinceVersion: one('sinceVersion'),
      erasures: values.has('erasures') ? (true as const) : undefined,
      asOf: one('asOf'),
      idSegment: one('idSegment'),
      format: values.get('format')?.find(isFileFormat),
      compression: compressions.find((each) => each === one('compression')),
      columns: values.has('columns') ? ('params' as const) : undefined,
      dialect: csvDialects.find((each) => each === one('dialect')),
      order: values.has('order') ? ('time' as const) : undefined,
    }),
    filters: pick(filterNames),
  };
}

interface RequestRuleDependencies {
  readonly calendar: Calendar;
  readonly listSegmentIds: ListSegmentIds;
  readonly hasDestination: (idAccount: number, idDestination: string) => Promise<boolean>;
  readonly findVersions: FindVersions;
  readonly appsOfAccount: (idAccount: number) => readonly ExportApp[];
}

/** Parses an export as an account may create it at a time, Unix ms. */
export type ParseRequest = (idAccount: number, given: Arguments, nowMs: number) => Promise<ExportSpec | ExportApiError>;

/** Creates the parser: it checks the arguments, then the data that they name. */
export function createRequestParser(dependencies: RequestRuleDependencies): ParseRequest {
  const { calendar, listSegmentIds, hasDestination, findVersions, appsOfAccount } = dependencies;
  return async (idAccount, callArguments, nowMs) => {
    const parsed = await parseExportRequest(callArguments, nowMs, calendar);
    if (isApiError(parsed)) return parsed;
    const { idSegment } = parsed;
    const unavailable =
      (await validateVersions(parsed, findVersions, appsOfAccount(idAccount))) ??
      (idSegment === undefined ? undefined : validateSegment(idSegment, await listSegmentIds(idAccount)));
    const deliverTo = callArguments.get('deliverTo')?.[0];
    if (deliverTo !== undefined && !(await hasDestination(idAccount, deliverTo)))
      return badRequest(
        `Argument deliverTo is invalid: ${quote(deliverTo)}; allowed: the id of a destination of the account`,
      );
    return unavailable ?? parsed;
  };
}

type ListSegmentIds = (idAccount: number) => Promise<readonly number[]>;

const namedIds = 20;

function describeAllowed(ids: readonly number[]): string {
  if (ids.length === 0) return 'the id of an available segment, and there is none';
  const more = ids.length > namedIds ? ` and ${ids.length - namedIds} more` : '';
  return `the id of an available segment: ${ids.slice(0, namedIds).join(', ')}${more}`;
}

/** Refuses a segment that the account does not have. `ids` are those of the account, ascending. */
function validateSegment(idSegment: string, ids: readonly number[]): ExportApiError | undefined {
  if (ids.some((id) => String(id) === idSegment)) return undefined;
  return badRequest(`Argument idSegment is invalid: ${quote(idSegment)}; allowed: ${describeAllowed(ids)}`);
}

type FindVersions = (event: string) => Promise<AvailableVersions>;

/** Refuses versions that the log no longer has. One that expires later fails the export. */
async function validateVersions(
  spec: ExportSpec,
  findVersions: FindVersions,
  accountApps: readonly ExportApp[],
): Promise<ExportApiError | undefined> {
  const { event, asOf, sinceVersion } = spec;
  if (asOf === undefined && sinceVersion === undefined) return undefined;
  const versions = await findVersions(event).catch((error: unknown) => {
    // The export waits for the repair of a damaged log.
    if (isAppError(error, 'log_damaged')) return undefined;
    throw error;
  });
  if (versions === undefined) return undefined;
  const upTo = asOf === undefined ? Math.max(versions.newest, 0) : (parseCursor(asOf)?.version ?? 0);
  const idApps = selectApps(spec, accountApps).map(({ idApp }) => idApp);
  const refusal = asOf === undefined ? undefined : findVersionUnavailableReason(upTo, versions, idApps);
  if (refusal !== undefined) return badRequest(`Argument asOf is invalid: ${refusal}`);
  const since = parseCursor(sinceVersion ?? '0')?.version ?? 0;
  if (since > upTo)
    return badRequest(
      `Argument sinceVersion is invalid: ${quote(sinceVersion ?? '')} is later than the version that is read, ${upTo}`,
    );
  return undefined;
}
