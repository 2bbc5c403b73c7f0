import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { timezones } from '../../../../src/datasets/dictionaries.ts';
import { createCalendar } from '../../../../src/export/api/calendar.ts';
import { createSlotClock, type SlotClock } from '../../../../src/export/schedules/slot-clock.ts';
import { openDuckdb, type Duckdb } from '../../../../src/lake/sql/duckdb.ts';
import { periodOf, slotName, slotOfDate, type Recurrence } from '../../../../src/schedules/schedules.ts';
import { firstMoment } from '../../../helpers/slot-oracle.ts';

let duckdb: Duckdb;
let clock: SlotClock;
beforeAll(async () => {
  duckdb = await openDuckdb({ memoryMb: 64, threads: 1 });
  clock = createSlotClock(createCalendar(duckdb));
});
afterAll(() => duckdb.close());

const daily = (timezone: string, at: string): Recurrence => ({ every: 'day', at, timezone });
const two = (value: number): string => String(value).padStart(2, '0');
const iso = (ms: number): string => new Date(ms).toISOString();

describe('the time of a slot', () => {
  it.each([
    ['on an ordinary day', 'Europe/Berlin', '2026-11-23', '04:00', '2026-11-23T03:00:00.000Z'],
    ['in an hour that is left out', 'Europe/Berlin', '2026-03-29', '02:30', '2026-03-29T01:00:00.000Z'],
    ['at the end of that hour', 'Europe/Berlin', '2026-03-29', '03:00', '2026-03-29T01:00:00.000Z'],
    ['in an hour that comes twice', 'Europe/Berlin', '2026-10-25', '02:30', '2026-10-25T00:30:00.000Z'],
    ['at a midnight that comes twice', 'Atlantic/Azores', '2024-10-27', '00:30', '2024-10-27T00:30:00.000Z'],
    ['at a midnight that does not exist', 'America/Sao_Paulo', '2018-11-04', '00:00', '2018-11-04T03:00:00.000Z'],
    ['on a day that a zone skipped', 'Pacific/Apia', '2011-12-30', '04:00', '2011-12-30T10:00:00.000Z'],
    ['late on a day far in the west', 'Pacific/Honolulu', '2026-01-01', '23:59', '2026-01-02T09:59:00.000Z'],
    ['early on a day far in the east', 'Pacific/Kiritimati', '2026-01-01', '00:00', '2025-12-31T10:00:00.000Z'],
  ])('The time of a slot is found %s', async (_where, zone, date, at, expected) => {
    const rule = daily(zone, at);
    expect(iso(await clock.timeOf(rule, slotOfDate(rule, date)))).toBe(expected);
  });

  it('The time of a slot is the first at which the zone shows it, and the newest slot is the last whose time has passed', async () => {
    const days = fc.integer({ min: 16_000, max: 21_500 });
    const time = fc.tuple(fc.integer({ min: 0, max: 23 }), fc.integer({ min: 0, max: 59 }));
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...timezones), days, time, async (zone, day, [hour, minute]) => {
        const rule = daily(zone, `${two(hour)}:${two(minute)}`);
        const ms = await clock.timeOf(rule, day);
        expect(ms).toBe(firstMoment(zone, slotName(rule, day), rule.at) * 1000);
        expect(await clock.newest(rule, ms)).toBeGreaterThanOrEqual(day);
        expect(await clock.newest(rule, ms - 1)).toBeLessThan(day);
      }),
      {
        numRuns: 20,
        examples: [
          ['Europe/Berlin', 20_541, [2, 30]],
          ['Europe/Berlin', 20_751, [2, 30]],
        ],
      },
    );
  }, 60_000);

  it('A week has one slot on its day, and every hour has one, despite clock changes of the zone', async () => {
    const weekly: Recurrence = { every: 'week', at: '04:00', weekday: 1, timezone: 'Europe/Berlin' };
    const newest = await clock.newest(weekly, Date.parse('2026-11-25T12:00:00Z'));
    expect(slotName(weekly, newest)).toBe('2026-11-23');
    expect(iso(await clock.timeOf(weekly, newest))).toBe('2026-11-23T03:00:00.000Z');
    expect(periodOf(weekly, newest)).toEqual({ dateFrom: '2026-11-16', dateTo: '2026-11-22' });
    const hourly: Recurrence = { every: 'hour', at: ':15', timezone: 'Europe/Berlin' };
    const slot = await clock.newest(hourly, Date.parse('2026-10-25T01:14:59Z'));
    expect(slotName(hourly, slot)).toBe('2026-10-25T00Z');
    expect(iso(await clock.timeOf(hourly, slot))).toBe('2026-10-25T00:15:00.000Z');
    expect(periodOf(hourly, slot)).toEqual({
      tsFrom: String(Date.parse('2026-10-24T23:00:00Z') / 1000),
      tsTo: String(Date.parse('2026-10-24T23:59:59Z') / 1000),
    });
  });
});
