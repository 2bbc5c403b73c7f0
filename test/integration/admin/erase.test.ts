import { randomUUID } from 'node:crypto';
import { copyFile, cp, readdir } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { eraseEvents, type Erased, type EraseOptions } from '../../../src/admin/erase/erase.ts';
import type { ErasureTarget } from '../../../src/admin/erase/erase-target.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { listDeferredReplacements } from '../../../src/lake/files/deferred-replacement.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { listLog } from '../../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { assertFilesIntact } from '../../../src/lake/files/data-file.ts';
import { createClock, type Clock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { ensureFolder } from '../../../src/runtime/files/durable-file.ts';
import { isLongRun } from '../../helpers/chaos.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { findFilesWith } from '../../helpers/find-bytes.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole, oneTestIn } from '../../helpers/in-turn.ts';
import { addSealedFile } from '../../helpers/sealed-file.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

interface EraseSetting {
  readonly clock?: Clock;
  readonly memoryMb?: number;
  readonly tempDir?: string;
  /** The engine fails at statements that begin with this word. */
  readonly failAt?: string;
}

async function erase(
  folder: string,
  stream: MemoryStream,
  target: ErasureTarget,
  options: EraseOptions = { retentionMs: 86_400_000, now: true },
  setting: EraseSetting = {},
): Promise<Erased> {
  const { clock = createClock(0), memoryMb = 512, failAt, tempDir } = setting;
  const lakeDir = path.join(folder, 'lake');
  const duckdb = await openDuckdb({ memoryMb, threads: 1, ...(tempDir === undefined ? {} : { tempDir }) });
  const failing: Duckdb = {
    ...duckdb,
    rows: (sql, values) =>
      failAt !== undefined && sql.startsWith(failAt)
        ? Promise.reject(new Error(`${failAt} failed`))
        : duckdb.rows(sql, values),
  };
  try {
    const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
    return await eraseEvents(
      {
        table,
        lakeDir,
        duckdb: failing,
        publisher: stream.publisher,
        clock,
        crashPoint: noCrashPoint,
        signal: new AbortController().signal,
      },
      target,
      options,
    );
  } finally {
    duckdb.close();
  }
}

/** Creates a clock that a test advances. */
function createSteppedClock(): Clock & { advance(ms: number): void } {
  let nowMs = Date.now();
  return { nowMs: () => nowMs, advance: (ms) => void (nowMs += ms) };
}

test('An erased user is in no file, no failed event and no message, and other users are unchanged', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const table = lakePaths(lakeDir).table;
  const stream = createMemoryStream();
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  stream.publish([
    eventLine({ custom_user_id: 'alice' }),
    eventLine({ custom_user_id: 'bob' }),
    eventLine({ kind: 'registration', custom_user_id: 'alice' }),
  ]);
  await waitFor('sealed', async () => (await readSnapshot(table)).files.filter((file) => !file.young).length === 2);
  await sealer.stop();
  const compactor = await startTestCompact(folder, stream);
  stream.publish([
    eventLine({ custom_user_id: 'alice' }),
    eventLine({ custom_user_id: 'carol' }),
    eventLine({ custom_user_id: 'alice', age: 'x' }),
    eventLine({ custom_user_id: 'bob', age: 'x' }),
  ]);
  stream.publishRaw('{"custom_user_id":"alice",\n');

  const { finishesAt, ...first } = await erase(folder, stream, { users: ['alice'] }, { retentionMs: 86_400_000 });
  expect(first).toMatchObject({ rows: 3, failedEvents: 2, filesRewritten: 3 });
  const { lake } = await readSnapshot(table);
  expect(lake?.totals).toEqual({ streamed: 8, stored: 2, failed: 1, repeats: 0, erased: 5 });
  expect(new Set((await readRows(folder, 'custom_user_id, event_id')).map((row) => row['custom_user_id']))).toEqual(
    new Set(['bob', 'carol']),
  );
  // Files for readers of older versions stay during other erasures, until no reader is waited for.
  const nothing = { rows: 0, failedEvents: 0, filesRewritten: 0 };
  const kept = await findFilesWith(folder, 'alice');
  expect(kept).not.toEqual([]);
  expect(await erase(folder, stream, { users: ['mallory'] })).toEqual(nothing);
  expect(await erase(folder, stream, { users: ['alice'] }, { retentionMs: 9 })).toEqual({ ...nothing, finishesAt });
  // A time that has passed promises nothing.
  const later = { clock: { nowMs: () => Date.now() + 2 * 86_400_000 } };
  expect(await erase(folder, stream, { users: ['alice'] }, { retentionMs: 9 }, later)).toEqual(nothing);
  expect(await findFilesWith(folder, 'alice')).toEqual(kept);
  const report = await erase(folder, stream, { users: ['alice'] });
  expect(report).toMatchObject(nothing);
  expect(await findFilesWith(folder, 'alice')).toEqual([]);
  expect(await stream.findMessage(stream.sequences[0] ?? 0)).toMatchObject({ payload: Buffer.from('\n') });
  expect((await listLog(table)).commits[0]).toBeGreaterThanOrEqual(report.historyFrom ?? 0);
  expect(report.historyFrom).toBeGreaterThan(0);
  expect(await erase(folder, stream, { users: ['alice'] })).toEqual(nothing);

  stream.publish([eventLine({ custom_user_id: 'dave' })]);
  await waitFor('dave is stored', async () => (await readRows(folder, 'event_id')).length === 3);
  await compactor.stop();
  expect(await checkLake(lakeDir)).toMatchObject({ ok: true, problems: [] });
});

