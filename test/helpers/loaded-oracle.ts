import adMediators from '../../schemas/dictionaries/ad-mediators.json' with { type: 'json' };
import countryCodes from '../../schemas/dictionaries/country-codes.json' with { type: 'json' };
import countries from '../../schemas/dictionaries/countries.json' with { type: 'json' };
import purchaseTypes from '../../schemas/dictionaries/purchase-types.json' with { type: 'json' };
import { oracleApps, type OracleApp } from './export-events.ts';
import { dateInZone, isInTime, literalOf, personNames, timeInZone, type OracleRequest } from './export-oracle.ts';
import type { LoadedRow } from './loaded-rows.ts';

/** The table of each event of spec/datasets.md that is loaded. */
const tables: Readonly<Record<string, string>> = {
  installs: 'installs',
  reinstalls: 'reinstalls',
  hits: 'hits',
  userHits: 'hits',
  deeplinks: 'deeplinks',
  userDeeplinks: 'deeplinks',
  reengagements: 'reengagements',
  userReengagements: 'reengagements',
  payments: 'payments',
  testPayments: 'payments',
  trialPayments: 'payments',
  userPayments: 'payments',
  userTrialPayments: 'payments',
  adMonetization: 'adMonetization',
  userAdMonetization: 'adMonetization',
  appUpdates: 'appUpdates',
  appleSKANpostbacks: 'appleSKANpostbacks',
  partnerSKANpostbacks: 'partnerSKANpostbacks',
};

/** The events whose rows are loaded. */
export const loadedEvents: readonly string[] = Object.keys(tables);

/** Returns the table with the rows of an event. */
export function tableOf(event: string): string {
  const table = tables[event];
  if (table === undefined) throw new Error(`${event} is not loaded`);
  return table;
}

function isOfEvent(event: string, row: LoadedRow): boolean {
  const [isTest, isTrial] = [row['isTest'] === 1, row['isTrial'] === 1];
  const isUsers = event.startsWith('user');
  const hasUser = row['customUserId'] !== undefined && row['customUserId'] !== '';
  const sort = event.replace(/^user/, '').toLowerCase();
  const ofSort = {
    payments: !isTest && !isTrial,
    testpayments: isTest,
    trialpayments: isTrial && !isTest,
  }[sort];
  return (!isUsers || hasUser) && (ofSort ?? true);
}

/** The countries that rows can name, under the names of their fields. */
const codes: readonly Readonly<Record<string, unknown>>[] = [
  ...Object.entries(countryCodes.byId).map(([id, { alpha2, numeric }]) => ({
    idCountry: Number(id),
    idCountryISOAlpha2: alpha2,
    idCountryISONumeric: numeric,
  })),
  ...Object.entries(countryCodes.codesWithoutId).map(([alpha2, numeric]) => ({
    idCountryISOAlpha2: alpha2,
    idCountryISONumeric: numeric,
  })),
];

/** Adds the other codes of the first country that the row names; given codes stay. */
function withCountry(row: LoadedRow): LoadedRow {
  const said = ['idCountry', 'idCountryISOAlpha2', 'idCountryISONumeric'].find((name) => row[name] !== undefined);
  const country = said === undefined ? undefined : codes.find((code) => code[said] === row[said]);
  return { ...country, ...row };
}

/** Titles that a dictionary has, by the id's field. */
const dictionaries: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  idCountry: countries,
  rooted: { 0: 'unknown', 1: 'rooted', 2: 'not rooted' },
  idConnectionType: { 0: 'unknown', 1: 'mobile', 2: 'wi-fi' },
  idPurchaseType: purchaseTypes,
  idAdMediator: adMediators,
};

/** Fields of payments that export a default if the row has no value. */
const defaults: Readonly<Record<string, number>> = { isTest: 0, isTrial: 0 };
const doubles = ['screenDiagonal', 'xdpi', 'ydpi'];
/** Cells that only imported or derived rows have. */
const empty = ['countCustomEvent', 'countEvent', 'duration'];

