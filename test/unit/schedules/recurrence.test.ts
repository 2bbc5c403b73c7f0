import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  hourSlotMs,
  newestHourSlot,
  periodOf,
  slotDate,
  slotName,
  slotOfDate,
  type Recurrence,
} from '../../../src/schedules/schedules.ts';

const daily: Recurrence = { every: 'day', at: '04:00', timezone: 'UTC' };
const hourly: Recurrence = { every: 'hour', at: ':20', timezone: 'UTC' };
const weekly = (weekday?: number): Recurrence => ({
  every: 'week',
  at: '04:00',
  timezone: 'UTC',
  ...(weekday === undefined ? {} : { weekday }),
});
const hourMs = 3_600_000;

test('A slot has a date and a unique name, and exports the period before it', () => {
  const day = slotOfDate(daily, '2026-11-23');
  expect([slotDate(daily, day), slotName(daily, day)]).toEqual(['2026-11-23', '2026-11-23']);
  expect(periodOf(daily, day)).toEqual({ dateFrom: '2026-11-22', dateTo: '2026-11-22' });
  // A Monday.
  const week = slotOfDate(weekly(), '2026-11-23');
  expect(slotDate(weekly(), week)).toBe('2026-11-23');
  expect(periodOf(weekly(), week)).toEqual({ dateFrom: '2026-11-16', dateTo: '2026-11-22' });
  const hour = newestHourSlot(hourly, Date.parse('2026-11-23T04:20:00Z'));
  expect(slotName(hourly, hour)).toBe('2026-11-23T04Z');
  const fromSeconds = Date.parse('2026-11-23T03:00:00Z') / 1000;
  expect(periodOf(hourly, hour)).toEqual({ tsFrom: String(fromSeconds), tsTo: String(fromSeconds + 3599) });
});

test('A weekly slot is on its weekday, and an earlier date of the week belongs to the previous slot', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 7 }), fc.integer({ min: 0, max: 40_000 }), (weekday, days) => {
      const rule = weekly(weekday);
      const date = new Date(days * 24 * hourMs).toISOString().slice(0, 10);
      const slot = slotOfDate(rule, date);
      const own = new Date(`${slotDate(rule, slot)}T00:00:00Z`);
      expect(own.getUTCDay()).toBe(weekday % 7);
      const behind = (Date.parse(date) - own.getTime()) / (24 * hourMs);
      expect([behind >= 0, behind < 7]).toEqual([true, true]);
      expect(slotOfDate(rule, slotDate(rule, slot))).toBe(slot);
    }),
  );
});

test('The periods of consecutive slots are adjacent, without gap and overlap', () => {
  for (const rule of [daily, weekly(3)]) {
    const slot = slotOfDate(rule, '2024-02-28');
    const { dateTo = '' } = periodOf(rule, slot);
    const { dateFrom = '' } = periodOf(rule, slot + 1);
    expect(Date.parse(dateFrom) - Date.parse(dateTo)).toBe(24 * hourMs);
  }
  const { tsTo } = periodOf(hourly, 500_000);
  expect(Number(periodOf(hourly, 500_001)['tsFrom']) - Number(tsTo)).toBe(1);
});

test('An hourly slot is due at its minute, and not before', () => {
  const slot = 500_000;
  const atMs = hourSlotMs(hourly, slot);
  expect(atMs % hourMs).toBe(20 * 60_000);
  expect([newestHourSlot(hourly, atMs - 1), newestHourSlot(hourly, atMs)]).toEqual([slot - 1, slot]);
});
