import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createCompletenessGate, maxCompletenessWaitMs } from '../../../../src/export/schedules/slot-clock.ts';
import { ensureLake, lakePaths } from '../../../../src/lake/lake.ts';
import { openTable } from '../../../../src/lake/log/table.ts';
import { noCrashPoint } from '../../../../src/runtime/crash-point.ts';
import type { Schedule } from '../../../../src/schedules/schedules.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { formatRequest } from '../../../helpers/format-request.ts';

const slotMs = Date.parse('2026-11-23T04:00:00Z');
const endSeconds = Date.parse('2026-11-23T00:00:00Z') / 1000;
const request = { ...formatRequest(), eventTime: { beforeSeconds: endSeconds } };
const schedule = { rule: { every: 'day', at: '04:00', timezone: 'UTC' } } as unknown as Schedule;

/** A lake that has a stream up to a watermark, and the wait of a slot. */
async function openWait(watermarkMs: number) {
  const lakeDir = path.join(testFolder(), 'lake');
  mkdirSync(lakeDir);
  const clock = { now: slotMs, nowMs: () => clock.now };
  await ensureLake(lakeDir, { clock, retentionMs: 86_400_000 });
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  await table.commit(() => ({
    cause: 'epoch',
    actions: [{ txn: { appId: 'S@1', version: 0 } }],
    epoch: { appId: 'S@1', streamId: 'S@1', position: 0, dedupeThrough: 0, watermarkMs },
  }));
  const slotClock = { timeOf: async () => slotMs, newest: async () => 1 };
  return { clock, wait: createCompletenessGate({ lakeDir, slotClock, clock }) };
}

test('A slot waits until the lake is complete up to the end of its period', async () => {
  const early = await openWait(endSeconds * 1000 - 1);
  expect(await early.wait(schedule, 1, request)).toBe('waits');
  const { wait } = await openWait(endSeconds * 1000);
  expect(await wait(schedule, 1, request)).toBe('complete');
});

test('A slot whose period stays incomplete is overdue after the longest wait', async () => {
  const { clock, wait } = await openWait(1);
  clock.now = slotMs + maxCompletenessWaitMs - 1;
  expect(await wait(schedule, 1, request)).toBe('waits');
  clock.now = slotMs + maxCompletenessWaitMs;
  expect(await wait(schedule, 1, request)).toBe('overdue');
});

test('A change feed, and a period without an end, do not wait', async () => {
  const { wait } = await openWait(1);
  expect(await wait(schedule, 1, { ...request, sinceVersion: '0' })).toBe('complete');
  expect(await wait(schedule, 1, { ...request, eventTime: {} })).toBe('complete');
});
