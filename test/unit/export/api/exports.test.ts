import { once } from 'node:events';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { User } from '../../../../src/access/access.ts';
import { openAccessReader } from '../../../../src/access/store.ts';
import { createRequestParser } from '../../../../src/export/api/parse-request.ts';
import { createExports, type Exports } from '../../../../src/export/api/exports.ts';
import { runInWorker } from '../../../../src/export/jobs/worker-process.ts';
import { startJobRunner } from '../../../../src/export/jobs/scheduler.ts';
import { createCalendar } from '../../../../src/export/api/calendar.ts';
import { findAvailableVersions } from '../../../../src/lake/log/change-feed.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import type { NewReport, ReportSlot } from '../../../../src/reports/reports.ts';
import { openReportStore, type ReportStore } from '../../../../src/reports/store.ts';
import { createClock } from '../../../../src/runtime/clock.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { formatRequest } from '../../../helpers/format-request.ts';

const clock = createClock(0);
const logger = createLogger('silent');

const userOf = (idUser: string, idAccount: number): User => ({
  idUser,
  name: idUser,
  idAccount,
  secret: 's',
  canExport: true,
  maxExports: undefined,
  files: 'auto',
  isOperator: false,
});
const reportOf = (user: User): NewReport => ({
  idUser: user.idUser,
  idAccount: user.idAccount,
  event: 'customEvents',
  request: {},
});

/** The rules of the export area over a separate store; no request runs. */
async function openExports(
  loaded: Promise<void> = Promise.resolve(),
): Promise<{ readonly exports: Exports; readonly store: ReportStore }> {
  const folder = testFolder();
  const store = await openReportStore(clock, logger, { reportsDir: path.join(folder, 'reports'), linkTtlSeconds: 60 });
  const access = await openAccessReader(
    { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') },
    logger,
  );
  onTestFinished(() => access.close());
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  const limits = { maxRows: 1, maxBytes: 1, singleFileMaxBytes: 1, partMaxBytes: 1, memoryMb: 128, threads: 1 };
  const runner = startJobRunner(
    { store, access, clock, logger, runAttempt: runInWorker, onEnd: () => undefined, onDamage: () => undefined },
    { workers: 0, timeoutMs: 1000, lakeDir: folder, segmentsDir: folder, titlesDir: folder, retentionMs: 0, limits },
  );
  onTestFinished(() => runner.stop());
  return {
    exports: createExports(
      {
        store,
        runner,
        clock,
        parseRequest: createRequestParser({
          calendar: createCalendar(duckdb),
          listSegmentIds: async () => [],
          hasDestination: async () => false,
          findVersions: () => findAvailableVersions(folder),
          appsOfAccount: () => [],
        }),
        loaded,
      },
      { maxExports: 2, loadWaitMs: 10 },
    ),
    store,
  };
}

test('Every user of an account finds its requests, and users of other accounts do not', async () => {
  const { exports, store } = await openExports();
  const [ann, bea, eve] = [userOf('1', 1), userOf('2', 1), userOf('3', 2)];
  const { id } = await store.create(reportOf(ann));
  expect((await exports.find(ann, String(id)))?.id).toBe(id);
  expect((await exports.find(bea, String(id)))?.id).toBe(id);
  expect(await exports.find(eve, String(id))).toBeUndefined();
});

test('A list has only the requests of its user in the current account', async () => {
  const { exports, store } = await openExports();
  const ann = userOf('1', 1);
  const own = await store.create(reportOf(ann));
  await store.create(reportOf(userOf('2', 1)));
  await store.create(reportOf(userOf('1', 2)));
  expect(await exports.list(ann)).toMatchObject([{ id: own.id }]);
});

test('A list is refused, instead of truncated, while the requests of earlier processes are being read', async () => {
  const reading = new AbortController();
  const { exports, store } = await openExports(once(reading.signal, 'abort').then(() => undefined));
  const ann = userOf('1', 1);
  const own = await store.create(reportOf(ann));
  expect(await exports.list(ann)).toEqual({ code: 500, retryAfterSeconds: 5 });
  expect((await exports.find(ann, String(own.id)))?.id).toBe(own.id);
  reading.abort();
  expect(await exports.list(ann)).toMatchObject([{ id: own.id }]);
});

test('The limit counts requests of colleagues, and none of other accounts', async () => {
  const { exports, store } = await openExports();
  const ann = userOf('1', 1);
  const wanted = new Map([
    ['event', ['customEvents']],
    ['selectors', ['eventId']],
    ['dateFrom', ['2026-01-01']],
    ['dateTo', ['2026-01-02']],
    ['timezone', ['UTC']],
  ]);
  for (let n = 0; n < 3; n += 1) await store.create(reportOf(userOf('9', 2)));
  expect(await exports.create(ann, wanted, () => false)).toMatchObject({ state: 'queued', idAccount: 1 });
  await store.create(reportOf(userOf('2', 1)));
  expect(await exports.create(ann, wanted, () => false)).toMatchObject({ code: 400 });
});

test('A client that disconnects before it gets its id leaves no request that counts for the limit', async () => {
  const { exports, store } = await openExports();
  const ann = userOf('1', 1);
  const wanted = new Map([
    ['event', ['customEvents']],
    ['selectors', ['eventId']],
    ['dateFrom', ['2026-01-01']],
    ['dateTo', ['2026-01-02']],
    ['timezone', ['UTC']],
  ]);
  let asked = 0;
  // Disconnected while its request became durable, and before that.
  for (const isGone of [() => (asked += 1) > 1, () => true]) {
    for (let n = 0; n < 3; n += 1) {
      asked = 0;
      await exports.create(ann, wanted, isGone);
    }
  }
  expect(store.list()).toEqual([]);
  for (const id of [4, 5])
    expect(await exports.create(ann, wanted, () => false)).toMatchObject({ id, state: 'queued' });
});

const slotOf = (slot: number): { readonly slot: ReportSlot } => ({
  slot: { idSchedule: 'sc_0', slot, name: String(slot) },
});

test('Slots of schedules leave one request of the limits of account and user to calls', async () => {
  const { exports, store } = await openExports();
  const ann = userOf('1', 1);
  const request = formatRequest();
  expect(await exports.createForSlot(ann, request, slotOf(1))).toBeDefined();
  expect(await exports.createForSlot(ann, request, slotOf(2))).toBeUndefined();
  await store.create(reportOf(ann));
  expect(store.inProgress().length).toBe(2);
  const dan = userOf('4', 4);
  await store.create(reportOf(dan));
  expect(await exports.createForSlot(dan, request, slotOf(1))).toBeDefined();
  expect(await exports.createForSlot(dan, request, slotOf(2))).toBeUndefined();
  const bea = { ...userOf('2', 2), maxExports: 1 };
  expect(await exports.createForSlot(bea, request, slotOf(1))).toBeDefined();
  expect(await exports.createForSlot(bea, request, slotOf(2))).toBeUndefined();
});
