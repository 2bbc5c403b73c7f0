import type { AccessReader, App, User } from '../../access/access.ts';
import { datasets, events } from '../../datasets/dataset.ts';
import type { CurrentCatalogue } from '../../lake/catalogue/current-catalogue.ts';
import type { Clock } from '../../runtime/clock.ts';
import { withFormerNames } from '../../runtime/former-names.ts';
import {
  interactiveTimeoutMs,
  type DataResult,
  type DryRunResult,
  type InteractiveJobs,
} from '../jobs/interactive-jobs.ts';
import type { Activity, AppActivity, DataQuery, DateSpan, DryRunKind } from '../jobs/worker-messages.ts';
import type { Arguments } from './arguments.ts';
import {
  accessDenied,
  badRequest,
  isApiError,
  lacksPermission,
  notFound,
  retryAfterSeconds,
  unavailable,
  type ExportApiError,
} from './envelope.ts';
import type { Exports } from './exports.ts';
import {
  parseCount,
  parseId,
  parseLimit,
  findUnknownArgumentError,
  single,
  type AddMethod,
  type MethodResult,
} from './methods-routes.ts';
import { viewReportVersion } from './views.ts';

interface DataRouteDependencies {
  readonly access: AccessReader;
  readonly interactiveJobs: InteractiveJobs;
  readonly clock: Clock;
}

/** Apps of one response, by default and at most. */
const [fallbackLimit, mostLimit] = [100, 1000];
/** Dates of one response, and days of each event of the catalogue, at most. */
export const maxDates = 400;
const fallbackDates = 30;
const dayMs = 86_400_000;

export const dataKinds: readonly string[] = [
  ...events.kinds,
  ...[...datasets.keys()].filter((table) => table !== events.table),
];

const appNotFound = notFound('The app is not found');

/** Converts the failure of a worker into a refusal. `shorter`: what shortens its work. */
function refuseEnd({ kind }: DryRunResult | DataResult, what: string, shorter: string): ExportApiError {
  if (kind === 'busy') return { code: 429, detail: `Too many ${what} of the account at once`, retryAfterSeconds };
  return kind === 'timed_out'
    ? badRequest(`The query takes longer than ${interactiveTimeoutMs / 1000} s. Select fewer days or ${shorter}`)
    : unavailable;
}

/** Refuses a result if the user or one of its apps was removed meanwhile. */
function refuseTakenBack(access: AccessReader, user: User, apps: readonly App[]): ExportApiError | undefined {
  const { idAccount } = user;
  const now = access.current().findUser(user.idUser);
  if (now === undefined || now.idAccount !== idAccount || !now.canExport) return accessDenied;
  const left = new Set(
    access
      .current()
      .appsOfAccount(idAccount)
      .map(({ idApp }) => idApp),
  );
  return apps.every(({ idApp }) => left.has(idApp)) ? undefined : unavailable;
}

function parseDate(text: string): string | undefined {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN;
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text) ? text : undefined;
}

const dateOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** Parses the dates; the last 30 by default. */
function parseDates(callArguments: Arguments, nowMs: number): DateSpan | ExportApiError {
  const [from, to] = ['dateFrom', 'dateTo'].map((name) =>
    callArguments.has(name) ? (single(callArguments, name) ?? '') : undefined,
  );
  if ((from === undefined) !== (to === undefined)) return badRequest('Arguments dateFrom and dateTo go together');
  if (from === undefined || to === undefined)
    return { from: dateOf(nowMs - (fallbackDates - 1) * dayMs), to: dateOf(nowMs) };
  for (const [name, text] of Object.entries({ dateFrom: from, dateTo: to }))
    if (parseDate(text) === undefined) return badRequest(`Argument ${name} must be a date such as 2026-01-31`);
  const days = (Date.parse(to) - Date.parse(from)) / dayMs + 1;
  if (days < 1) return badRequest('Argument dateTo is before dateFrom');
  return days <= maxDates
    ? { from, to }
    : badRequest(`The span from dateFrom to dateTo must be at most ${maxDates} days`);
}

/** Parses idApp; all apps of the account if it is absent and not required. */
function parseApps(apps: readonly App[], given: Arguments, needsOne: boolean): readonly App[] | ExportApiError {
  if (!given.has('idApp') && !needsOne) return apps;
  const id = parseId(single(given, 'idApp'));
  if (id === undefined) return badRequest('Argument idApp is expected: the id of one app');
  const app = apps.find(({ idApp }) => idApp === id);
  return app === undefined ? appNotFound : [app];
}

type KindActivity = AppActivity['kinds'][number];

interface Page {
  readonly search: string;
  readonly offset: number;
  readonly limit: number;
}

function parsePage(given: Arguments): Page | ExportApiError {
  const unknown = findUnknownArgumentError(given, ['idApp', 'search', 'offset', 'limit']);
  if (unknown !== undefined) return unknown;
  const limit = parseLimit(given, fallbackLimit, mostLimit);
  if (typeof limit !== 'number') return limit;
  const offset = parseCount(given, 'offset', 0, 9_999_999);
  if (offset === undefined) return badRequest('Argument offset must be a whole number from 0');
  return { search: single(given, 'search') ?? '', offset, limit };
}

