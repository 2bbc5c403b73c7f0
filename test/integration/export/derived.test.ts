import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createExportArea, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { derivedEvents, zones } from '../../helpers/derived-oracle.ts';
import { createRandom, oracleApps, toFixtureEvent, type ImportedEvent } from '../../helpers/export-events.ts';
import { expectedRows, parseCsv, type OracleRequest } from '../../helpers/export-oracle.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { inTurn } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { runHere } from '../../helpers/worker-here.ts';

const start = Date.parse('2025-02-01T00:00:00Z') / 1000;
const daySeconds = 86_400;
/** Intervals between two events of a history, s: at the limits of a session and of a day. */
const pauses = [0, 0, 1, 60, 1799, 1800, 1801, 3600, 43_200, daySeconds, 9 * daySeconds];
const random = createRandom(1405);
const pick = <T>(values: readonly T[]): T => values[random(values.length)] as T;

/** Users and devices whose ids are shared by apps, and events of one, of both and of neither. */
function histories(): ImportedEvent[] {
  return Array.from({ length: 60 }, (_unused, history) => {
    let eventTimestamp = start + random(20 * daySeconds);
    const { idApp } = pick(oracleApps);
    return Array.from({ length: 1 + random(40) }, (_nothing, index) => {
      eventTimestamp += pick(pauses);
      const kind = pick(['custom_event', 'login', 'registration'] as const);
      const isLate = random(10) === 0;
      return {
        eventId: `h${history}-${String(random(1_000_000)).padStart(6, '0')}-${index}`,
        kind,
        idApp,
        eventTimestamp,
        available: eventTimestamp + (isLate ? 30 * daySeconds : 2),
        fields: {
          ...(random(4) > 0 ? { customUserId: random(12) === 0 ? '' : `user ${history % 20}` } : {}),
          ...(random(3) > 0 ? { lvid: String(history % 25).padStart(32, 'v') } : {}),
          ...(random(3) === 0 ? { gaid: String(history % 25).padStart(36, 'v') } : {}),
          ...(kind === 'custom_event' ? { customEventName: 'level', customEventParams: { n: String(index) } } : {}),
        },
      };
    });
  }).flat();
}

/** A device without a pause: its one session is followed for months. */
function restless(): ImportedEvent[] {
  return Array.from({ length: 3600 }, (_unused, index) => ({
    eventId: `restless-${String(index).padStart(5, '0')}`,
    kind: 'login' as const,
    idApp: 14,
    eventTimestamp: start + index * 1790,
    available: start + index * 1790 + 3,
    fields: { customUserId: 'restless', lvid: 'r'.repeat(32) },
  }));
}

/** A user around midnight in St. John's, where clocks were set back across it, a minute after it. */
function nightOwl(): ImportedEvent[] {
  const midnight = Date.parse('2010-11-07T02:30:00Z') / 1000;
  return Array.from({ length: 40 }, (_unused, index) => ({
    eventId: `owl-${String(index).padStart(2, '0')}`,
    kind: 'login' as const,
    idApp: 11,
    eventTimestamp: midnight - 7200 + index * 240,
    available: midnight + index,
    fields: { customUserId: `owl ${index % 2}`, lvid: 'o'.repeat(32) },
  }));
}

/** An event that occurs twice: its key was reused after 24 hours. */
function twins(): ImportedEvent[] {
  const event = {
    eventId: 'twin',
    kind: 'login' as const,
    idApp: 13,
    eventTimestamp: start + 3 * daySeconds,
    available: start + 3 * daySeconds,
    fields: { customUserId: 'twin' },
  };
  return [event, event];
}

const events = [...histories(), ...restless(), ...nightOwl(), ...twins()];

function toDay(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 10);
}

/** A request for a derived event over a random time: days of a zone, or seconds that may cut days and sessions. */
function drawRequest(event: string, index: number): OracleRequest {
  const from = start - daySeconds + random(30 * daySeconds);
  const to = from + pick([0, 1800, 7200, daySeconds, 5 * daySeconds, 60 * daySeconds]);
  return {
    event,
    selectors: [
      'eventId',
      'idApp',
      'tsEvent',
      'dtEvent',
      'customUserId',
      'lvid',
      'eventName',
      'params.value',
      'countCustomEvent',
      'countEvent',
      'duration',
      'idAppTitle',
    ],
    timezone: zones[index % zones.length],
    ...(random(2) === 0 ? { dateFrom: toDay(from), dateTo: toDay(to) } : { tsFrom: String(from), tsTo: String(to) }),
    ...(index % 5 === 0 ? { idApp: ['11', '14', '91'] } : {}),
    ...(index % 7 === 0 ? { availabilityTsTo: String(from + 3 * daySeconds) } : {}),
  };
}

/** Days that occur twice because clocks were set back: the date matters in addition to the span. */
function repeatedDays(event: string): OracleRequest {
  return { ...drawRequest(event, 4), tsFrom: undefined, tsTo: undefined, dateFrom: '2010-11-06', dateTo: '2010-11-06' };
}

const requests = derivedEvents.flatMap((event, order) => [
  repeatedDays(event),
  ...Array.from({ length: 7 }, (_unused, n) => drawRequest(event, 7 * order + n)),
]);

function encode(request: OracleRequest): string {
  return Object.entries(request)
    .flatMap(([name, value]) => {
      if (value === undefined) return [];
      const values = typeof value === 'string' ? [value] : value;
      return [`${name}=${values.map(encodeURIComponent).join(',')}`];
    })
    .join('&');
}

describe('derived events', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;

  beforeAll(async () => {
    for (const app of oracleApps) await area.addApp(app);
    user = await area.addUser({});
    // One file per stretch of receipt, so that late events are in files of other days.
    const rows = events.toSorted((a, b) => a.available - b.available).map(toFixtureEvent);
    const files = Array.from({ length: 12 }, (_unused, n) =>
      rows.slice(Math.floor((n * rows.length) / 12), Math.floor(((n + 1) * rows.length) / 12)),
    );
    await writeLake(area.tableDir, files);
    running = await area.start({ runAttempt: runHere, maxExports: 1000 });
  }, 180_000);
  afterAll(() => running.stop());

  it.each(inTurn(derivedEvents, 3))(
    'The export of %s has the rows of the oracle in ten zones, over spans that cut days and sessions',
    async (event) => {
      let rowCount = 0;
      for (const request of requests.filter((each) => each.event === event)) {
        const parts = await running.export(user, encode(request));
        const expected = expectedRows(request, events);
        expect({ request, rows: parseCsv(parts.join('')) }).toEqual({ request, rows: expected });
        rowCount += expected.length - 1;
      }
      expect(rowCount).toBeGreaterThan(20);
    },
    120_000,
  );
});
