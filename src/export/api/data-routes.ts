import type { AccessReader, App, User } from '../../access/access.ts';
import { datasets, events } from '../../datasets/dataset.ts';
import type { CurrentCatalogue } from '../../lake/catalogue/current-catalogue.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { DataQuestion, DateSpan } from '../jobs/data-messages.ts';
import { type DataResult, type Looks, lookTimeoutMs } from '../jobs/looks.ts';
import { type Arguments, quote } from './arguments.ts';
import { accessDenied, badRequest, isRefusal, type Refusal } from './envelope.ts';
import { type AddMethod, type Answer, single } from './methods-routes.ts';

interface DataRouteDependencies {
  readonly access: AccessReader;
  readonly looks: Looks;
  readonly clock: Clock;
}

/** Apps of one answer. */
const fallbackLimit = 100;
const mostLimit = 1000;
/** Dates of one answer, and days of each event of the catalogue, at most. */
export const mostDates = 400;
const fallbackDates = 30;
const dayMs = 86_400_000;
const retryAfterSeconds = 5;

/** What events are called here: the kinds of imported events, and the tables of the other datasets. */
export const dataKinds: readonly string[] = [
  ...events.kinds,
  ...[...datasets.keys()].filter((table) => table !== events.table),
];

/** An app that the account does not have is not told from one that nobody has. */
const notFound: Refusal = { code: 404, detail: 'The app is not found' };
const failed: Refusal = { code: 500, retryAfterSeconds };
const busy: Refusal = { code: 429, detail: 'Too many questions of the account at once', retryAfterSeconds };
const tooLong = badRequest(`The answer takes longer than ${lookTimeoutMs / 1000} s. Ask for fewer days or one app`);
const noPermission = badRequest('The account lacks export permissions');

function findUnknown(given: Arguments, known: readonly string[]): Refusal | undefined {
  const unknown = [...given.keys()].find((name) => !known.includes(name));
  return unknown === undefined ? undefined : badRequest(`Unknown argument ${quote(unknown)}`);
}

/** A date of the calendar; undefined for other texts. */
function parseDate(text: string): string | undefined {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN;
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text) ? text : undefined;
}

const dateOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** The dates that are asked for; without any the last 30. */
function parseDates(given: Arguments, nowMs: number): DateSpan | Refusal {
  const texts = ['dateFrom', 'dateTo'].map((name) => (given.has(name) ? (single(given, name) ?? '') : undefined));
  const [from, to] = texts;
  if ((from === undefined) !== (to === undefined)) return badRequest('Arguments dateFrom and dateTo go together');
  if (from === undefined || to === undefined)
    return { from: dateOf(nowMs - (fallbackDates - 1) * dayMs), to: dateOf(nowMs) };
  for (const [name, text] of [
    ['dateFrom', from],
    ['dateTo', to],
  ] as const)
    if (parseDate(text) === undefined) return badRequest(`Argument ${name} is a date such as 2026-01-31`);
  const days = (Date.parse(to) - Date.parse(from)) / dayMs + 1;
  if (days < 1) return badRequest('Argument dateTo is before dateFrom');
  return days <= mostDates ? { from, to } : badRequest(`Between dateFrom and dateTo are at most ${mostDates} days`);
}

/** The app that is named, of the account's; all of them where none is named and none needs to be. */
function parseApps(apps: readonly App[], given: Arguments, needsOne: boolean): readonly App[] | Refusal {
  if (!given.has('idApp') && !needsOne) return apps;
  const text = single(given, 'idApp') ?? '';
  if (!/^[1-9]\d{0,14}$/.test(text)) return badRequest('Argument idApp is expected: the id of one app');
  const app = apps.find(({ idApp }) => idApp === Number(text));
  return app === undefined ? notFound : [app];
}

/** Why a question has no answer. */
function refuseEnd({ kind }: DataResult): Refusal {
  return kind === 'busy' ? busy : kind === 'timed_out' ? tooLong : failed;
}

/** What the end of a question is answered with. */
function toAnswer(result: DataResult, dates: DateSpan): Answer {
  if (result.kind === 'fields') return { data: { ...result.fields, version: String(result.fields.version) } };
  if (result.kind !== 'volume') return refuseEnd(result);
  const { version, days } = result.volume;
  return { data: { version: String(version), dateFrom: dates.from, dateTo: dates.to, days } };
}

/** The apps of an account whose title or id has a text, by id. */
function findApps(apps: readonly App[], search: string): readonly App[] {
  const wanted = search.toLowerCase();
  return wanted === ''
    ? apps
    : apps.filter(({ idApp, title }) => String(idApp).includes(wanted) || title.toLowerCase().includes(wanted));
}

const describeApp = ({ idApp, title, platform, idProject }: App) => ({
  idApp: String(idApp),
  title,
  platform,
  ...(idProject === undefined ? {} : { idProject: String(idProject) }),
});

/** A number of the arguments; undefined where it is none, or out of its bounds. */
function parseCount(given: Arguments, name: string, fallback: number, most: number): number | undefined {
  if (!given.has(name)) return fallback;
  const text = single(given, name) ?? '';
  return /^\d{1,7}$/.test(text) && Number(text) <= most ? Number(text) : undefined;
}