function findApps(apps: readonly App[], search: string): readonly App[] {
  const wanted = search.toLowerCase();
  return apps.filter(({ idApp, title }) => String(idApp).includes(wanted) || title.toLowerCase().includes(wanted));
}

const describeApp = ({ idApp, title, platform, idProject }: App) => ({
  idApp: String(idApp),
  title,
  platform,
  ...(idProject === undefined ? {} : { idProject: String(idProject) }),
});

/** Renders a page of apps with their events, most events first, and the sums of all counted apps. */
function renderActivity({ apps: counted, ...rest }: Activity, apps: readonly App[], page: Page): MethodResult {
  const activityOf = new Map(counted.map(({ idApp, ...activity }) => [idApp, activity]));
  const eventsOf = ({ idApp }: App): number => activityOf.get(idApp)?.events ?? 0;
  const found = findApps(apps, page.search).toSorted((a, b) => eventsOf(b) - eventsOf(a));
  const kinds = new Map<string, KindActivity>();
  for (const each of counted.flatMap((app) => app.kinds)) {
    const { events: n, lastDate: last } = kinds.get(each.kind) ?? { events: 0, lastDate: '' };
    const newest = each.lastDate > last ? each.lastDate : last;
    kinds.set(each.kind, { kind: each.kind, events: n + each.events, lastDate: newest });
  }
  const lastDate = counted
    .map((app) => app.lastDate)
    .toSorted()
    .at(-1);
  return {
    data: {
      apps: found
        .slice(page.offset, page.offset + page.limit)
        .map((app) => ({ ...describeApp(app), ...(activityOf.get(app.idApp) ?? { events: 0, days: [], kinds: [] }) })),
      total: found.length,
      events: counted.reduce((sum, app) => sum + app.events, 0),
      ...(lastDate === undefined ? {} : { lastDate }),
      kinds: [...kinds.values()].toSorted((a, b) => b.events - a.events),
      ...rest,
    },
  };
}

function renderCounts(result: DataResult, { from, to }: DateSpan): MethodResult {
  if (result.kind === 'fields') {
    const { fields, version, ...counted } = result.fields;
    const renderedFields = fields.map((field) => withFormerNames('field', field));
    return { data: withFormerNames('fields', { ...counted, fields: renderedFields, version: String(version) }) };
  }
  if (result.kind !== 'volume') return refuseEnd(result, 'queries', 'one app');
  const { version, days } = result.volume;
  return { data: { version: String(version), dateFrom: from, dateTo: to, days } };
}

export function addDataRoutes(addMethod: AddMethod, { access, interactiveJobs, clock }: DataRouteDependencies): void {
  const appsOf = ({ idAccount }: User): readonly App[] => access.current().appsOfAccount(idAccount);

  addMethod(['GET'], '/api/data/v1/apps.json', 'data_apps', (user, callArguments) => {
    if (!user.canExport) return lacksPermission;
    const page = parsePage(callArguments);
    if (isApiError(page)) return page;
    const apps = parseApps(appsOf(user), callArguments, false);
    if (isApiError(apps)) return apps;
    const { search, offset, limit } = page;
    const found = findApps(apps, search);
    return { data: { apps: found.slice(offset, offset + limit).map(describeApp), total: found.length } };
  });

  addMethod(['GET'], '/api/data/v1/activity.json', 'data_activity', async (user, callArguments, { whileConnected }) => {
    if (!user.canExport) return lacksPermission;
    const page = parsePage(callArguments);
    if (isApiError(page)) return page;
    const apps = parseApps(appsOf(user), callArguments, false);
    if (isApiError(apps)) return apps;
    const request = { question: { ask: 'activity' }, apps, idAccount: user.idAccount } as const;
    const result = await whileConnected((signal) => interactiveJobs.ask(request, signal));
    const refusal = refuseTakenBack(access, user, apps);
    if (refusal !== undefined) return refusal;
    return result.kind === 'activity'
      ? renderActivity(result.activity, apps, page)
      : refuseEnd(result, 'queries', 'one app');
  });

  const add = (ask: 'volume' | 'fields', known: readonly string[]): void =>
    addMethod(['GET'], `/api/data/v1/${ask}.json`, `data_${ask}`, async (user, callArguments, { whileConnected }) => {
      if (!user.canExport) return lacksPermission;
      const unknown = findUnknownArgumentError(callArguments, known);
      if (unknown !== undefined) return unknown;
      const dates = parseDates(callArguments, clock.nowMs());
      if (isApiError(dates)) return dates;
      const apps = parseApps(appsOf(user), callArguments, ask === 'fields');
      if (isApiError(apps)) return apps;
      const kind = single(callArguments, 'kind') ?? '';
      if (ask === 'fields' && !dataKinds.includes(kind))
        return badRequest(`Argument kind is expected: one of ${dataKinds.join(', ')}`);
      const question: DataQuery = ask === 'volume' ? { ask, dates } : { ask, dates, kind };
      const { idAccount } = user;
      const result = await whileConnected((signal) => interactiveJobs.ask({ question, apps, idAccount }, signal));
      return refuseTakenBack(access, user, apps) ?? renderCounts(result, dates);
    });
  add('volume', ['idApp', 'dateFrom', 'dateTo']);
  add('fields', ['idApp', 'kind', 'dateFrom', 'dateTo']);
}

