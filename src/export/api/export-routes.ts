import type { AccessReader, User } from '../../access/access.ts';
import { dictionaries, dictionaryNames } from '../../datasets/dictionaries.ts';
import { isInProgress, type ReportJob } from '../../reports/reports.ts';
import { defined } from '../../runtime/files/checksummed-json.ts';
import { type ExportApp, type ExportSpec, parseExportSpec } from '../jobs/export-spec.ts';
import { quote } from './arguments.ts';
import type { Span, Tracing } from '../../runtime/tracing/tracing.ts';
import { badRequest, isApiError, notFound, success, type ExportApiError } from './envelope.ts';
import type { Exports } from './exports.ts';
import { type AddMethod, parseId, parseLimit, single } from './methods-routes.ts';
import { parametersByName } from './parameters.ts';
import { paramArgumentOf } from './parse-params.ts';
import { type ApiServer, sendError } from './server.ts';
import type { Quotas } from './quotas.ts';
import { summarizeExport } from './summary.ts';
import type { ExportViews } from './views.ts';

interface ExportRouteDependencies {
  readonly exports: Exports;
  readonly exportViews: ExportViews;
  readonly quotas: Quotas;
  /** Absent without a collector of traces. */
  readonly tracing?: Tracing | undefined;
}

const createUrl = '/api/raw/v1/export/create.json';
const reportNotFound = notFound('File report request is not found');
const rawNotFound = notFound('Raw export request not found');

/** Ends the span of a create; it has no result if the reports cannot be written. */
function endCreate(span: Span, job: ReportJob | ExportApiError | undefined): void {
  const status = job === undefined ? 500 : isApiError(job) ? job.code : 200;
  const attributes = { 'http.route': createUrl, 'http.response.status_code': status };
  const created = job === undefined || isApiError(job) ? {} : { 'tributary.export.id': job.id };
  span.end({ ...attributes, ...created }, status >= 500 ? 'not created' : undefined);
}

export function addExportRoutes(server: ApiServer, dependencies: ExportRouteDependencies, addMethod: AddMethod): void {
  const { exports, exportViews, quotas, tracing } = dependencies;

  addMethod(['GET', 'POST'], createUrl, 'create', async (user, given, { isGone, headers }) => {
    const span = tracing?.startRequest(`create ${createUrl}`, headers);
    let job: ReportJob | ExportApiError | undefined;
    try {
      job = await exports.create(user, given, isGone, span?.traceparent);
    } finally {
      if (span !== undefined) endCreate(span, job);
    }
    return isApiError(job) ? job : { data: { idRawExport: String(job.id) } };
  });

  addMethod(['GET', 'POST'], '/api/raw/v1/export/get.json', 'raw_get', async (user, given, { baseUrl }) => {
    const job = await exports.find(user, single(given, 'idRawExport'));
    return job === undefined ? rawNotFound : { data: await exportViews.raw(job, user, baseUrl) };
  });

  addMethod(['GET', 'POST'], '/api/raw/v1/export/cancel.json', 'cancel', async (user, given) => {
    const job = await exports.find(user, single(given, 'idRawExport'));
    if (job === undefined) return rawNotFound;
    if ((await exports.cancel(job)) === undefined)
      return badRequest(`Raw export request ${job.id} is already completed`);
    return { data: { idRawExport: String(job.id), info: 'Canceled' } };
  });

  addMethod(['GET', 'POST'], '/api/report/v1/file/get.json', 'report_get', async (user, given, { baseUrl }) => {
    const job = await exports.find(user, single(given, 'idReportFile'));
    return job === undefined ? reportNotFound : { data: await exportViews.report(job, user, baseUrl) };
  });

  addMethod(['GET'], '/api/report/v1/file/list.json', 'report_list', async (user) => {
    const jobs = await exports.list(user);
    return isApiError(jobs) ? jobs : { data: { reports: await Promise.all(jobs.map(exportViews.summary)) } };
  });

  for (const name of dictionaryNames) {
    server.get(`/api/dictionary/v1/${name}.json`, async (request, reply) => {
      const overQuota = quotas.ofAddress(request.ip);
      return overQuota === undefined
        ? reply.header('cache-control', 'public, max-age=3600').send(success(dictionaries[name]))
        : sendError(reply, overQuota);
    });
  }
}

export const listLimits = { fallback: 25, most: 200 } as const;

/** Returns the arguments and the summary of a request; nothing if another version wrote it and it cannot be parsed. */
function describeRequest(
  { name, deliverTo, request }: ReportJob,
  apps: readonly ExportApp[],
): { readonly arguments?: RepeatArguments; readonly summary?: string } {
  const spec = parseExportSpec(request);
  if (spec === undefined) return {};
  const given = { ...describeRepeatArguments(spec), ...defined({ name, deliverTo }) };
  return { arguments: given, summary: summarizeExport(Object.entries(given), apps) };
}

/** Returns the texts by which a request is found: its id, name, schedule, event, event names, and apps with titles. */
function textsOf(job: ReportJob, titles: ReadonlyMap<string, string>): readonly string[] {
  const { idApp = [], SDKKey = [], eventName = [] } = parseExportSpec(job.request) ?? {};
  const apps = [...idApp, ...SDKKey];
  const named = [job.name ?? '', String(job.id), job.slot?.idSchedule ?? '', job.event];
  return [...named, ...eventName, ...apps, ...apps.map((app) => titles.get(app) ?? '')];
}

