import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { addUser } from '../../../../src/access/users.ts';
import { openAccessReader } from '../../../../src/access/store.ts';
import { createScheduleReconciler } from '../../../../src/export/schedules/reconcile.ts';
import { openReportStore, type ReportStore } from '../../../../src/reports/store.ts';
import { noCrashPoint } from '../../../../src/runtime/crash-point.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { addSchedule } from '../../../../src/schedules/schedule-store.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { formatRequest } from '../../../helpers/format-request.ts';

const dayMs = 86_400_000;
const spec = formatRequest();

test('A change feed continues from the end of its last export, even if that ends during the check', async () => {
  const folder = testFolder();
  const logger = createLogger('silent');
  const clock = { nowMs: () => 9 * dayMs };
  const paths = { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
  const { idUser } = await addUser(paths, { name: 'analyst', idAccount: 1, canExport: true });
  const access = await openAccessReader(paths, logger);
  onTestFinished(() => access.close());
  const schedules = path.join(folder, 'schedules');
  const rule = { every: 'day', at: '00:00', timezone: 'UTC' } as const;
  const added = {
    idAccount: 1,
    idUser,
    createdMs: 0,
    rule,
    catchUp: 1,
    arguments: [],
    sinceVersion: '0',
    firstSlot: 1,
  };
  const { idSchedule } = await addSchedule(schedules, added);
  const store = await openReportStore(clock, logger, { reportsDir: path.join(folder, 'reports'), linkTtlSeconds: 60 });
  const slot = { idSchedule, slot: 8, name: '1970-01-09' };
  const { id } = await store.create({ idUser, idAccount: 1, event: 'customEvents', request: {}, slot });
  const { folder: attempt } = await store.beginAttempt(id);
  const basis = { version: 3, nextSinceVersion: '3-00000000', keptUntilSeconds: 1 };
  let hasEnded = false;
  /** A store in which the export ends right after its requests were listed. */
  const ending: ReportStore = {
    ...store,
    async select(wanted) {
      const jobs = await store.select(wanted);
      if (!hasEnded) await store.end(id, { state: 'success', files: [], basis }, attempt);
      hasEnded = true;
      return jobs;
    },
  };
  const ordered: unknown[] = [];
  const turns = createScheduleReconciler({
    schedules,
    lakeDir: path.join(folder, 'lake'),
    store: ending,
    clock,
    access,
    crashPoint: noCrashPoint,
    onStop: () => undefined,
    onOverdue: () => undefined,
    slotClock: { timeOf: async (_, number) => number * dayMs, newest: async () => 9 },
    parseRequest: async (_, given) => ({ ...spec, sinceVersion: given.get('sinceVersion')?.[0] ?? '' }),
    exports: { createForSlot: async (_, { sinceVersion }) => void ordered.push(sinceVersion) },
  });
  await turns.take(1, idSchedule);
  await turns.take(1, idSchedule);
  expect(ordered).toEqual(['3-00000000']);
});
