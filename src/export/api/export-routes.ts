import { dictionaries, dictionaryNames } from '../../datasets/dictionaries.ts';
import { isInProgress, type ReportJob } from '../../reports/reports.ts';
import { type ExportSpec, parseExportSpec } from '../jobs/export-spec.ts';
import { quote } from './arguments.ts';
import type { Span, Tracing } from '../../runtime/tracing/tracing.ts';
import { badRequest, isApiError, notFound, success, type ExportApiError } from './envelope.ts';
import type { Exports } from './exports.ts';
import { type AddMethod, parseId, parseLimit, single } from './methods-routes.ts';
import { paramArgumentOf } from './parse-params.ts';
import { type ApiServer, sendError } from './server.ts';
import type { Quotas } from './quotas.ts';
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

async function describeJob(job: ReportJob, exportViews: ExportViews): Promise<Record<string, unknown>> {
  const spec = parseExportSpec(job.request);
  return {
    ...(await exportViews.summary(job)),
    ...(isInProgress(job) ? { isCancellable: true } : {}),
    ...(job.finishedMs === undefined ? {} : { timestampFinished: String(Math.floor(job.finishedMs / 1000)) }),
    // Another version may have written a request that this one cannot parse.
    ...(spec === undefined ? {} : { arguments: describeRepeatArguments(spec) }),
  };
}

export function addListRoutes(
  addMethod: AddMethod,
  { exports, exportViews }: Pick<ExportRouteDependencies, 'exports' | 'exportViews'>,
): void {
  addMethod(['GET'], '/api/raw/v1/export/list.json', 'raw_list', async (user, callArguments) => {
    const unknown = [...callArguments.keys()].find((name) => name !== 'limit' && name !== 'before');
    if (unknown !== undefined) return badRequest(`Argument ${quote(unknown)} is unknown; allowed: limit, before`);
    const limit = parseLimit(callArguments, listLimits.fallback, listLimits.most);
    if (typeof limit !== 'number') return limit;
    const before = callArguments.has('before') ? parseId(single(callArguments, 'before')) : Infinity;
    if (before === undefined) return badRequest('Argument before must be the idRawExport of a request');
    const page = await exports.page(user, limit, before);
    if (isApiError(page)) return page;
    const { jobs, total, hasMore } = page;
    const next = hasMore ? { before: String(jobs.at(-1)?.id) } : {};
    const listed = await Promise.all(jobs.map((job) => describeJob(job, exportViews)));
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

/** Returns the arguments that repeat a request. Days are seconds, or days if clocks that went back matter. */
function describeRepeatArguments(spec: ExportSpec): RepeatArguments {
  const { eventTime, availableAt, localDates, params = [], filters, eventNameInvert, ...others } = spec;
  const { event, selectors, timezone, sinceVersion, asOf, idSegment, format, compression, order } = others;
  const { idApp, SDKKey, idAccount, idProject, eventName } = others;
  const one = { event, timezone, sinceVersion, asOf, idSegment, format, compression, order };
  const many = { selectors, idApp, SDKKey, idAccount, idProject, eventName, ...filters };
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
