import type { AccessReader } from '../../access/access.ts';
import type { CurrentCatalogue } from '../../lake/catalogue/current-catalogue.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Looks } from '../jobs/looks.ts';
import { quote } from './arguments.ts';
import { parseDates, refuseEnd } from './data-routes.ts';
import { badRequest, isRefusal, type Refusal } from './envelope.ts';
import { single, type AddMethod } from './methods-routes.ts';

export interface CatalogueRouteDependencies {
  readonly access: AccessReader;
  readonly looks: Looks;
  readonly clock: Clock;
}

/** Days of each event, at most, as the catalogue has them. */
const mostDays = 400;
const known = ['idApp', 'customEventName', 'dateFrom', 'dateTo', 'days'];

/** An app that the account has not is not told from one that nobody has. */
const notFound: Refusal = { code: 404, detail: 'The app is not found' };

/** Adds the method that answers what the custom events of an app have in their parameters. */
export function addCatalogueRoutes(addMethod: AddMethod, { access, looks, clock }: CatalogueRouteDependencies): void {
  addMethod(['GET', 'POST'], '/api/catalogue/v1/get.json', 'catalogue', async (user, given, { whileConnected }) => {
    const { idAccount, canExport } = user;
    if (!canExport) return badRequest('The account lacks export permissions');
    for (const name of given.keys()) if (!known.includes(name)) return badRequest(`Unknown argument ${quote(name)}`);
    const idApp = single(given, 'idApp') ?? '';
    if (!/^[1-9]\d{0,14}$/.test(idApp)) return badRequest('Argument idApp is expected: the id of one app');
    const customEventName = single(given, 'customEventName');
    if (given.has('customEventName') && (customEventName ?? '') === '')
      return badRequest('Argument customEventName is the name of one custom event');
    const days = given.has('days') ? (single(given, 'days') ?? '') : String(mostDays);
    if (!/^\d{1,3}$/.test(days) || Number(days) > mostDays)
      return badRequest(`Argument days must be from 0 to ${mostDays}`);
    const dates = given.has('dateFrom') || given.has('dateTo') ? parseDates(given, clock.nowMs()) : undefined;
    if (dates !== undefined && isRefusal(dates)) return dates;
    const findOwn = () =>
      access
        .current()
        .appsOfAccount(idAccount)
        .find((app) => app.idApp === Number(idApp));
    const app = findOwn();
    if (app === undefined) return notFound;
    const question = {
      ask: 'catalogue',
      days: Number(days),
      ...(dates === undefined ? {} : { dates }),
      ...(customEventName === undefined ? {} : { customEventName }),
    } as const;
    const result = await whileConnected((signal) => looks.ask({ question, apps: [app], idAccount }, signal));
    // What was taken away meanwhile is told to nobody.
    if (findOwn() === undefined) return notFound;
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
