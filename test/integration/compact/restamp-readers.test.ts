import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { checkLake } from '../../../src/lake/check.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../../src/lake/sql/literals.ts';
import { changeSteps } from '../../../src/lake/files/change.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { repairLake } from '../../../src/lake/repair/repair-lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { listDeferredReplacements } from '../../../src/lake/files/deferred-replacement.ts';
import { assertFilesIntact } from '../../../src/lake/files/data-file.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';
import { inWholeRun } from '../../helpers/in-turn.ts';

const hourMs = 3_600_000;
async function listSealed(table: string): Promise<string[]> {
  return (await readdir(path.join(table, '_sealed'), { recursive: true })).filter((name) => name.endsWith('.parquet'));
}

const startMs = Date.UTC(2026, 0, 1);
const retentionMs = 60_000;

/**
 * Opens a lake after a clock that was 30 days ahead: one sealed file whose rows are, by age, 3, 1, 4, 2, of which 1
 * has a correct time, and a young file with 5.
 */
async function openAheadLake() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const clock = { now: startMs, nowMs: () => clock.now };
  const start = (options = {}) => startTestCompact(folder, stream, { clock, retentionMs, ...options });
  const publish = async (age: number, idApp: number): Promise<void> => {
    stream.publish([eventLine({ age, id_app: idApp, event_time: startMs / 1000 + age, received_at: clock.now })]);
    await waitFor('stored', async () => (await readSnapshot(table)).lake?.totals.stored === age);
    clock.now += 1000;
  };
  // the jump makes no rows due: all are sealed together
  const first = await start({ sealAgeMs: 90 * 24 * hourMs });
  await publish(1, 2);
  clock.now += 30 * 24 * hourMs;
  await publish(2, 3);
  await publish(3, 1);
  await publish(4, 2);
  await first.stop();
  const sealer = await start({ sealAgeMs: 10 });
  await waitFor('sealed', async () => (await readSnapshot(table)).files.every((file) => !file.young));
  await sealer.stop();
  const last = await start();
  await publish(5, 1);
  await last.stop();
  clock.now = startMs + 24 * hourMs;

  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const read = async (files: string): Promise<{ age: number; at: number }[]> => {
    const rows = await duckdb.rows(
      `SELECT age, epoch_ms(available_at) AS at FROM read_parquet(${files}, hive_partitioning = false) ORDER BY filename, file_row_number`,
    );
    return rows.map((row) => ({ age: Number(row['age']), at: Number(row['at']) }));
  };
  /** Reads the rows of the glob, in stored order. */
  const readGlob = () => read(`'${table}/kind=*/date=*/*.parquet'`);
  /** Reads the rows of the newest version, in the order of availability. */
  const readLog = async () =>
    (await read(sqlList((await readSnapshot(table)).files.map((file) => file.absolutePath)))).toSorted(
      (a, b) => a.at - b.at,
    );
  const repair = (crashPoint: CrashPoint = noCrashPoint) => repairLake({ lakeDir, duckdb, clock, crashPoint });
  return { lakeDir, table, clock, start, readGlob, readLog, repair };
}

test('Readers of the glob, of the log and of older versions find every row once at each step of a repair of times, killed or not, and of the next one', async ({
  skip,
}) => {
  inWholeRun(skip);
  const { lakeDir, table, clock, start, readGlob, readLog, repair } = await openAheadLake();
  const before = await readSnapshot(table);
  const sealed = before.files.filter((file) => !file.young).map((file) => file.publishedPath);
  expect(sealed).toHaveLength(1);
  const inGlob = await readGlob();
  expect(inGlob.map(({ age }) => age)).toEqual([3, 1, 4, 2]);
  const look = async (when: string): Promise<void> => {
    expect(await readGlob(), when).toEqual(inGlob);
    expect(
      (await readLog()).map(({ age }) => age),
      when,
    ).toEqual([1, 2, 3, 4, 5]);
    await assertFilesIntact(before.files);
  };

  for (const step of changeSteps) {
    // The rows of the previous repair are ahead of this clock, too: a waiting rewrite is rewritten.
    clock.now -= hourMs;
    await expect(
      repair((at) => (at === step ? Promise.reject(new Error('killed')) : look(`at ${at}`))),
    ).rejects.toThrow('killed');
    await look(`killed at ${step}`);
    const after = await readSnapshot(table);
    await repair((at) => look(`at ${at}, after a kill at ${step}`));
    await look(`after a kill at ${step}`);
    await assertFilesIntact(after.files);
    expect(Math.max(...(await readLog()).map(({ at }) => at)), step).toBeLessThanOrEqual(clock.now);
    expect(
      (await listDeferredReplacements(table, (await readSnapshot(table)).files)).map((file) => file.publishedPath),
      step,
    ).toEqual(sealed);
    expect((await checkLake(lakeDir)).problems, step).toEqual([]);
  }

  const inLog = await readLog();
  clock.now += retentionMs;
  const renewing = await start();
  await waitFor(
    'the rewrite is at its place',
    async () => (await listDeferredReplacements(table, (await readSnapshot(table)).files)).length === 0,
  );
  await renewing.stop();
  expect((await readSnapshot(table)).files.filter((file) => !file.young).map((file) => file.publishedPath)).toEqual(
    sealed,
  );
  expect(await readGlob()).toEqual(inGlob.map(({ age }) => inLog.find((row) => row.age === age)));
  expect(await readLog()).toEqual(inLog);
  clock.now += retentionMs;
  const cleaning = await start();
  await waitFor('the former files are removed', async () => (await listSealed(table)).length === 1);
  await cleaning.stop();
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});
