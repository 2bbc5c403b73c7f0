import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createZoneDays, type ZoneDays } from '../../../src/export/zone-days.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/duckdb.ts';
import { timezones } from '../../../src/model/dictionaries.ts';
import { dateInZone, firstInstant } from '../../helpers/export-oracle.ts';

let duckdb: Duckdb;
let days: ZoneDays;
beforeAll(async () => {
  duckdb = await openDuckdb({ memoryMb: 64, threads: 1 });
  days = createZoneDays(duckdb);
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
  ])('is found for %s', async (_what, zone, date, expected) => {
    expect((await days.beginOf(zone, date)).firstSeconds).toBe(seconds(expected));
  });

  it.each([...timezones])('is the same in JavaScript for %s', async (zone) => {
    for (const date of ['2019-06-15', '2021-12-31']) {
      const first = firstInstant(zone, date);
      expect(await days.beginOf(zone, date)).toEqual({ firstSeconds: first, settledSeconds: first });
    }
  });
});

describe('the current date', () => {
  it('is that of the zone, up to its last millisecond', async () => {
    const midnight = Date.parse('2021-05-04T21:00:00Z');
    expect(await days.currentDate('Europe/Moscow', midnight - 1)).toBe('2021-05-04');
    expect(await days.currentDate('Europe/Moscow', midnight)).toBe('2021-05-05');
    expect(dateInZone('Europe/Moscow', midnight / 1000)).toBe('2021-05-05');
  });
});

describe('the next day', () => {
  it('is that of the calendar', () => {
    expect(['2024-02-28', '2024-02-29', '2025-12-31'].map((date) => days.nextDay(date))).toEqual(['2024-02-29', '2024-03-01', '2026-01-01']);
  });
});