interface ListRouteDependencies extends Pick<ExportRouteDependencies, 'exports' | 'exportViews'> {
  readonly access: AccessReader;
}

/** Longest text of a search, characters. */
const maxSearchLength = 100;

export function addListRoutes(addMethod: AddMethod, { exports, exportViews, access }: ListRouteDependencies): void {
  const appsOf = ({ idAccount }: User): readonly ExportApp[] => access.current().appsOfAccount(idAccount);

  async function describeJob(job: ReportJob, apps: readonly ExportApp[]): Promise<Record<string, unknown>> {
    return {
      ...(await exportViews.summary(job)),
      ...(isInProgress(job) ? { isCancellable: true } : {}),
      ...(job.finishedMs === undefined ? {} : { timestampFinished: String(Math.floor(job.finishedMs / 1000)) }),
      ...describeRequest(job, apps),
    };
  }

  addMethod(['GET'], '/api/raw/v1/export/list.json', 'raw_list', async (user, callArguments) => {
    const allowed = ['limit', 'before', 'search'];
    const unknown = [...callArguments.keys()].find((name) => !allowed.includes(name));
    if (unknown !== undefined)
      return badRequest(`Argument ${quote(unknown)} is unknown; allowed: ${allowed.join(', ')}`);
    const wanted = (single(callArguments, 'search') ?? '').toLowerCase();
    if (wanted.length > maxSearchLength)
      return badRequest(`Argument search must have at most ${maxSearchLength} characters`);
    const apps = appsOf(user);
    const titles = new Map(
      apps.flatMap(({ idApp, sdkKey, title }) => [String(idApp), sdkKey].map((id) => [id, title])),
    );
    const isWanted = (job: ReportJob): boolean =>
      wanted === '' || textsOf(job, titles).some((one) => one.toLowerCase().includes(wanted));
    const limit = parseLimit(callArguments, listLimits.fallback, listLimits.most);
    if (typeof limit !== 'number') return limit;
    const before = callArguments.has('before') ? parseId(single(callArguments, 'before')) : Infinity;
    if (before === undefined) return badRequest('Argument before must be the idRawExport of a request');
    const page = await exports.page(user, limit, before, isWanted);
    if (isApiError(page)) return page;
    const { jobs, total, hasMore } = page;
    const next = hasMore ? { before: String(jobs.at(-1)?.id) } : {};
    const listed = await Promise.all(jobs.map((job) => describeJob(job, apps)));
    return { data: { exports: listed, total, ...next } };
  });
}

type RepeatArguments = Readonly<Record<string, string | readonly string[]>>;

function describeSpan([from, to]: readonly [string, string], span: ExportSpec['eventTime']): RepeatArguments {
  const { fromSeconds, beforeSeconds } = span;
  return {
    ...(fromSeconds === undefined ? {} : { [from]: String(fromSeconds) }),
    ...(beforeSeconds === undefined ? {} : { [to]: String(beforeSeconds - 1) }),
  };
}

/** Escapes the values of sets that are split at commas. */
function escapeSets(filters: ExportSpec['filters']): ExportSpec['filters'] {
  return Object.fromEntries(
    Object.entries(filters).map(([name, values]) =>
      parametersByName.get(name)?.hasEscapes === true
        ? [name, values.map((value) => value.replaceAll(/[\\,]/g, String.raw`\$&`))]
        : [name, values],
    ),
  );
}

/** Returns the arguments that repeat a request. Days are seconds, or days if clocks that went back matter. */
function describeRepeatArguments(spec: ExportSpec): RepeatArguments {
  const { eventTime, availableAt, localDates, params = [], filters, eventNameInvert, ...others } = spec;
  const { event, timezone, sinceVersion, asOf, idSegment, format, compression, order, columns, dialect } = others;
  const isList = others.erasures === true;
  const selectors = isList ? undefined : others.selectors;
  const { idApp, SDKKey, idAccount, idProject, eventName } = others;
  const erasures = isList ? '1' : undefined;
  const one = {
    event,
    timezone,
    sinceVersion,
    erasures,
    asOf,
    idSegment,
    format,
    compression,
    order,
    columns,
    dialect,
  };
  const many = { selectors, idApp, SDKKey, idAccount, idProject, eventName, ...escapeSets(filters) };
  return {
    ...Object.fromEntries(Object.entries(one).filter((entry): entry is [string, string] => entry[1] !== undefined)),
    ...Object.fromEntries(
      Object.entries(many).filter((entry): entry is [string, readonly string[]] => entry[1] !== undefined),
    ),
    ...(localDates === undefined
      ? describeSpan(['tsFrom', 'tsTo'], eventTime)
      : { dateFrom: localDates.from, dateTo: localDates.to }),
    ...describeSpan(['availabilityTsFrom', 'availabilityTsTo'], availableAt),
    ...(eventNameInvert ? { eventNameInvert: '1' } : {}),
    ...Object.fromEntries(params.map((param) => [paramArgumentOf(param), param.values])),
  };
}
