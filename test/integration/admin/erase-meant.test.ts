import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { assertUnambiguousIds, parseErasure, type AccountOfApp } from '../../../src/cli/erase.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { dryRunErasure } from '../../../src/admin/erase/survey.ts';
import type { ErasureTarget } from '../../../src/admin/erase/erase-target.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { listLog } from '../../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

const apps: readonly AccountOfApp[] = [
  { idApp: '1', idAccount: '1' },
  { idApp: '2', idAccount: '1' },
  { idApp: '3', idAccount: '2' },
];

const list = (): readonly AccountOfApp[] => apps;

const killed: CrashPoint = async (step) => {
  if (step === 'erase-rewritten') throw new Error('killed');
};

/** Opens a lake with these events, and runs erasures on it as the command does. */
async function startErasable(events: readonly ReturnType<typeof eventLine>[]) {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  stream.publish([...events]);
  await waitFor('all is stored', async () => (await readRows(folder, 'event_id')).length === events.length);
  const clock = createClock(0);
  const table = lakePaths(lakeDir).table;
  const open = async (crashPoint: CrashPoint = noCrashPoint) => ({
    table: await openTable(table, { clock, crashPoint }),
    lakeDir,
    duckdb,
    publisher: stream.publisher,
    clock,
    crashPoint,
    signal: new AbortController().signal,
  });
  return {
    folder,
    read: () => readSnapshot(table),
    history: async () => (await listLog(table)).commits[0],
    survey: async (target: ErasureTarget) => dryRunErasure(await open(), target),
    erase: async (target: ErasureTarget, crashPoint?: CrashPoint) =>
      eraseEvents(await open(crashPoint), target, {
        retentionMs: 86_400_000,
        assertMeant: (found) => assertUnambiguousIds(found, target, list),
      }),
  };
}

test('An erasure that matches nothing changes nothing: no commit, and the history stays', async () => {
  const lake = await startErasable([eventLine({ custom_user_id: 'alice' })]);
  const before = await lake.read();
  expect(await lake.erase({ users: ['nobody'] })).toEqual({ rows: 0, failedEvents: 0, filesRewritten: 0 });
  const after = await lake.read();
  // the stream is drained first, which the compactor may commit
  expect(after.lake?.forgetBefore).toBeUndefined();
  expect(after.files.map((file) => file.path)).toEqual(before.files.map((file) => file.path));
  expect(await lake.history()).toBe(0);
});

test('An erasure that was killed between its rewrite and its last commit has its history dropped by its repetition', async () => {
  const lake = await startErasable([eventLine({ custom_user_id: 'alice' }), eventLine({ custom_user_id: 'bob' })]);
  await expect(lake.erase({ users: ['alice'] }, killed)).rejects.toThrow('killed');
  expect((await lake.read()).lake).toMatchObject({ erasing: [1] });
  expect(await lake.erase({ users: ['alice'] })).toMatchObject({
    rows: 0,
    historyFrom: expect.any(Number),
    finishesAt: expect.any(String),
  });
  const { lake: state } = await lake.read();
  expect(state?.erasing).toBeUndefined();
  expect(state?.forgetBefore).toBeGreaterThan(0);
});

test('An ambiguous id is refused, with the option that distinguishes the people, and nothing is erased', async () => {
  const lake = await startErasable([
    eventLine({ custom_user_id: '12', id_app: 1 }),
    eventLine({ custom_platform_user_id: '12', id_app: 2 }),
    eventLine({ sezam_user_id: '12', id_app: 2 }),
    eventLine({ custom_user_id: 'carol', id_app: 1 }),
    eventLine({ custom_user_id: 'carol', id_app: 3 }),
    eventLine({ custom_user_id: 'dave', id_app: 1 }),
    eventLine({ custom_user_id: 'dave', id_app: 2 }),
  ]);
  await expect(lake.erase({ users: ['12'] })).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringContaining('of several types (custom, platform, game)'),
    hint: expect.stringContaining('--user-id-type'),
  });
  await expect(lake.erase({ users: ['dave', 'carol'] })).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringContaining("'carol' occurs in events of several accounts"),
    hint: expect.stringContaining('--account'),
  });
  expect((await readRows(lake.folder, 'event_id')).length).toBe(7);
  expect((await lake.read()).lake?.totals.erased).toBe(0);

  expect(await lake.survey({ users: ['12'], userKind: 'game' })).toMatchObject({
    rows: 1,
    failedEvents: 0,
    filesToRewrite: 1,
    meanings: [{ id: '12', kind: 'game', idApp: 2, rows: 1 }],
  });
  expect(await lake.erase({ users: ['12'], userKind: 'game' })).toMatchObject({ rows: 1 });
  expect(await lake.erase({ users: ['12'], userKind: 'platform' })).toMatchObject({ rows: 1 });
  // one kind is left, and needs no option
  expect(await lake.erase({ users: ['12'] })).toMatchObject({ rows: 1 });
  expect(await lake.erase({ users: ['carol'], apps: [3] })).toMatchObject({ rows: 1 });
  expect(await lake.erase({ users: ['dave', 'carol'] })).toMatchObject({ rows: 3 });
  expect(await readRows(lake.folder, 'event_id')).toEqual([]);
});

test('Ids that differ by a byte order mark only are those of two people, and each is erased by its own', async () => {
  const lake = await startErasable([
    eventLine({ custom_user_id: '\uFEFFerin', id_app: 1 }),
    eventLine({ custom_user_id: 'erin', id_app: 3 }),
  ]);
  expect(await lake.survey({ users: ['\uFEFFerin'] })).toMatchObject({
    meanings: [{ id: '\uFEFFerin', kind: 'custom', idApp: 1, rows: 1 }],
  });
  expect(await lake.erase({ users: ['erin', '\uFEFFerin'] })).toMatchObject({ rows: 2 });
});

test('A dry run of an erasure counts rows and failed events, and changes nothing', async () => {
  const lake = await startErasable([eventLine({ custom_user_id: 'alice' }), eventLine({ custom_user_id: 'bob' })]);
  const before = (await lake.read()).version;
  expect(await lake.survey({ users: ['alice', randomUUID()] })).toMatchObject({
    rows: 1,
    failedEvents: 0,
    filesToRewrite: 1,
  });
  expect(await lake.survey({ users: ['nobody'] })).toEqual({
    rows: 0,
    failedEvents: 0,
    filesToRewrite: 0,
    meanings: [],
  });
  expect((await lake.read()).version).toBe(before);
});

test('The options of an erasure name ids, kinds of ids, and apps', async () => {
  expect(await parseErasure({ user: '12', userIdType: 'game', account: 1 }, list)).toEqual({
    users: ['12'],
    userKind: 'game',
    apps: [1, 2],
  });
  expect(await parseErasure({ device: 'd', app: 3 }, list)).toEqual({ devices: ['d'], apps: [3] });
  for (const words of [
    { device: 'd', userIdType: 'game' },
    { account: 1 },
    { user: '1', app: 1, account: 1 },
    {},
  ] as const)
    await expect(parseErasure(words, list)).rejects.toMatchObject({ code: 'usage' });
  await expect(parseErasure({ user: '1', account: 9 }, list)).rejects.toMatchObject({ code: 'not_found' });
});
