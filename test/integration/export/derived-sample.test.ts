import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { createExportArea } from '../../helpers/export-area.ts';
import { derivedEvents } from '../../helpers/derived-oracle.ts';
import { oracleApps, toFixtureEvent, type ImportedEvent } from '../../helpers/export-events.ts';
import { expectedRows, parseCsv, type OracleRequest } from '../../helpers/export-oracle.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inWholeRun } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { runHere } from '../../helpers/worker-here.ts';

const sample = process.env['TRIBUTARY_SAMPLE_EVENTS'] ?? '';
const hasSample = existsSync(sample);
if (!hasSample)
  process.stderr.write('derived-sample.test.ts: TRIBUTARY_SAMPLE_EVENTS names no file; it is not run on real events\n');

/** The real events, as imported for a web app. */
function readSample(): ImportedEvent[] {
  const bytes = readFileSync(sample);
  const text = (sample.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  return text
    .trim()
    .split('\n')
    .map((line, index) => {
      const { eventTimestamp, ...fields } = JSON.parse(line) as { eventTimestamp: number };
      return {
        eventId: `real-${String(index).padStart(7, '0')}`,
        kind: 'custom_event' as const,
        idApp: 13,
        eventTimestamp,
        available: eventTimestamp + 1,
        fields,
      };
    });
}

/** Counts the rows of a request by date. */
function countDates(request: OracleRequest, events: readonly ImportedEvent[]): unknown {
  const [, ...rows] = expectedRows({ ...request, selectors: ['dtEvent'] }, events);
  const dates = rows.map(([date = '']) => date).toSorted();
  return [...new Set(dates)].map((date) => ({ date, rows: dates.filter((each) => each === date).length }));
}

describe.skipIf(!hasSample)('derived events of the sample of real events', () => {
  it('The users, devices, activities and sessions of real events equal those of the oracle, per day and in total', async ({
    skip,
  }) => {
    inWholeRun(skip);
    const events = readSample();
    const area = createExportArea(testFolder());
    for (const app of oracleApps) await area.addApp(app);
    const user = await area.addUser({});
    await writeLake(
      area.tableDir,
      [events.slice(0, 4000), events.slice(4000)].map((file) => file.map(toFixtureEvent)),
    );
    const running = await area.start({ runAttempt: runHere, maxExports: 1000 });
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
          expect(rows.length, event).toBeGreaterThan(1);
          const answer = await running.call(user, `/api/raw/v1/export/daily.json?${query}`);
          const counted = answer.json?.data as unknown;
          expect({ request, counted }).toMatchObject({ request, counted: { days: countDates(request, events) } });
        }
      }
    } finally {
      await running.stop();
    }
  }, 120_000);
});
