import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createCalendar, type Calendar } from '../../../src/export/api/calendar.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { timezones } from '../../../src/datasets/dictionaries.ts';
import { chaosFigure, chaosSeed } from '../../helpers/chaos.ts';
import { dateInZone, firstInstant } from '../../helpers/export-oracle.ts';
import { inTurn, isWhole } from '../../helpers/in-turn.ts';

let duckdb: Duckdb;
let days: Calendar;
beforeAll(async () => {
  duckdb = await openDuckdb({ memoryMb: 64, threads: 1 });
  days = createCalendar(duckdb);
});
afterAll(() => duckdb.close());

const seconds = (iso: string): number => Date.parse(iso) / 1000;

describe('the first instant of a day', () => {
  it.each([
    ['an ordinary day', 'Europe/Berlin', '2025-03-30', '2025-03-29T23:00:00Z'],
    ['the day after a short one', 'Europe/Berlin', '2025-03-31', '2025-03-30T22:00:00Z'],
    ['a day whose midnight does not exist', 'America/Sao_Paulo', '2018-11-04', '2018-11-04T03:00:00Z'],
    ['a day whose midnight comes twice', 'Atlantic/Azores', '2024-10-27', '2024-10-27T00:00:00Z'],
    ['a day that begins, and begins again an hour later', 'America/St_Johns', '2010-11-07', '2010-11-07T02:30:00Z'],
    ['a day that was skipped', 'Pacific/Apia', '2011-12-30', '2011-12-30T10:00:00Z'],
    ['the day after it', 'Pacific/Apia', '2011-12-31', '2011-12-30T10:00:00Z'],
    ['the first day there is', 'UTC', '1970-01-01', '1970-01-01T00:00:00Z'],
  ])('The first instant is found for %s', async (_what, zone, date, expected) => {
    expect((await days.beginOf(zone, date)).firstSeconds).toBe(seconds(expected));
  });

  it.each(inTurn([...timezones], 3))('The first instant of a day is the same in JavaScript for %s', async (zone) => {
    for (const date of ['2019-06-15', '2021-12-31']) {
      const first = firstInstant(zone, date);
      expect(await days.beginOf(zone, date)).toEqual({ firstSeconds: first, settledSeconds: first });
    }
  });
});

/** Zones in which a clock was set back across midnight. Of the zones of the API, only the first. */
const knownOdd = ['America/St_Johns', 'America/Goose_Bay', 'America/Moncton', 'Antarctica/Casey'];

/** The minutes since 1970 at which the offset of a zone changes, and whether its date goes back then. */
async function findTransitions(zone: string): Promise<{ readonly seconds: number; readonly isOdd: boolean }[]> {
  const offset = (moment: string): string => `(epoch(timezone('${zone}', ${moment})) - epoch(${moment}))`;
  const rows = await duckdb.rows(`
    WITH weeks AS (
      SELECT moment FROM generate_series(TIMESTAMPTZ '1969-12-25 00:00:00+00', TIMESTAMPTZ '2037-12-31 00:00:00+00', INTERVAL 7 DAY) AS series(moment)
      QUALIFY ${offset('moment')} <> lead(${offset('moment')}) OVER (ORDER BY moment)
    ), hours AS (SELECT moment + to_hours(hour) AS moment FROM weeks, generate_series(0, 167) AS series(hour)),
    turns AS (SELECT moment FROM hours WHERE ${offset('moment')} <> ${offset('(moment + INTERVAL 1 HOUR)')}),
    minutes AS (SELECT moment + to_minutes(minute) AS moment FROM turns, generate_series(1, 60) AS series(minute))
    SELECT epoch_us(moment) // 1000000 AS seconds, CAST(timezone('${zone}', moment) AS DATE) < CAST(timezone('${zone}', moment - INTERVAL 1 SECOND) AS DATE) AS odd
    FROM minutes WHERE ${offset('moment')} <> ${offset('(moment - INTERVAL 1 MINUTE)')}`);
  return rows.map((row) => ({ seconds: Number(row['seconds']), isOdd: row['odd'] === true }));
}

/** The bounds of an export's days as the parser computes them: the span, and the dates if the span is not exact. */
async function isExported(
  zone: string,
  moment: { readonly seconds: number; readonly date: string },
  date: string,
): Promise<boolean> {
  const [begin, end] = [await days.beginOf(zone, date), await days.beginOf(zone, days.nextDay(date))];
  const isExact = begin.firstSeconds === begin.settledSeconds && end.firstSeconds === end.settledSeconds;
  return (
    moment.seconds >= begin.firstSeconds && moment.seconds < end.settledSeconds && (isExact || moment.date === date)
  );
}