/** Adds the methods that say what data the caller's account has: its apps, their events by day, how full the fields are. */
export function addDataRoutes(addMethod: AddMethod, { access, looks, clock }: DataRouteDependencies): void {
  const appsOf = ({ idAccount }: User): readonly App[] => access.current().appsOfAccount(idAccount);

  addMethod(['GET'], '/api/data/v1/apps.json', 'data_apps', (user, given) => {
    if (!user.canExport) return noPermission;
    const unknown = findUnknown(given, ['idApp', 'search', 'offset', 'limit']);
    if (unknown !== undefined) return unknown;
    const limit = parseCount(given, 'limit', fallbackLimit, mostLimit);
    const offset = parseCount(given, 'offset', 0, 9_999_999);
    if (limit === undefined || limit === 0) return badRequest(`Argument limit must be from 1 to ${mostLimit}`);
    if (offset === undefined) return badRequest('Argument offset is how many apps are left out before the first');
    const apps = parseApps(appsOf(user), given, false);
    if (isRefusal(apps)) return apps;
    const found = findApps(apps, single(given, 'search') ?? '');
    return { data: { apps: found.slice(offset, offset + limit).map(describeApp), total: found.length } };
  });

  const add = (ask: 'volume' | 'fields', known: readonly string[]): void =>
    addMethod(['GET'], `/api/data/v1/${ask}.json`, `data_${ask}`, async (user, given, { whileConnected }) => {
      if (!user.canExport) return noPermission;
      const unknown = findUnknown(given, known);
      if (unknown !== undefined) return unknown;
      const dates = parseDates(given, clock.nowMs());
      if (isRefusal(dates)) return dates;
      const apps = parseApps(appsOf(user), given, ask === 'fields');
      if (isRefusal(apps)) return apps;
      const kind = single(given, 'kind') ?? '';
      if (ask === 'fields' && !dataKinds.includes(kind))
        return badRequest(`Argument kind is expected: one of ${dataKinds.join(', ')}`);
      const question: DataQuestion = ask === 'volume' ? { ask, dates } : { ask, dates, kind };
      const { idAccount } = user;
      const result = await whileConnected((signal) => looks.ask({ question, apps, idAccount }, signal));
      // What was taken back meanwhile is told to nobody.
      const now = access.current().findUser(user.idUser);
      if (now === undefined || now.idAccount !== idAccount || !now.canExport) return accessDenied;
      const left = new Set(appsOf(now).map(({ idApp }) => idApp));
      return apps.every(({ idApp }) => left.has(idApp)) ? toAnswer(result, dates) : failed;
    });
  add('volume', ['idApp', 'dateFrom', 'dateTo']);
  add('fields', ['idApp', 'kind', 'dateFrom', 'dateTo']);
}

const catalogueArguments = ['idApp', 'customEventName', 'dateFrom', 'dateTo', 'days'];

/** Adds the method that answers what the custom events of an app have in their parameters. */
export function addCatalogueRoutes(addMethod: AddMethod, { access, looks, clock }: DataRouteDependencies): void {
  addMethod(['GET', 'POST'], '/api/catalogue/v1/get.json', 'catalogue', async (user, given, { whileConnected }) => {
    const { idAccount, canExport } = user;
    if (!canExport) return noPermission;
    const unknown = findUnknown(given, catalogueArguments);
    if (unknown !== undefined) return unknown;
    const customEventName = single(given, 'customEventName');
    if (given.has('customEventName') && (customEventName ?? '') === '')
      return badRequest('Argument customEventName is the name of one custom event');
    const days = parseCount(given, 'days', mostDates, mostDates);
    if (days === undefined) return badRequest(`Argument days must be from 0 to ${mostDates}`);
    const dates = given.has('dateFrom') || given.has('dateTo') ? parseDates(given, clock.nowMs()) : undefined;
    if (dates !== undefined && isRefusal(dates)) return dates;
    const findApp = () => parseApps(access.current().appsOfAccount(idAccount), given, true);
    const apps = findApp();
    if (isRefusal(apps)) return apps;
    const question = {
      ask: 'catalogue',
      days,
      ...(dates === undefined ? {} : { dates }),
      ...(customEventName === undefined ? {} : { customEventName }),
    } as const;
    const result = await whileConnected((signal) => looks.ask({ question, apps, idAccount }, signal));
    // What was taken away meanwhile is told to nobody.
    if (isRefusal(findApp())) return notFound;
    if (result.kind !== 'catalogue') return refuseEnd(result);
    return { data: renderCatalogue(result.catalogue, customEventName === undefined) };
  });
}

/** The answer; events that are listed have no parameters. */
function renderCatalogue({ version, customEvents, more, ...rest }: CurrentCatalogue, isListed: boolean): unknown {
  return {
    ...(version === undefined ? {} : { version: String(version) }),
    customEvents: customEvents.map(({ parameters, ...event }) => (isListed ? event : { ...event, parameters })),
    more: { names: more.names, events: more.events },
    ...rest,
  };
}
