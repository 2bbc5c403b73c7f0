import { copyFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { machineClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { createEventFinder } from '../../../src/event-lookup/finder.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { addErasedIds, createErasedIdsSearch, valuesSql, wasErased } from '../../../src/lake/event-index/erased-ids.ts';
import { recoverChanges } from '../../../src/lake/files/change.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { repairLake } from '../../../src/lake/repair/repair-lake.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inTurn, inWholeRun } from '../../helpers/in-turn.ts';
import { newEventId, startTestCompact, eventLine } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Creates a lake with one event and a stopped compactor, and functions that erase and look up ids. */
async function openErasable() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const start = () => startTestCompact(folder, stream);
  const compactor = await start();
  stream.publish([eventLine()]);
  await waitFor('stored', async () => (await readSnapshot(paths.table)).files.length === 1);
  await compactor.stop();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const open = (crashPoint: CrashPoint) => openTable(paths.table, { clock: machineClock, crashPoint });
  const eventFinder = createEventFinder({
    lakeDir,
    indexDir: path.join(folder, 'index'),
    workDir: path.join(folder, 'find'),
    readBacklog: async () => 'complete',
  });
  onTestFinished(() => eventFinder.close());
  return {
    paths,
    start,
    check: async () => (await checkLake(lakeDir)).problems.map(({ problem, path: at }) => `${problem} ${at}`),
    erase: async (eventIds: readonly string[], crashPoint: CrashPoint = noCrashPoint) => {
      const selects = [valuesSql(eventIds.map((eventId) => ({ idApp: 1, eventId })))];
      await addErasedIds({ table: await open(crashPoint), duckdb, crashPoint }, paths, selects);
    },
    recover: async () => recoverChanges(await open(noCrashPoint), paths.staging),
    isErased: async (eventId: string) =>
      wasErased(duckdb, await createErasedIdsSearch(paths)(), { idApp: 1, eventId }, [1]),
    ask: (eventId: string) =>
      eventFinder.find({ target: { eventId, idApp: 1 }, idApps: [1], deadlineMs: performance.now() + 20_000 }),
    repair: (acceptsLoss: boolean) =>
      repairLake({ lakeDir, duckdb, clock: machineClock, crashPoint: noCrashPoint }, acceptsLoss),
  };
}

test('A check and the running compactor detect lost or changed hashes of erased ids, and no event is reported as unknown', async () => {
  const { paths, erase, check, ask, start } = await openErasable();
  const ids = Array.from({ length: 50 }, newEventId);
  await erase(ids);
  expect(await check()).toEqual([]);
  expect(await ask(ids[0] ?? '')).toEqual({ state: 'erased', events: [] });
  expect(await ask(newEventId())).toMatchObject({ state: 'never_seen' });
  const whole = readFileSync(paths.erasedIds);
  const places = Array.from({ length: 24 }, (_, place) => place);
  for (const place of inTurn(places, 8)) {
    const bytes = Buffer.from(whole);
    const at = Math.floor((place * bytes.length) / 24);
    bytes.writeUInt8((bytes[at] ?? 0) ^ 1, at);
    writeFileSync(paths.erasedIds, bytes);
    expect(await check()).toEqual(['damaged_file erased-ids.parquet']);
  }
  await expect(ask(newEventId())).rejects.toMatchObject({ code: 'file_damaged' });
  await expect(erase([newEventId()])).rejects.toMatchObject({ code: 'file_damaged' });
  rmSync(paths.erasedIds);
  expect(await check()).toEqual(['missing_file erased-ids.parquet']);
  await expect(ask(ids[0] ?? '')).rejects.toMatchObject({ code: 'file_damaged' });
  const compactor = await start();
  onTestFinished(() => compactor.stop());
  const notices = () => (compactor.facts()['warnings'] as { code: string }[]).map(({ code }) => code);
  await waitFor('the missing file is reported', () => notices().includes('erased_ids_damaged'));
  writeFileSync(paths.erasedIds, whole);
  expect(await ask(ids[0] ?? '')).toEqual({ state: 'erased', events: [] });
  await waitFor('the file that was put back is seen', () => !notices().includes('erased_ids_damaged'), 20_000);
});

test('An erasure that is killed while it writes hashes leaves the old or the new ones, never a file that the log does not name', async ({
  skip,
}) => {
  inWholeRun(skip);
  const { erase, recover, check, isErased } = await openErasable();
  const first = newEventId();
  await erase([first]);
  for (const [step, isNamed] of [
    ['change-written', false],
    ['files-linked', false],
    ['commit-written', false],
    ['commit-linked', true],
    ['commit-synced', true],
    ['change-committed', true],
    ['change-followed', true],
    ['change-ended', true],
  ] as const) {
    const id = newEventId();
    const killed = async (at: string): Promise<void> => {
      if (at === step) throw new Error('killed');
    };
    await expect(erase([id], killed)).rejects.toThrow('killed');
    expect([step, await isErased(first), await isErased(id), await check()]).toEqual([step, true, isNamed, []]);
    await recover();
    expect([step, await isErased(first), await isErased(id), await check()]).toEqual([step, true, isNamed, []]);
  }
});

test('The next start records hashes of an earlier version in the log, without a problem before', async () => {
  const { paths, erase } = await openErasable();
  const old = newEventId();
  await erase([old]);
  const upgraded = await openErasable();
  expect(await upgraded.check()).toEqual([]);
  const file = upgraded.paths.erasedIds;
  copyFileSync(paths.erasedIds, file);
  truncateSync(file, 100);
  expect(await upgraded.check()).toEqual(['damaged_file erased-ids.parquet']);
  copyFileSync(paths.erasedIds, file);
  expect([await upgraded.check(), await upgraded.isErased(old)]).toEqual([[], true]);
  await (await upgraded.start()).stop();
  expect((await readSnapshot(upgraded.paths.table)).lake?.erasedIds).toMatchObject({ hashes: 1 });
  rmSync(file);
  expect(await upgraded.check()).toEqual(['missing_file erased-ids.parquet']);
});

test('An accepted loss of hashes resolves the problem, and later erasures are recorded', async () => {
  const { paths, erase, check, isErased, repair } = await openErasable();
  const [lost, later] = [newEventId(), newEventId()];
  await erase([lost]);
  rmSync(paths.erasedIds);
  expect((await repair(false)).erasedIdsLost).toBeUndefined();
  expect(await check()).toEqual(['missing_file erased-ids.parquet']);
  expect(await repair(true)).toMatchObject({ repaired: true, erasedIdsLost: true });
  expect([await check(), await isErased(lost)]).toEqual([[], false]);
  await erase([later]);
  expect([await check(), await isErased(lost), await isErased(later)]).toEqual([[], false, true]);
  expect((await createErasedIdsSearch(paths)()).isComplete).toBe(false);
});
