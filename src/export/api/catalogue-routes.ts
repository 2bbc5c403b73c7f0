import type { AccessReader } from '../../access/access.ts';
import type { Catalogue } from '../../lake/catalogue/read-catalogue.ts';
import { createKeyedMutex } from '../../runtime/async/mutex.ts';
import { createSlots } from '../../runtime/async/slots.ts';
import { quote } from './arguments.ts';
import { badRequest, type Refusal } from './envelope.ts';
import { single, type AddMethod } from './methods-routes.ts';

export interface CatalogueRouteDependencies {
  readonly access: AccessReader;
  /** Reads the catalogue of an app; without an event its custom events alone, else that event with its parameters. */
  readonly read: (idApp: number, event?: string) => Promise<Catalogue>;
}

/** Each reads through an engine of its own; one of an account, so that the other is there for others. */
const readsAtOnce = 2;
/** Calls of an account, those that wait and those that read; of one that makes more, the client comes again. */
const mostOfAccount = 8;
/** Days of each event, at most, as the catalogue has them. */
const mostDays = 400;

/** An app that the account has not is not told from one that nobody has. */
const notFound: Refusal = { code: 404, detail: 'The app is not found' };
const busy: Refusal = {
  code: 429,
  detail: 'Too many calls of the account for the catalogue at once',
  retryAfterSeconds: 1,
};

/** Adds the method that answers what the custom events of an app have in their parameters. */
export function addCatalogueRoutes(addMethod: AddMethod, { access, read }: CatalogueRouteDependencies): void {
  const slots = createSlots(readsAtOnce);
  const accounts = createKeyedMutex();
  const callsOf = new Map<number, number>();

  /** Reads in its turn; undefined: the account has too many calls that wait. */
  async function readInTurn(idAccount: number, idApp: number, event?: string): Promise<Catalogue | undefined> {
    const calls = callsOf.get(idAccount) ?? 0;
    if (calls >= mostOfAccount) return undefined;
    callsOf.set(idAccount, calls + 1);
    try {
      return await accounts.run(idAccount, () => slots.run(() => read(idApp, event)));
    } finally {
      const left = (callsOf.get(idAccount) ?? 1) - 1;
      if (left > 0) callsOf.set(idAccount, left);
      else callsOf.delete(idAccount);
    }
  }

  addMethod(['GET', 'POST'], '/api/catalogue/v1/get.json', 'catalogue', async ({ idAccount, canExport }, given) => {
    if (!canExport) return badRequest('The account lacks export permissions');
    for (const name of given.keys())
      if (!['idApp', 'customEventName', 'days'].includes(name)) return badRequest(`Unknown argument ${quote(name)}`);
    const idApp = single(given, 'idApp') ?? '';
    if (!/^[1-9]\d{0,14}$/.test(idApp)) return badRequest('Argument idApp is expected: the id of one app');
    const customEventName = single(given, 'customEventName');
    if (given.has('customEventName') && (customEventName ?? '') === '')
      return badRequest('Argument customEventName is the name of one custom event');
    const days = given.has('days') ? (single(given, 'days') ?? '') : String(mostDays);
    if (!/^\d{1,3}$/.test(days) || Number(days) > mostDays)
      return badRequest(`Argument days must be from 0 to ${mostDays}`);
    const isOwn = (): boolean => access.current().findApp(Number(idApp))?.idAccount === idAccount;
    if (!isOwn()) return notFound;
    const catalogue = await readInTurn(idAccount, Number(idApp), customEventName);
    if (catalogue === undefined) return busy;
    // What was taken away meanwhile is told to nobody.
    if (!isOwn()) return notFound;
    return { data: renderCatalogue(catalogue, customEventName, Number(days)) };
  });
}

/** The answer; events that are listed have no parameters. */
function renderCatalogue(
  { version, customEvents, ...rest }: Catalogue,
  customEventName: string | undefined,
  most: number,
): unknown {
  const isListed = customEventName === undefined;
  return {
    ...(version === undefined ? {} : { version: String(version) }),
    customEvents: customEvents.map(({ parameters, days, ...event }) => ({
      ...event,
      days: days.slice(0, most),
      ...(isListed ? {} : { parameters }),
    })),
    ...rest,
  };
}
