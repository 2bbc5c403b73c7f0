import type { FixtureEvent } from './lake-fixture.ts';

/** An event as a client imported it, with the fields that the service added. Times are Unix seconds. */
export interface ImportedEvent {
  readonly eventId: string;
  readonly kind: 'registration' | 'login' | 'custom_event';
  readonly idApp: number;
  readonly eventTimestamp: number;
  readonly available: number;
  /** The imported fields, under the API's names. */
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface OracleApp {
  readonly idApp: number;
  readonly platform: 'mobile-a' | 'mobile-b' | 'web' | 'mini-app' | 'game';
  readonly idAccount: number;
  readonly title: string;
  readonly sdkKey: string;
  readonly idProject?: number;
}

export const oracleApps: readonly OracleApp[] = [
  { idApp: 11, platform: 'mobile-a', idAccount: 1, title: 'Dragons, "HD"', sdkKey: 'sdk-eleven', idProject: 3 },
  { idApp: 12, platform: 'mobile-b', idAccount: 1, title: 'Ёлка', sdkKey: 'sdk-twelve', idProject: 4 },
  { idApp: 13, platform: 'web', idAccount: 1, title: 'Web', sdkKey: 'sdk-thirteen' },
  { idApp: 14, platform: 'game', idAccount: 1, title: '=1+1', sdkKey: 'sdk-fourteen', idProject: 4 },
  { idApp: 15, platform: 'mini-app', idAccount: 1, title: 'Mini', sdkKey: 'sdk-fifteen' },
  { idApp: 91, platform: 'web', idAccount: 2, title: 'Foreign', sdkKey: 'sdk-foreign', idProject: 3 },
];

/**
 * Texts that have broken a CSV writer, an SQL statement, a log or a path before. Each must be returned byte for byte.
 */
export const hostileTexts: readonly string[] = [
  "'; DROP TABLE events; --",
  "' OR '1'='1",
  '") UNION SELECT 1 --',
  '$kind',
  '$1',
  '${name}',
  '../../etc/passwd',
  '%2e%2e%2f',
  'a,b,c',
  'say "hi"',
  '"',
  '""',
  "'",
  "['a','b']",
  '\\',
  "\\'",
  '\\n',
  'line\nbreak',
  'line\r\nbreak',
  'carriage\rreturn',
  'tab\tstop',
  'null\u0000byte',
  ' leading and trailing ',
  '=1+1',
  '+1',
  '-1',
  '@SUM(A1)',
  '#comment',
  'NULL',
  'null',
  'true',
  '1e999',
  '0x10',
  '2025-01-01',
  'ünïcödé',
  'Ёлка',
  '日本語',
  '🎮🏆',
  '\u202Ereversed',
  '\u2028line separator',
  '\uFEFFbom',
  '__proto__',
  'constructor',
  'a&b=c',
  'a+b',
  'a%20b',
  '<script>alert(1)</script>',
  'x'.repeat(255),
];

/** Days around clock changes of a zone, some at midnight. */
export const daylightDays: readonly { readonly zone: string; readonly date: string }[] = [
  { zone: 'Europe/Berlin', date: '2025-03-30' },
  { zone: 'Europe/Berlin', date: '2025-10-26' },
  { zone: 'America/New_York', date: '2025-11-02' },
  { zone: 'America/Santiago', date: '2024-09-08' },
  { zone: 'America/Santiago', date: '2025-04-06' },
  { zone: 'America/Sao_Paulo', date: '2018-11-04' },
  { zone: 'Australia/Sydney', date: '2025-04-06' },
  { zone: 'Pacific/Auckland', date: '2024-09-29' },
  { zone: 'Asia/Tehran', date: '2021-03-22' },
  { zone: 'America/St_Johns', date: '2010-11-07' },
  { zone: 'Atlantic/Azores', date: '2024-10-27' },
  { zone: 'Europe/Moscow', date: '2014-10-26' },
  { zone: 'Pacific/Apia', date: '2011-12-30' },
  { zone: 'Asia/Jerusalem', date: '2023-10-29' },
];

/** Returns a generator of numbers below a bound, the same for the same seed (mulberry32). */
export function createRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const hex = (random: (below: number) => number, length: number): string =>
  Array.from({ length }, () => random(16).toString(16)).join('');
const uuid = (random: (below: number) => number): string =>
  `${hex(random, 8)}-${hex(random, 4)}-${hex(random, 4)}-${hex(random, 4)}-${hex(random, 12)}`;

function platformFields(app: OracleApp, random: (below: number) => number): Record<string, unknown> {
  switch (app.platform) {
    case 'mobile-a':
      return { instanceId: uuid(random), idfa: uuid(random), iosVendorId: uuid(random), adTrackingEnabled: random(2) };
    case 'mobile-b':
      return {
        instanceId: uuid(random),
        gaid: uuid(random),
        appSetId: uuid(random),
        androidId: hex(random, 16),
        adTrackingEnabled: 1,
      };
    case 'web':
      return { lvid: hex(random, 32), adBlocker: random(2), userAgent: 'Mozilla/5.0 (X11; "Linux", x86_64)' };
    case 'game':
      return { lvid: hex(random, 32), sezamUserId: '9007199254740993', hwid: '18446744073709551615' };
    case 'mini-app':
      return { customPlatformUserId: `vk${random(100)}`, xPlatform: 'mobile_web' };
    default:
      return app.platform satisfies never;
  }
}

const names = ['level_up', 'purchase', 'a,b', 'tutorial end', 'логин'];

function mixedEvents(): ImportedEvent[] {
  const random = createRandom(20_251);
  const start = Date.parse('2025-05-01T00:00:00Z') / 1000;
  return Array.from({ length: 600 }, (_, index) => {
    const app = oracleApps[random(oracleApps.length)] ?? oracleApps[0];
    if (app === undefined) throw new Error('no apps');
    const kind =
      (['custom_event', 'custom_event', 'custom_event', 'registration', 'login'] as const)[random(5)] ?? 'login';
    const params = Object.fromEntries(
      Array.from({ length: random(4) }, (_unused, key) => [`p${key}`, `v${random(1000)}`]),
    );
    const eventTimestamp = start + random(10 * 86_400);
    return {
      eventId: `mixed-${index}`,
      kind,
      idApp: app.idApp,
      eventTimestamp,
      available: eventTimestamp + 1 + random(5000) / 1000,
      fields: {
        connectionType: random(3),
        bluetoothEnabled: random(3),
        ...(random(3) > 0 || kind !== 'custom_event' ? { customUserId: `user-${random(50)}` } : {}),
        ...(random(2) === 0
          ? { age: random(129), idGender: random(3), ipv4: `10.0.0.${random(256)}`, ipv6: '2001:db8::1' }
          : {}),
        ...(random(4) > 0 ? platformFields(app, random) : {}),
        ...(kind === 'custom_event'
          ? { customEventName: names[random(names.length)], ...(random(2) === 0 ? { customEventParams: params } : {}) }
          : {}),
      },
    };
  });
}

function hostileEvents(): ImportedEvent[] {
  const start = Date.parse('2025-06-15T10:00:00Z') / 1000;
  return hostileTexts.map((text, index) => ({
    eventId: `hostile-${index}`,
    kind: 'custom_event',
    idApp: 13,
    eventTimestamp: start + index,
    available: start + index + 3,
    fields: {
      customUserId: text,
      customEventName: text,
      userAgent: text,
      customEventParams: { [text]: text, plain: `${text}${text}`.slice(0, 255) },
    },
  }));
}

function daylightEvents(): ImportedEvent[] {
  return daylightDays.flatMap(({ zone, date }, day) => {
    const noon = Date.parse(`${date}T12:00:00Z`) / 1000;
    return Array.from({ length: 4 * 84 }, (_, index) => {
      const eventTimestamp = noon - 42 * 3600 + index * 900 + (index % 3) - 1;
      return {
        eventId: `${zone}-${day}-${index}`,
        kind: 'login' as const,
        idApp: 11,
        eventTimestamp,
        available: eventTimestamp + 5,
        fields: { customUserId: zone },
      };
    });
  });
}

/** An event as versions before this one stored it: of a device, and of a user whose id is empty. */
function eventOfNobody(): ImportedEvent {
  const eventTimestamp = Date.parse('2025-05-20T10:00:00Z') / 1000;
  return {
    eventId: 'of-nobody',
    kind: 'custom_event',
    idApp: 13,
    eventTimestamp,
    available: eventTimestamp + 5,
    fields: { customUserId: '', lvid: 'l'.repeat(32), customEventName: 'level_up' },
  };
}

/** Every event of the export tests, in the order of the lake. */
export const importedEvents: readonly ImportedEvent[] = [
  ...mixedEvents(),
  ...hostileEvents(),
  ...daylightEvents(),
  eventOfNobody(),
];

const columnName = (field: string): string => field.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Converts an imported event to a row of the lake. */
export function toFixtureEvent(event: ImportedEvent): FixtureEvent {
  const columns = Object.fromEntries(Object.entries(event.fields).map(([field, value]) => [columnName(field), value]));
  return {
    event_id: event.eventId,
    kind: event.kind,
    id_app: event.idApp,
    event_time: event.eventTimestamp,
    received_at: event.eventTimestamp,
    available_at: event.available,
    ...columns,
  };
}