describe('a day of an export', () => {
  const zones = chaosFigure('TRIBUTARY_TEST_ZONES', { short: isWhole ? 12 : 6, long: 1000 });
  const seed = chaosSeed();

  it(
    `A day of an export holds each moment around a change of clocks if and only if the moment's own date is that day, in any zone (seed ${seed})`,
    { timeout: 600_000 },
    async () => {
      const names = (
        await duckdb.rows(
          "SELECT DISTINCT name FROM pg_timezone_names() WHERE name LIKE '%/%' AND name NOT LIKE 'Etc/%' AND name NOT LIKE 'SystemV/%'",
        )
      ).map((row) => String(row['name']));
      const all = [...new Set([...names, ...timezones])].toSorted();
      const chosen = new Set([
        ...knownOdd,
        ...(fc.sample(fc.shuffledSubarray(all, { minLength: all.length }), { seed, numRuns: 1 })[0]?.slice(0, zones) ??
          []),
      ]);
      let odd = 0;
      let looked = 0;
      for (const zone of chosen) {
        const transitions = await findTransitions(zone);
        const oddOnes = transitions.filter(({ isOdd }) => isOdd);
        odd += oddOnes.length;
        const picked = [
          ...oddOnes.slice(-3),
          ...fc.sample(
            fc.constantFrom(
              ...transitions,
              ...(transitions.length === 0 ? [{ seconds: 1_000_000_000, isOdd: false }] : []),
            ),
            { seed, numRuns: 1 },
          ),
        ];
        for (const { seconds: transition } of picked) {
          const around = [-10_800, -3661, -3600, -61, -60, -1, 0, 1, 59, 60, 3539, 3540, 3599, 3600, 10_800].map(
            (shift) => BigInt(transition + shift),
          );
          const list = around.map((second) => `(${second})`).join(', ');
          const moments = await duckdb.rows(
            `SELECT second, CAST(CAST(timezone('${zone}', make_timestamptz(CAST(second AS BIGINT) * 1000000)) AS DATE) AS VARCHAR) AS date FROM (VALUES ${list}) AS moments(second)`,
          );
          const dates = new Set(moments.map((row) => String(row['date'])));
          for (const row of moments) {
            const moment = { seconds: Number(row['second']), date: String(row['date']) };
            for (const date of dates)
              expect(await isExported(zone, moment, date), `${zone} ${moment.seconds} ${date}`).toBe(
                moment.date === date,
              );
            looked += 1;
          }
        }
      }
      expect(odd).toBeGreaterThan(60);
      expect(looked).toBeGreaterThan(200);
    },
  );

  it('A day of an export begins to the second in a zone whose offset was not whole minutes', async () => {
    expect(await days.beginOf('Africa/Monrovia', '1971-05-01')).toEqual({
      firstSeconds: seconds('1971-05-01T00:44:30Z'),
      settledSeconds: seconds('1971-05-01T00:44:30Z'),
    });
  });

  it('A day that the clocks repeat has a first start and a later settled start', async () => {
    expect(await days.beginOf('America/St_Johns', '2010-11-07')).toEqual({
      firstSeconds: seconds('2010-11-07T02:30:00Z'),
      settledSeconds: seconds('2010-11-07T03:30:00Z'),
    });
    expect(await days.beginOf('America/St_Johns', '2010-11-08')).toEqual({
      firstSeconds: seconds('2010-11-08T03:30:00Z'),
      settledSeconds: seconds('2010-11-08T03:30:00Z'),
    });
  });
});

describe('the current date', () => {
  it('The current date is that of the zone, up to its last millisecond', async () => {
    const midnight = Date.parse('2021-05-04T21:00:00Z');
    expect(await days.currentDate('Europe/Moscow', midnight - 1)).toBe('2021-05-04');
    expect(await days.currentDate('Europe/Moscow', midnight)).toBe('2021-05-05');
    expect(dateInZone('Europe/Moscow', midnight / 1000)).toBe('2021-05-05');
  });
});

describe('the next day', () => {
  it('The next day is the next one of the calendar', () => {
    expect(['2024-02-28', '2024-02-29', '2025-12-31'].map((date) => days.nextDay(date))).toEqual([
      '2024-02-29',
      '2024-03-01',
      '2026-01-01',
    ]);
  });
});
