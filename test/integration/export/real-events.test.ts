import { describe, expect, it } from 'vitest';
import { createExportArea } from '../../helpers/export-area.ts';
import { derivedEvents } from '../../helpers/derived-oracle.ts';
import { oracleApps, toFixtureEvent, type ImportedEvent } from '../../helpers/export-events.ts';
import { encodeSet, expectedRows, parseCsv, type OracleRequest } from '../../helpers/export-oracle.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inWholeRun } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { hasSample, readSample } from '../../helpers/sample-events.ts';
import { runHere } from '../../helpers/worker-here.ts';

/** Counts the rows of a request by date. */
function countDates(request: OracleRequest, events: readonly ImportedEvent[]): unknown {
  const [, ...rows] = expectedRows({ ...request, selectors: ['dtEvent'] }, events);
  const dates = rows.map(([date = '']) => date).toSorted();
  return [...new Set(dates)].map((date) => ({ date, rows: dates.filter((each) => each === date).length }));
}

/** Starts the export stage on a lake of the real events. */
async function openSample() {
  const events = readSample();
  const area = createExportArea(testFolder());
  for (const app of oracleApps) await area.addApp(app);
  const user = await area.addUser({});
  await writeLake(
    area.tableDir,
    [events.slice(0, 4000), events.slice(4000)].map((file) => file.map(toFixtureEvent)),
  );
  const running = await area.start({ runAttempt: runHere, maxExports: 1000 });
  return { events, user, running };
}

describe.skipIf(!hasSample)('exports of the sample of real events', () => {
  it('The users, devices, activities and sessions of real events equal those of the oracle, per day and in total', async ({
    skip,
  }) => {
    inWholeRun(skip);
    const { events, user, running } = await openSample();
    try {
      const days = [...new Set(events.map(({ eventTimestamp }) => new Date(eventTimestamp * 1000).toISOString()))]
        .map((time) => time.slice(0, 10))
        .toSorted();
      const [first = '', last = ''] = [days[0], days.at(-1)];
      const middle = days[Math.floor(days.length / 2)] ?? '';
      for (const event of derivedEvents) {
        for (const [dateFrom, dateTo, timezone] of [
          [first, last, 'UTC'],
          [middle, middle, 'America/New_York'],
        ] as const) {
          const selectors = ['eventId', 'tsEvent', 'customUserId', 'lvid', 'countEvent', 'duration'];
          const request = { event, selectors, dateFrom, dateTo, timezone };
          const query = Object.entries(request)
            .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`)
            .join('&');
          const rows = parseCsv((await running.export(user, query)).join(''));
          expect({ request, rows }).toEqual({ request, rows: expectedRows(request, events) });
          const answer = await running.call(user, `/api/raw/v1/export/daily.json?${query}`);
          const counted = answer.json?.data as unknown;
          expect({ request, counted }).toMatchObject({ request, counted: { days: countDates(request, events) } });
          expect(rows.length, event).toBeGreaterThan(1);
        }
      }
    } finally {
      await running.stop();
    }
  }, 120_000);

  it('Filters by persons, columns of parameters, readable times and dialects of real events equal those of the oracle', async ({
    skip,
  }) => {
    inWholeRun(skip);
    const { events, user, running } = await openSample();
    try {
      const span = { dateFrom: '2000-01-01', dateTo: '2026-01-01', order: 'time' };
      const idsOf = (name: string): readonly string[] => [
        ...new Set(events.flatMap(({ fields }) => (fields[name] ?? []) as string)),
      ];
      const selectors = ['eventId', 'tsEvent', 'dateTimeEvent', 'customUserId', 'lvid', 'eventName'];
      const requests = [
        ...['customUserId', 'lvid'].flatMap((name) => {
          const ids = idsOf(name);
          const some = [ids.slice(0, 1), ids.slice(5, 15), ids.slice(0, 100)].filter((set) => set.length > 0);
          return some.map((set) => ({ event: 'customEvents', selectors, ...span, [name]: set }));
        }),
        { event: 'customEvents', selectors, columns: 'params', ...span },
        { event: 'customEvents', selectors, columns: 'params', dialect: 'excel', ...span, timezone: 'Europe/Berlin' },
        { event: 'sessions', selectors, dialect: 'excel', ...span, timezone: 'America/St_Johns' },
      ];
      for (const request of requests) {
        const query = Object.entries(request)
          .map(([name, value]) => `${name}=${typeof value === 'string' ? encodeURIComponent(value) : encodeSet(value)}`)
          .join('&');
        const text = (await running.export(user, query)).join('').replace(/^\uFEFF/, '');
        const [header = [], ...rows] = expectedRows(request, events);
        const inOrder = rows.toSorted((a, b) => Number(a[1]) - Number(b[1]) || ((a[0] ?? '') < (b[0] ?? '') ? -1 : 1));
        expect(parseCsv(text)).toEqual([header, ...inOrder]);
        expect(rows.length).toBeGreaterThan(0);
      }
    } finally {
      await running.stop();
    }
  }, 120_000);
});
