import { deriveRows, type DerivedRow } from './derived-oracle.ts';
import { oracleApps, type ImportedEvent, type OracleApp } from './export-events.ts';

/** Parameters of an export as the cases write them: the API's names, sets as arrays, everything else as text. */
export interface OracleRequest {
  readonly event: string;
  readonly selectors: readonly string[];
  readonly [parameter: string]: string | readonly string[] | undefined;
}

const kinds: Readonly<Record<string, ImportedEvent['kind']>> = {
  customEvents: 'custom_event',
  customEvent: 'custom_event',
  userCustomEvents: 'custom_event',
  userRegistrations: 'registration',
  deviceRegistrations: 'registration',
  userAuthorisations: 'login',
  deviceAuthorisations: 'login',
};
const deviceFields = ['instanceId', 'lvid', 'gaid', 'androidId', 'appSetId', 'idfa', 'iosVendorId'];

const formats = new Map<string, Intl.DateTimeFormat>();

/** Returns the date in a zone at a time, by JavaScript's calendar rather than that of the lake. */
export function dateInZone(zone: string, seconds: number): string {
  const format =
    formats.get(zone) ??
    new Intl.DateTimeFormat('en-US', { timeZone: zone, year: 'numeric', month: '2-digit', day: '2-digit' });
  formats.set(zone, format);
  const parts = Object.fromEntries(format.formatToParts(seconds * 1000).map((part) => [part.type, part.value]));
  return `${parts['year']}-${parts['month']}-${parts['day']}`;
}

/**
 * Returns the first instant of a day: the earliest minute at which the zone's calendar shows that day or a later one.
 */
export function firstInstant(zone: string, date: string): number {
  const midnight = Date.parse(`${date}T00:00:00Z`) / 1000;
  for (let moment = midnight - 20 * 3600; moment < midnight + 44 * 3600; moment += 60) {
    if (dateInZone(zone, moment) >= date) return moment;
  }
  throw new Error(`${zone} has no ${date}`);
}

function escapeItem(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll("'", "\\'").replaceAll('\n', '\\n').replaceAll('\r', '\\r');
}

/** Returns the cell of a list. */
export function literalOf(values: readonly string[]): string {
  return `[${values.map((value) => `'${escapeItem(value)}'`).join(',')}]`;
}

/** Selectors that read an imported field of another name. */
const fieldOf: Readonly<Record<string, string>> = {
  advertisingId: 'gaid',
  idConnectionType: 'connectionType',
  eventName: 'customEventName',
};
/** Selectors that read the imported field of the same name. */
const sameName = [
  'adTrackingEnabled',
  'androidId',
  'bluetoothEnabled',
  'customUserId',
  'idfa',
  'instanceId',
  'iosVendorId',
  'appSetId',
  'gaid',
  'lvid',
  'ipv4',
  'ipv6',
  'idGender',
  'age',
  'adBlocker',
  'userAgent',
  'customPlatformUserId',
  'xPlatform',
  'sezamUserId',
  'hwid',
];
const connectionTitles = ['unknown', 'mobile', 'wi-fi'];

function cell(selector: string, row: DerivedRow, app: OracleApp, zone: string): string | number | undefined {
  const { event } = row;
  const params = event.fields['customEventParams'] as Readonly<Record<string, string>> | undefined;
  const custom = event.kind === 'custom_event';
  switch (selector) {
    case 'eventId':
      return event.eventId;
    case 'idApp':
      return event.idApp;
    case 'SDKKey':
      return app.sdkKey;
    case 'idAppTitle':
      return app.title;
    case 'idAccount':
      return app.idAccount;
    case 'idProject':
      return app.idProject;
    case 'idPlatformTitle':
      return app.platform;
    case 'dtEvent':
      return dateInZone(zone, event.eventTimestamp);
    case 'tsEvent':
      return event.eventTimestamp;
    case 'tsInsert':
      return Math.floor(event.available);
    case 'countCustomEvent':
      return custom ? 1 : '';
    case 'params.name':
      return custom ? literalOf(Object.keys(params ?? {})) : '';
    case 'params.value':
      return custom ? literalOf(Object.values(params ?? {})) : '';
    case 'countEvent':
      return row.countEvent;
    case 'duration':
      return row.duration;
    case 'idConnectionTypeTitle':
      return connectionTitles[event.fields['connectionType'] as number];
    default:
      return sameName.includes(selector) || selector in fieldOf
        ? (event.fields[fieldOf[selector] ?? selector] as string | number | undefined)
        : '';
  }
}

/** Filters on ids of a person or a device. */
export const personNames: readonly string[] = [
  'customUserId',
  'customPlatformUserId',
  'sezamUserId',
  'instanceId',
  'lvid',
  'gaid',
  'advertisingId',
  'androidId',
  'appSetId',
  'idfa',
  'iosVendorId',
  'hwid',
];

/** Writes a set of texts as one argument: commas separate its values. */
export const encodeSet = (values: readonly string[]): string =>
  values.map((value) => encodeURIComponent(value.replaceAll(/[\\,]/g, '\\$&'))).join(',');