test('An erasure finds a user of every kind, a device of every kind, and an app', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  stream.publish([
    eventLine({ sezam_user_id: '77' }),
    eventLine({ custom_user_id: '77', id_app: 2 }),
    eventLine({ custom_platform_user_id: '77' }),
    eventLine({ lvid: 'd1' }),
    eventLine({ hwid: '123' }),
    eventLine({ id_app: 5 }),
    eventLine({ id_app: 6 }),
  ]);
  expect(await erase(folder, stream, { users: ['77'], apps: [1] })).toMatchObject({ rows: 2 });
  expect(await erase(folder, stream, { users: ['77'] })).toMatchObject({ rows: 1 });
  expect(await erase(folder, stream, { devices: ['d1'] })).toMatchObject({ rows: 1 });
  expect(await erase(folder, stream, { devices: ['123'] })).toMatchObject({ rows: 1 });
  expect(await erase(folder, stream, { apps: [5] })).toMatchObject({ rows: 1 });
  await expect(erase(folder, stream, {})).rejects.toMatchObject({ code: 'usage' });
  expect((await readRows(folder, 'event_id, id_app')).map((row) => row['id_app'])).toEqual([6n]);
  await compactor.stop();
});

test('Failed events are found by the exact digits of an id, and by bytes if they are not JSON', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const failing = (members: string): void =>
    void stream.publishRaw(`{"event_id":"${randomUUID()}","kind":"login","age":"x",${members}}\n`);
  for (const sezam of ['9223372036854775807', '"9223372036854775807"', '9223372036854775806', '9223372036854775808'])
    failing(`"sezam_user_id":${sezam}`);
  for (const hwid of ['18446744073709551615', '18446744073709551614', '"18446744073709551615"'])
    failing(`"hwid":${hwid}`);
  failing('"custom_user_id":7.50e1,"lvid":"75 is not a user"');
  failing('"custom_user_id":["nested"]');
  stream.publishRaw(Buffer.concat([Buffer.from('{"custom_user_id":"torn'), Buffer.of(0xff), Buffer.from('"}\n')]));
  expect(await erase(folder, stream, { users: ['9223372036854775807'] })).toMatchObject({ rows: 0, failedEvents: 2 });
  expect(await erase(folder, stream, { devices: ['18446744073709551615'] })).toMatchObject({ failedEvents: 2 });
  expect(await erase(folder, stream, { users: ['75'] })).toMatchObject({ failedEvents: 1 });
  expect(await erase(folder, stream, { users: ['nested', 'torn'] })).toMatchObject({ failedEvents: 2 });
  expect((await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals.failed).toBe(3);
  await compactor.stop();
});

test.for(isLongRun ? [2_700_000] : isWhole ? [300_000] : [100_000])(
  'Many people are erased from a sealed file of %i rows by one rewrite, in the same order, with little memory',
  { timeout: 120_000 },
  async (rows) => {
    const folder = testFolder();
    const lakeDir = path.join(folder, 'lake');
    const file = await addSealedFile(lakeDir, rows, 1000);
    const other = await addSealedFile(lakeDir, 1000, 1);
    const stream = createMemoryStream();
    const compactor = await startTestCompact(folder, stream);
    const [{ n } = {}] = await query(
      `SELECT count(*)::INT AS n FROM '${file?.absolutePath}' WHERE custom_user_id IN ('user-7', 'user-8', 'user-9')`,
    );
    // The parent of the folder does not exist; a sort of these rows would exceed the memory.
    const engine = {
      memoryMb: isLongRun ? 512 : isWhole ? 160 : 128,
      tempDir: path.join(folder, 'not', 'there', 'spill'),
    };
    const erased = await erase(
      folder,
      stream,
      { users: ['user-7', 'user-8', 'user-9'] },
      { retentionMs: 86_400_000 },
      engine,
    );
    expect(erased).toMatchObject({ rows: n, filesRewritten: 1 });
    const { files } = await readSnapshot(lakePaths(lakeDir).table);
    expect(new Set(files.map(({ path: name, publishedPath }) => publishedPath ?? name))).toEqual(
      new Set([file?.path, other?.path]),
    );
    const rewrite = files.find((each) => each.sinceMs !== undefined)?.absolutePath;
    const [order] = await query(
      `SELECT count(*)::INT AS n, bool_and(ordered) AS ordered FROM (SELECT (id_app, event_time) >= lag((id_app, event_time), 1, (id_app, event_time)) OVER () AS ordered FROM '${rewrite}')`,
    );
    expect(order).toEqual({ n: rows - Number(n), ordered: true });
    expect(await readdir(lakePaths(lakeDir).staging)).toEqual([]);
    await compactor.stop();
  },
);

