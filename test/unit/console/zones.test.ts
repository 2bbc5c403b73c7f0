import { describe, expect, it } from 'vitest';
import { addDays, secondsOf, wallTimeOf } from '../../../src/console/web/components/zones.ts';

const moment = (text: string): number => Date.parse(text) / 1000;

describe('the clocks of zones', () => {
  it.each([
    ['a time of every day', 'Europe/Berlin', '2025-07-01T12:00:00', '2025-07-01T10:00:00Z', '2025-07-01T10:00:00Z'],
    ['a time without seconds', 'Asia/Kolkata', '2025-07-01T12:00', '2025-07-01T06:30:00Z', '2025-07-01T06:30:00Z'],
    [
      'a time that is shown twice',
      'Europe/Berlin',
      '2025-10-26T02:30:00',
      '2025-10-26T00:30:00Z',
      '2025-10-26T01:30:00Z',
    ],
    ['a time that is left out', 'Europe/Berlin', '2025-03-30T02:30:00', '2025-03-30T01:00:00Z', '2025-03-30T00:59:59Z'],
    [
      'a midnight that is left out',
      'America/Santiago',
      '2025-09-07T00:00:00',
      '2025-09-07T04:00:00Z',
      '2025-09-07T03:59:59Z',
    ],
    [
      'a midnight that is shown twice',
      'America/Havana',
      '2025-11-02T00:00:00',
      '2025-11-02T04:00:00Z',
      '2025-11-02T05:00:00Z',
    ],
    ['half an hour back', 'Australia/Lord_Howe', '2025-04-06T01:45:00', '2025-04-05T14:45:00Z', '2025-04-05T15:15:00Z'],
    ['a day that is left out', 'Pacific/Apia', '2011-12-30T12:00:00', '2011-12-30T10:00:00Z', '2011-12-30T09:59:59Z'],
  ])('A period that starts or ends at %s has both ends at the local time', (_, zone, time, from, to) => {
    expect([secondsOf(zone, time, 'from'), secondsOf(zone, time, 'to')]).toEqual([moment(from), moment(to)]);
  });

  it.each([
    ['Europe/Berlin', '2025-03-25', '2025-10-21'],
    ['America/New_York', '2025-03-05', '2025-10-29'],
    ['Africa/Casablanca', '2025-02-19', '2025-04-02'],
  ])('Every hour of %s around both clock changes is found by its local time', (zone, ...days) => {
    const hours = days.flatMap((day) =>
      Array.from({ length: 240 }, (_, hour) => moment(`${day}T00:00Z`) + hour * 3600),
    );
    const wrong = hours.filter((at) => {
      const time = wallTimeOf(zone, at);
      return secondsOf(zone, time, 'from') !== at && secondsOf(zone, time, 'to') !== at;
    });
    expect(wrong).toEqual([]);
  });

  it('An invalid time and an unknown zone have no Unix time', () => {
    expect(secondsOf('UTC', '', 'from')).toBeNaN();
    expect(secondsOf('Nowhere/None', '2025-01-01T00:00:00', 'to')).toBeNaN();
    expect(addDays('2024-02-28', 2)).toBe('2024-03-01');
  });
});