function plainCell(selector: string, row: LoadedRow): string {
  const value = (row[selector] ?? (selector === 'advertisingId' ? row['gaid'] : undefined)) as
    | string
    | number
    | undefined;
  if (value === undefined) return '';
  if (doubles.includes(selector)) return Number.isInteger(value) ? `${String(value)}.0` : String(value);
  return String(value);
}

function cell(event: string, selector: string, row: LoadedRow, app: OracleApp, zone: string): string {
  const ofApp: Readonly<Record<string, unknown>> = {
    idApp: app.idApp,
    SDKKey: app.sdkKey,
    idAppTitle: app.title,
    idAccount: app.idAccount,
    idProject: app.idProject ?? '',
    idPlatformTitle: app.platform,
  };
  if (selector in ofApp) return String(ofApp[selector]);
  if (empty.includes(selector)) return '';
  if (selector === 'dtEvent') return dateInZone(zone, Number(row['tsEvent']));
  if (selector === 'dateTimeEvent') return timeInZone(zone, Number(row['tsEvent']));
  if (selector === 'params.name' || selector === 'params.value')
    return literalOf((row[selector] as readonly string[] | undefined) ?? []);
  const identified = selector.replace(/Title$/, '');
  const titles = selector.endsWith('Title') ? dictionaries[identified] : undefined;
  const title = titles?.[String(row[identified])];
  if (title !== undefined) return title;
  const given = plainCell(selector, row);
  const isDefault = given === '' && selector in defaults && tableOf(event) === 'payments';
  return isDefault ? String(defaults[selector]) : given;
}

/** Filters by a field: the values that pass; `0` of two dictionaries means unknown. */
const filters = [
  'idAd',
  'idCampaign',
  'idCountry',
  'idPartner',
  'isVerified',
  'idPurchaseType',
  'rooted',
  'idAdMediator',
  ...personNames,
  'idProfile',
  'idDevice',
];
const zeroIsUnknown = ['rooted', 'idAdMediator'];

function passesFilters(request: OracleRequest, row: LoadedRow, app: OracleApp): boolean {
  const wanted = (name: string): readonly string[] | undefined => {
    const value = request[name];
    return typeof value === 'string' ? [value] : value;
  };
  const byApp =
    wanted('idApp') === undefined && wanted('SDKKey') === undefined
      ? true
      : wanted('idApp')?.includes(String(app.idApp)) === true || wanted('SDKKey')?.includes(app.sdkKey) === true;
  const account = wanted('idAccount')?.includes(String(app.idAccount)) ?? true;
  const project = wanted('idProject')?.includes(String(app.idProject)) ?? true;
  const fields = filters.every((name) => {
    const values = wanted(name);
    const given = row[name] ?? (name === 'advertisingId' ? row['gaid'] : undefined);
    const own = (given ?? (zeroIsUnknown.includes(name) ? 0 : undefined)) as number | undefined;
    return values === undefined || (own !== undefined && values.includes(String(own)));
  });
  return byApp && account && project && fields;
}

/**
 * Returns the loaded rows that a user of account 1 must get, header first, as text cells. Leaves out values that only
 * the service knows (`eventId` of a row without one, `tsInsert`).
 */
export function expectedLoadedRows(request: OracleRequest, loaded: readonly LoadedRow[]): string[][] {
  const zone = (request['timezone'] as string | undefined) ?? 'Europe/Moscow';
  const rows = loaded.map(withCountry).flatMap((row) => {
    const app = oracleApps.find(({ idApp, idAccount }) => idApp === row['idApp'] && idAccount === 1);
    if (app === undefined || !isOfEvent(request.event, row) || !passesFilters(request, row, app)) return [];
    if (!isInTime(request, zone, Number(row['tsEvent']))) return [];
    return [request.selectors.map((selector) => cell(request.event, selector, row, app, zone))];
  });
  return [[...request.selectors], ...rows];
}
