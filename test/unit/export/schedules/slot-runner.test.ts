import { once } from 'node:events';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openAccessReader } from '../../../../src/access/store.ts';
import { startSlotRunner } from '../../../../src/export/schedules/slot-runner.ts';
import { openReportStore, startSweeper } from '../../../../src/reports/store.ts';
import { noCrashPoint } from '../../../../src/runtime/crash-point.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import {
  readScheduleProgress,
  addSchedule,
  openSchedules,
  removeSchedule,
} from '../../../../src/schedules/schedule-store.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';

const logger = createLogger('silent');
const never = (): never => {
  throw new Error('nothing is to be made here');
};

/** A folder with an expired request of slot 7 whose end the schedule has not recorded. */
async function openPlace() {
  const folder = testFolder();
  const schedules = path.join(folder, 'schedules');
  const clock = { now: 10 * 86_400_000, nowMs: () => clock.now };
  const added = { idAccount: 1, idUser: '1', createdMs: 0, catchUp: 31, firstSlot: 1, arguments: [] };
  const rule = { every: 'day', at: '04:00', timezone: 'UTC' } as const;
  const { idSchedule } = await addSchedule(schedules, { ...added, rule, sinceVersion: '0' });
  await openSchedules(schedules).change(1, idSchedule, (schedule) => ({ ...schedule, paused: true }));
  const store = await openReportStore(clock, logger, {
    reportsDir: path.join(folder, 'reports'),
    linkTtlSeconds: 60,
  });
  const slot = { idSchedule, slot: 7, name: '1970-01-08' };
  const { id } = await store.create({ idUser: '1', idAccount: 1, event: 'customEvents', request: {}, slot });
  const { folder: attempt } = await store.beginAttempt(id);
  const basis = { version: 3, nextSinceVersion: '3-00000000', keptUntilSeconds: 1 };
  await store.end(id, { state: 'success', files: [], basis }, attempt);
  clock.now += 3_600_000;
  const access = await openAccessReader({ access: path.join(folder, 'access.json'), keys: folder }, logger);
  onTestFinished(() => access.close());
  const start = (loaded: Promise<void>) => {
    const runner = startSlotRunner({
      schedules,
      store,
      clock,
      logger,
      access,
      loaded,
      everyMs: 5,
      crashPoint: noCrashPoint,
      lakeDir: path.join(folder, 'lake'),
      parseRequest: never,
      exports: { createForSlot: never },
      slotClock: { timeOf: never, newest: never },
    });
    onTestFinished(() => runner.stop());
    const sweeper = startSweeper(store, clock, logger, (job) => runner.isHeld(job));
    onTestFinished(() => sweeper.stop());
    return runner;
  };
  return { folder, schedules, idSchedule, store, id, start };
}

test('An expired request is deleted only after its schedule has recorded its slot and its cursor', async () => {
  const { schedules, idSchedule, store, id, start } = await openPlace();
  const reading = new AbortController();
  const runner = start(once(reading.signal, 'abort').then(() => undefined));
  const job = await store.find(id);
  if (job === undefined) throw new Error('unreachable');
  expect(runner.isHeld(job)).toBe(true);
  reading.abort();
  await waitFor('the request is deleted', () => store.lastRead(id) === undefined);
  expect(await readScheduleProgress(schedules, { idAccount: 1, idSchedule })).toMatchObject({
    made: [[7, 7]],
    endedReport: id,
    lastReport: id,
    place: '3-00000000',
  });
});

test('A request whose schedule was deleted expires as any other', async () => {
  const { schedules, idSchedule, store, id, start } = await openPlace();
  expect(await removeSchedule(schedules, 1, idSchedule)).toBe(true);
  start(Promise.resolve());
  await waitFor('the request is deleted', () => store.lastRead(id) === undefined);
  expect(store.count()).toBe(0);
});
