import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { replayFailedEvents, type Replayed } from '../../../src/admin/replay.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { listFailedFiles, readFailedFile } from '../../../src/lake/files/failed-events.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { revenueLine } from '../../helpers/revenue.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

async function replay(lakeDir: string): Promise<Replayed> {
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const table = await openTable(lakePaths(lakeDir).table, { clock: createClock(0), crashPoint: noCrashPoint });
    return await replayFailedEvents({ table, lakeDir, duckdb, clock: createClock(0), crashPoint: noCrashPoint });
  } finally {
    duckdb.close();
  }
}

test('A replay stores events that can be written now, once, and keeps the others', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  stream.publish([eventLine({ age: 'old' }), eventLine({ age: 'older' }), eventLine()]);
  await waitFor('the events are committed', async () => (await readSnapshot(paths.table)).lake?.totals.streamed === 3);
  expect(await replay(lakeDir)).toEqual({ stored: 0, repeats: 0, stillFailed: 2 });

  const [file = ''] = await listFailedFiles(paths.failed, paths.table);
  const mended = (await readFailedFile(file)).map((event) => ({ ...event, line: event.line.replace('"old"', '"7"') }));
  await writeFile(file, mended.map((event) => `${JSON.stringify(event)}\n`).join(''));
  expect(await replay(lakeDir)).toEqual({ stored: 1, repeats: 0, stillFailed: 1 });
  expect(await replay(lakeDir)).toEqual({ stored: 0, repeats: 0, stillFailed: 1 });
  expect((await readSnapshot(paths.table)).lake?.totals).toEqual({
    streamed: 3,
    stored: 2,
    failed: 1,
    repeats: 0,
    erased: 0,
  });
  expect((await readRows(folder, 'event_id, age')).map((row) => row['age'])).toEqual(expect.arrayContaining([7, null]));
  stream.publish([eventLine()]);
  await waitFor('the compactor continues', async () => (await readSnapshot(paths.table)).lake?.totals.stored === 3);
  await compactor.stop();
  expect(await checkLake(lakeDir)).toMatchObject({ ok: true, problems: [] });
});

test('A replay skips transactions, and reports their number', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const paths = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  stream.publish([revenueLine('a', { total: '1.00001' }), eventLine({ age: 'old' })]);
  await waitFor('the events are committed', async () => (await readSnapshot(paths.table)).lake?.totals.streamed === 2);
  await compactor.stop();
  const [file = ''] = await listFailedFiles(paths.failed, paths.table);
  const mended = (await readFailedFile(file)).map((event) => ({
    ...event,
    line: event.line.replace('"old"', '"7"').replace('1.00001', '1'),
  }));
  await writeFile(file, mended.map((event) => `${JSON.stringify(event)}\n`).join(''));
  expect(await replay(lakeDir)).toEqual({ stored: 1, repeats: 0, stillFailed: 1, skipped: 1 });
  expect((await readFailedFile(file)).map(({ line }) => line)).toEqual([mended[0]?.line]);
  expect((await readSnapshot(paths.table)).lake?.totals).toMatchObject({ streamed: 2, stored: 1, failed: 1 });
});