function passesFilters(request: OracleRequest, event: ImportedEvent, app: OracleApp): boolean {
  const set = (name: string): readonly string[] | undefined => request[name] as readonly string[] | undefined;
  const one = (name: string): string | undefined => request[name] as string | undefined;
  const byApp =
    set('idApp') === undefined && set('SDKKey') === undefined
      ? true
      : set('idApp')?.includes(String(app.idApp)) === true || set('SDKKey')?.includes(app.sdkKey) === true;
  const account = set('idAccount')?.includes(String(app.idAccount)) ?? true;
  const project = set('idProject')?.includes(String(app.idProject)) ?? true;
  const named = set('eventName');
  const name =
    named === undefined || named.includes(String(event.fields['customEventName'])) !== (one('eventNameInvert') === '1');
  const params = event.fields['customEventParams'] as Readonly<Record<string, string>> | undefined;
  const hasParams = Object.entries(request).every(([argument, values]) => {
    const [, operator, param] = /^params(Not|Contain|Greater|Less|Set|)\[(.+)\]$/s.exec(argument) ?? [];
    if (operator === undefined || param === undefined) return true;
    const value = Object.hasOwn(params ?? {}, param) ? params?.[param] : undefined;
    return comparesParam(operator, value, [values ?? []].flat());
  });
  const unknowable = ['idAd', 'idCampaign', 'idCountry', 'idPartner'].every(
    (parameter) => set(parameter) === undefined,
  );
  const rooted = one('rooted') === undefined || one('rooted') === '0';
  const ofPerson = personNames.every((id) => {
    const value = event.fields[fieldOf[id] ?? id] as string | undefined;
    return set(id)?.includes(value ?? '') ?? true;
  });
  return ofPerson && byApp && account && project && name && hasParams && unknowable && rooted;
}

/** Reports whether a parameter's value, undefined if there is none, passes a filter of the request. */
function comparesParam(operator: string, value: string | undefined, wanted: readonly string[]): boolean {
  // Leading zeros make an identifier.
  const isNumber = /^-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?$/i.test(value ?? '') && Number.isFinite(Number(value));
  switch (operator) {
    case 'Not':
      return value === undefined || !wanted.includes(value);
    case 'Contain':
      return value !== undefined && wanted.some((text) => value.includes(text));
    case 'Greater':
      return isNumber && Number(value) > Number(wanted[0]);
    case 'Less':
      return isNumber && Number(value) < Number(wanted[0]);
    case 'Set':
      return ((value ?? '') !== '') === (wanted[0] === '1');
    default:
      return value !== undefined && wanted.includes(value);
  }
}

/** Reports whether a time is within a request's timestamps, and its date in the zone within the request's days. */
export function isInTime(request: OracleRequest, zone: string, seconds: number): boolean {
  const { dateFrom, dateTo, tsFrom, tsTo } = request as Readonly<Record<string, string | undefined>>;
  if (seconds < Number(tsFrom ?? -Infinity) || seconds > Number(tsTo ?? Infinity)) return false;
  const date = dateInZone(zone, seconds);
  return dateFrom === undefined || dateTo === undefined || (date >= dateFrom && date <= dateTo);
}

const ownApp = ({ idApp }: ImportedEvent): OracleApp | undefined =>
  oracleApps.find((candidate) => candidate.idApp === idApp && candidate.idAccount === 1);

/** Returns the imported events of the request's event. */
function rowsOfKind({ event: name }: OracleRequest, events: readonly ImportedEvent[]): DerivedRow[] {
  return events
    .filter(
      (event) =>
        event.kind === kinds[name] &&
        !(name === 'userCustomEvents' && (event.fields['customUserId'] ?? '') === '') &&
        !(name.startsWith('device') && !deviceFields.some((field) => event.fields[field] !== undefined)),
    )
    .map((event) => ({ event }));
}

/**
 * Returns the rows that a user of account 1 must get, header first, as text cells: computed from the imported events
 * alone.
 */
export function expectedRows(request: OracleRequest, events: readonly ImportedEvent[]): string[][] {
  const zone = (request['timezone'] as string | undefined) ?? 'Europe/Moscow';
  const availableFrom = Number(request['availabilityTsFrom'] ?? -Infinity);
  const availableTo = Number(request['availabilityTsTo'] ?? Infinity);
  const chosen = events.filter((event) => {
    const app = ownApp(event);
    return app !== undefined && passesFilters(request, event, app);
  });
  const rows = deriveRows(request.event, chosen, (seconds) => dateInZone(zone, seconds)) ?? rowsOfKind(request, chosen);
  const inTime = rows.filter(({ event }) => {
    const available = Math.floor(event.available);
    return isInTime(request, zone, event.eventTimestamp) && available >= availableFrom && available <= availableTo;
  });
  return [
    [...request.selectors],
    ...inTime.map((row) =>
      request.selectors.map((selector) => String(cell(selector, row, ownApp(row.event) as OracleApp, zone) ?? '')),
    ),
  ];
}

/** Parses RFC 4180 text into rows of cells: quotes doubled inside quotes, rows end in LF. */
export function parseCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let value = '';
  let quoted = false;
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index];
    if (quoted) {
      if (character !== '"') value += character;
      else if (text[index + 1] === '"') value += text[(index += 1)];
      else quoted = false;
    } else if (character === '"') quoted = true;
    else if (character === ',' || character === '\n') {
      row.push(value);
      value = '';
      if (character === '\n') {
        rows.push(row);
        row = [];
      }
    } else value += character;
  }
  if (value !== '' || row.length > 0 || quoted) throw new Error('the CSV ends inside a row');
  return rows;
}
