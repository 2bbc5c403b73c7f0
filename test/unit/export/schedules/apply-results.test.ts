import { expect, test } from 'vitest';
import { isSettled, applyRequestResults } from '../../../../src/export/schedules/reconcile.ts';
import { reportJob } from '../../../helpers/report-job.ts';
import type { ReportJob } from '../../../../src/reports/reports.ts';
import { noProgress, type Schedule } from '../../../../src/schedules/schedules.ts';

const schedule: Schedule = {
  idSchedule: 'sc_0000000000000000',
  idAccount: 1,
  idUser: '1',
  createdMs: 0,
  rule: { every: 'day', at: '04:00', timezone: 'UTC' },
  catchUp: 1,
  arguments: [],
  sinceVersion: '0',
  firstSlot: 1,
  paused: false,
  resumes: 0,
};

const succeeded = (id: number, slot: number, place: string): ReportJob =>
  reportJob({
    id,
    slot: { idSchedule: schedule.idSchedule, slot, name: String(slot) },
    files: [],
    basis: { version: 1, nextSinceVersion: place, keptUntilSeconds: 0 },
  });

test('A change feed continues after its reports are deleted and their ids are reused', () => {
  const before = applyRequestResults(schedule, noProgress, [succeeded(40, 1, '3-a'), succeeded(41, 2, '5-b')]);
  expect(before).toMatchObject({ place: '5-b', lastReport: 41, endedReport: 41, made: [[1, 2]] });
  const anew = succeeded(1, 3, '9-c');
  const waiting = applyRequestResults(schedule, before, [{ ...anew, state: 'running' }]);
  expect(waiting).toMatchObject({ place: '5-b', lastReport: 1, made: [[1, 3]] });
  expect(isSettled(waiting, anew)).toBe(false);
  const after = applyRequestResults(schedule, waiting, [anew]);
  expect(after).toMatchObject({ place: '9-c', endedReport: 1 });
  expect(isSettled(after, anew)).toBe(true);
  expect(applyRequestResults(schedule, after, [anew])).toBe(after);
});

test('A run that a user asked for completes no slot, and continues a change feed from its own end', () => {
  const before = applyRequestResults(schedule, noProgress, [succeeded(40, 1, '3-a')]);
  const ofSlot = succeeded(41, 1, '5-b');
  const run = {
    ...ofSlot,
    createdMs: 5,
    slot: { idSchedule: schedule.idSchedule, slot: 1, name: '1', run: 'a'.repeat(16) },
  };
  const waiting = applyRequestResults(schedule, before, [{ ...run, state: 'running' }]);
  expect(waiting).toMatchObject({ place: '3-a', lastReport: 41, endedReport: 40, made: [[1, 1]] });
  expect(waiting.runs).toMatchObject([
    { idReport: 40, state: 'success' },
    { idReport: 41, isAsked: true },
  ]);
  expect(isSettled(waiting, run)).toBe(false);
  const after = applyRequestResults(schedule, waiting, [run]);
  expect(after).toMatchObject({ place: '5-b', endedReport: 41, made: [[1, 1]] });
  expect(after.runs).toHaveLength(2);
  expect(isSettled(after, run)).toBe(true);
  expect(applyRequestResults(schedule, after, [run])).toBe(after);
});

test('The newest twenty runs are kept', () => {
  const jobs = Array.from({ length: 30 }, (_, place) => ({
    ...succeeded(place + 1, place, `${place}-a`),
    createdMs: place,
  }));
  const { runs = [] } = applyRequestResults(schedule, noProgress, jobs);
  expect(runs.map(({ idReport }) => idReport)).toEqual(Array.from({ length: 20 }, (_, place) => place + 11));
});
