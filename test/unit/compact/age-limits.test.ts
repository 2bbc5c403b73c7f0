import { expect, test } from 'vitest';
import { createReferenceDay, findProvenDay } from '../../../src/compact/seal/age-limits.ts';
import type { DataFile } from '../../../src/lake/log/snapshot.ts';

const hourMs = 3_600_000;

const day = (date: string, numRecords: number): DataFile => ({
  path: `_sealed/kind=login/date=${date}/${numRecords}.parquet`,
  publishedPath: `kind=login/date=${date}/${numRecords}.parquet`,
  absolutePath: '',
  sizeBytes: 1,
  sha256: 'a',
  numRecords,
  young: false,
  minValues: {},
  maxValues: {},
});

const sumRows = (files: readonly DataFile[]): number => files.reduce((sum, { numRecords = 0 }) => sum + numRecords, 0);
const proven = (...files: readonly DataFile[]) => findProvenDay(files, '2026-06-30', sumRows(files));

function start(now: string, stored?: string, newest = now) {
  const clock = { now: Date.parse(now), nowMs: () => clock.now };
  const state = { stored, uptimeMs: 0 };
  const find = createReferenceDay({
    clock,
    recorded: () => state.stored,
    newestAtMs: Date.parse(newest),
    uptimeMs: () => state.uptimeMs,
  });
  return {
    /** Moves the clock and the running time, and returns the day for files, which is recorded. */
    at(time: string, uptimeHours: number, files: readonly DataFile[]): string | undefined {
      clock.now = Date.parse(time);
      state.uptimeMs = uptimeHours * hourMs;
      const found = find(files, sumRows(files))?.day;
      if (found !== undefined && found > (state.stored ?? '')) state.stored = found;
      return found;
    },
    confirm: (date: string) => void (state.stored = date),
  };
}

test('A day is proven by a hundred rows, or by a hundredth of all, up to the clock', () => {
  expect(proven()).toBeUndefined();
  expect(proven(day('2026-06-01', 1000), day('2026-06-20', 99), day('2026-07-04', 500))).toBe('2026-06-20');
  expect(proven(day('2026-06-01', 1000), day('2026-06-20', 9))).toBe('2026-06-01');
  expect(proven(day('2026-06-01', 100_000), day('2026-06-20', 100))).toBe('2026-06-20');
  expect(proven(day('2026-06-01', 3), day('2026-06-02', 1))).toBe('2026-06-02');
});

test('The day follows the clock while rows of it arrive, also after a weekend without any', () => {
  const service = start('2026-06-01T12:00:00Z');
  const files = [day('2026-06-01', 10)];
  expect(service.at('2026-06-01T12:00:00Z', 0, files)).toBe('2026-06-01');
  files.push(day('2026-06-02', 10));
  expect(service.at('2026-06-02T12:00:00Z', 24, files)).toBe('2026-06-02');
  expect(service.at('2026-06-03T12:00:00Z', 48, files)).toBe('2026-06-03');
  expect(service.at('2026-06-04T12:00:00Z', 72, files)).toBe('2026-06-04');
  expect(service.at('2026-06-05T12:00:00Z', 96, files)).toBe('2026-06-05');
});

test('A clock that jumps ahead moves the day by one per half a day, even if rows with its times arrive and the service restarts', () => {
  const service = start('2026-06-01T12:00:00Z');
  const files = [day('2026-06-01', 1000)];
  expect(service.at('2026-06-01T12:00:00Z', 0, files)).toBe('2026-06-01');
  expect(service.at('2036-06-01T12:00:00Z', 1, files)).toBe('2026-06-01');
  files.push(day('2036-06-01', 5000));
  expect(service.at('2036-06-01T12:00:00Z', 2, files)).toBe('2026-06-01');
  expect(service.at('2036-06-01T12:00:00Z', 12, files)).toBe('2026-06-02');
  const restarted = start('2036-06-01T12:00:00Z', '2026-06-02');
  expect(restarted.at('2036-06-01T12:00:00Z', 0, files)).toBe('2026-06-02');
  expect(restarted.at('2036-06-01T12:00:00Z', 11, files)).toBe('2026-06-02');
});

test('After sixty days of running, a clock that jumps ahead moves the day by one at once, and by two a day', () => {
  const service = start('2026-06-01T12:00:00Z');
  const files = [day('2026-06-01', 1000)];
  for (let ran = 0; ran <= 60; ran += 1)
    service.at(new Date(Date.parse('2026-06-01T12:00:00Z') + ran * 24 * hourMs).toISOString(), ran * 24, files);
  files.push(day('2036-06-01', 5000));
  const reached = Array.from({ length: 49 }, (_, hour) => service.at('2036-06-01T12:00:00Z', 60 * 24 + hour, files));
  expect([0, 11, 12, 24, 48].map((hour) => reached[hour])).toEqual([
    '2026-07-31',
    '2026-07-31',
    '2026-08-01',
    '2026-08-02',
    '2026-08-04',
  ]);
  const idle = start('2026-06-01T12:00:00Z', '2026-06-01');
  expect(idle.at('2026-06-01T12:00:00Z', 0, files)).toBe('2026-06-01');
  expect(idle.at('2036-06-01T12:00:00Z', 60 * 24, files)).toBe('2026-06-02');
});

test('Without a recorded day, a clock and rows ahead prove no day after the newest commit and the running time', () => {
  const files = [day('2026-06-01', 1000), day('2027-06-01', 500)];
  const service = start('2027-06-01T12:00:00Z', undefined, '2026-06-02T12:00:00Z');
  expect(service.at('2027-06-01T12:00:00Z', 0, files)).toBe('2026-06-02');
  const late = start('2027-06-01T12:00:00Z', undefined, '2026-06-02T12:00:00Z');
  expect(late.at('2027-06-11T12:00:00Z', 240, files)).toBe('2026-06-12');
});

test('A service that was stopped catches up two days a day, and at once when an operator confirms the clock', () => {
  const service = start('2026-06-30T12:00:00Z', '2026-06-01');
  const files = [day('2026-06-30', 1000)];
  expect(service.at('2026-06-30T12:00:00Z', 0, files)).toBe('2026-06-01');
  expect(service.at('2026-07-01T00:00:00Z', 12, files)).toBe('2026-06-02');
  expect(service.at('2026-07-01T12:00:00Z', 24, files)).toBe('2026-06-03');
  service.confirm('2026-07-01');
  expect(service.at('2026-07-01T12:00:00Z', 25, files)).toBe('2026-07-01');
  expect(service.at('2026-07-02T12:00:00Z', 49, files)).toBe('2026-07-02');
});

test('A lake of old rows alone is measured by its newest day, until an operator confirms the clock', () => {
  const service = start('2026-06-30T12:00:00Z');
  const files = [day('2015-03-01', 1000)];
  expect(service.at('2026-06-30T12:00:00Z', 0, files)).toBe('2015-03-01');
  service.confirm('2026-06-30');
  expect(service.at('2026-06-30T13:00:00Z', 1, files)).toBe('2026-06-30');
});