const catalogueArguments = ['idApp', 'customEventName', 'dateFrom', 'dateTo', 'days'];

function renderCatalogue(
  { version, customEvents, more, notices, ...rest }: CurrentCatalogue,
  isListed: boolean,
): unknown {
  const listed = customEvents.map(({ parameters, ...event }) => {
    const shown = parameters.map((parameter) => withFormerNames('parameter', parameter));
    return withFormerNames('event', isListed ? event : { ...event, parameters: shown });
  });
  return withFormerNames('catalogue', {
    ...(version === undefined ? {} : { version: String(version) }),
    customEvents: listed,
    more: { names: more.names, events: more.events },
    notices: notices.map((notice) => withFormerNames('notice', notice)),
    ...rest,
  });
}

export function addCatalogueRoutes(
  addMethod: AddMethod,
  { access, interactiveJobs, clock }: DataRouteDependencies,
): void {
  addMethod(
    ['GET', 'POST'],
    '/api/catalogue/v1/get.json',
    'catalogue',
    async (user, callArguments, { whileConnected }) => {
      const { idAccount, canExport } = user;
      if (!canExport) return lacksPermission;
      const unknown = findUnknownArgumentError(callArguments, catalogueArguments);
      if (unknown !== undefined) return unknown;
      const customEventName = single(callArguments, 'customEventName');
      if (callArguments.has('customEventName') && (customEventName ?? '') === '')
        return badRequest('Argument customEventName must be the name of one custom event');
      const days = parseCount(callArguments, 'days', maxDates, maxDates);
      if (days === undefined) return badRequest(`Argument days must be from 0 to ${maxDates}`);
      const dates =
        callArguments.has('dateFrom') || callArguments.has('dateTo')
          ? parseDates(callArguments, clock.nowMs())
          : undefined;
      if (dates !== undefined && isApiError(dates)) return dates;
      const findApp = () => parseApps(access.current().appsOfAccount(idAccount), callArguments, true);
      const apps = findApp();
      if (isApiError(apps)) return apps;
      const question = {
        ask: 'catalogue',
        days,
        ...(dates === undefined ? {} : { dates }),
        ...(customEventName === undefined ? {} : { customEventName }),
      } as const;
      const result = await whileConnected((signal) => interactiveJobs.ask({ question, apps, idAccount }, signal));
      if (isApiError(findApp())) return appNotFound;
      return result.kind === 'catalogue'
        ? { data: renderCatalogue(result.catalogue, customEventName === undefined) }
        : refuseEnd(result, 'queries', 'one app');
    },
  );
}

function renderLook(result: DryRunResult): MethodResult {
  switch (result.kind) {
    case 'estimate': {
      const { basis, overLimits, ...estimate } = result.estimate;
      const limits = overLimits.map((limit) => withFormerNames('overLimit', limit));
      return { data: { ...estimate, overLimit: limits.length > 0, overLimits: limits, ...viewReportVersion(basis) } };
    }
    case 'preview': {
      const { basis, ...preview } = result.preview;
      return { data: withFormerNames('preview', { ...preview, ...viewReportVersion(basis) }) };
    }
    case 'daily': {
      const { basis, days } = result.daily;
      return { data: { days, ...viewReportVersion(basis) } };
    }
    case 'failed':
      return result.reason === 'user' ? badRequest(result.error) : unavailable;
    default:
      return refuseEnd(result, 'estimates and previews', 'apps, or create the export');
  }
}

/** Adds the methods that return the size, the first rows or the rows by date of an export without creating it. */
export function addDryRunRoutes(
  addMethod: AddMethod,
  {
    exports,
    interactiveJobs,
    access,
  }: { readonly exports: Exports; readonly interactiveJobs: InteractiveJobs; readonly access: AccessReader },
): void {
  const add = (look: DryRunKind): void =>
    addMethod(['GET', 'POST'], `/api/raw/v1/export/${look}.json`, look, async (user, given, { whileConnected }) => {
      const request = await exports.readRequest(user, given);
      if (isApiError(request)) return request;
      const { idAccount } = user;
      const apps = access.current().appsOfAccount(idAccount);
      const result = await whileConnected((signal) => interactiveJobs.run({ look, request, idAccount }, signal));
      return refuseTakenBack(access, user, apps) ?? renderLook(result);
    });
  add('estimate');
  add('preview');
  add('daily');
}