test('A failed erasure leaves nothing behind, and the lake unchanged', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const before = await addSealedFile(lakeDir, 5000, 10);
  const compactor = await startTestCompact(folder, stream);
  const failing = erase(folder, stream, { users: ['user-1'] }, { retentionMs: 86_400_000 }, { failAt: 'COPY' });
  await expect(failing).rejects.toMatchObject({ message: expect.stringContaining('COPY failed') });
  expect(await readdir(lakePaths(lakeDir).staging)).toEqual([]);
  expect((await readSnapshot(lakePaths(lakeDir).table)).files.map((file) => file.path)).toEqual([before?.path]);
  await compactor.stop();
});

test('A sealed file is replaced by its rewrite when the retention of its readers has passed, despite a second erasure, a restart and a copy of the folder', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table, quarantine } = lakePaths(lakeDir);
  const file = await addSealedFile(lakeDir, 3000, 3);
  const emptied = await addSealedFile(lakeDir, 100, 1);
  await ensureFolder(quarantine);
  await copyFile(file?.absolutePath ?? '', path.join(quarantine, 'aside.parquet'));
  const stream = createMemoryStream();
  const clock = createSteppedClock();
  const options = { clock, retentionMs: 60_000, checkpointEvery: 2 };
  const glob = async () =>
    (
      await query(
        `SELECT custom_user_id AS id, count(*)::INT AS n, count(DISTINCT event_id)::INT AS ids FROM read_parquet('${table}/kind=*/date=*/*.parquet') GROUP BY ALL ORDER BY 1`,
      )
    ).map((row) => ({ ...row }));
  const inGlob = await glob();
  const expectLog = async (...ids: string[]): Promise<void> => {
    expect(new Set((await readRows(folder, 'custom_user_id, event_id')).map((row) => row['custom_user_id']))).toEqual(
      new Set(ids),
    );
    expect((await checkLake(lakeDir)).problems.filter((finding) => !finding.path.startsWith('quarantine/'))).toEqual(
      [],
    );
  };

  const first = await startTestCompact(folder, stream, options);
  const before = await readSnapshot(table);
  const erased = await erase(folder, stream, { users: ['user-0'] }, { retentionMs: 60_000 }, { clock });
  expect(erased).toMatchObject({ filesRewritten: 2, finishesAt: new Date(clock.nowMs() + 60_000).toISOString() });
  await expectLog('user-1', 'user-2');
  expect(await findFilesWith(quarantine, 'user-0')).toEqual([]);
  expect(await glob()).toEqual(inGlob);
  await assertFilesIntact(before.files);
  clock.advance(30_000);
  await erase(folder, stream, { users: ['user-1'] }, { retentionMs: 60_000 }, { clock });
  await expectLog('user-2');
  expect(await glob()).toEqual(inGlob);
  await first.stop();

  const copy = testFolder();
  await cp(lakeDir, path.join(copy, 'lake'), { recursive: true });
  clock.advance(31_000);
  for (const place of [folder, copy]) {
    const second = await startTestCompact(place, stream, options);
    const own = lakePaths(path.join(place, 'lake'));
    await waitFor(
      'the rewrites are at their places',
      async () => (await listDeferredReplacements(own.table, (await readSnapshot(own.table)).files)).length === 0,
    );
    expect(new Set((await readSnapshot(own.table)).files.map((each) => each.publishedPath))).toEqual(
      new Set([file?.path, emptied?.path]),
    );
    await second.stop();
  }
  expect(await glob()).toEqual(inGlob.filter((row) => row['id'] === 'user-2'));
  await expectLog('user-2');

  clock.advance(61_000);
  const third = await startTestCompact(folder, stream, options);
  await waitFor(
    'no erased user is in any file',
    async () => (await findFilesWith(lakeDir, 'user-0', 'user-1')).length === 0,
  );
  await third.stop();
  const sealed = (await readdir(table, { recursive: true })).filter((name) => /^_sealed.*\.parquet$/.test(name));
  expect(new Set(sealed)).toEqual(new Set((await readSnapshot(table)).files.map((each) => each.path)));
  await expectLog('user-2');
});

test('An erasure without a retention removes a sealed file even if the clock of the compactor is behind', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  await addSealedFile(lakeDir, 300, 3);
  const stream = createMemoryStream();
  const clock = createSteppedClock();
  const compactor = await startTestCompact(folder, stream, { clock, retentionMs: 60_000 });
  await erase(folder, stream, { users: ['user-0'] }, { retentionMs: 60_000 }, { clock });
  clock.advance(-30_000);
  await erase(folder, stream, { users: ['user-0'] }, { retentionMs: 60_000, now: true }, { clock });
  expect(await findFilesWith(lakeDir, 'user-0')).toEqual([]);
  await compactor.stop();
});
