import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { eraseEvents, type Erased, type EraseOptions } from '../../../src/compact/erase.ts';
import type { ErasureTarget } from '../../../src/compact/erase-target.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { openDuckdb } from '../../../src/lake/duckdb.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { listLog } from '../../../src/lake/log-files.ts';
import { readSnapshot } from '../../../src/lake/snapshot.ts';
import { openTable } from '../../../src/lake/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

async function erase(folder: string, stream: MemoryStream, target: ErasureTarget, options: EraseOptions = { retentionMs: 86_400_000, now: true }): Promise<Erased> {
  const lakeDir = path.join(folder, 'lake');
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  try {
    const clock = createClock(0);
    const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
    return await eraseEvents({ table, lakeDir, duckdb, publisher: stream.publisher, clock, crashPoint: noCrashPoint, signal: new AbortController().signal }, target, options);
  } finally {
    duckdb.close();
  }
}

/** Every file below the lake that holds a text, by name. */
async function filesWith(lakeDir: string, text: string): Promise<string[]> {
  const names = (await readdir(lakeDir, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
  const found: string[] = [];
  for (const file of names) {
    const parquet = file.endsWith('.parquet') && !file.includes('_delta_log');
    const sql = parquet ? `SELECT count(*) AS n FROM read_parquet('${file}') t WHERE contains(t::VARCHAR, '${text}')` : `SELECT count(*) AS n FROM read_blob('${file}') WHERE contains(hex(content), hex('${text}'))`;
    if (Number((await query(sql))[0]?.['n']) > 0) found.push(file);
  }
  return found;
}

test('an erased user is in no file, no failed event and no message, and everyone else is untouched', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const table = lakePaths(lakeDir).table;
  const stream = createMemoryStream();
  const sealer = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  stream.publish([eventLine({ custom_user_id: 'alice' }), eventLine({ custom_user_id: 'bob' }), eventLine({ kind: 'registration', custom_user_id: 'alice' })]);
  await waitFor('sealed', async () => (await readSnapshot(table)).files.filter((file) => !file.young).length === 2);
  await sealer.stop();
  const compact = await startTestCompact(folder, stream);
  stream.publish([eventLine({ custom_user_id: 'alice' }), eventLine({ custom_user_id: 'carol' }), eventLine({ custom_user_id: 'alice', age: 'x' }), eventLine({ custom_user_id: 'bob', age: 'x' })]);
  stream.publishRaw('{"custom_user_id":"alice",\n');

  const report = await erase(folder, stream, { users: ['alice'] });
  expect(report).toMatchObject({ rows: 3, failedEvents: 2, filesRewritten: 3 });
  const { lake } = await readSnapshot(table);
  expect(lake?.totals).toEqual({ streamed: 8, stored: 2, failed: 1, repeats: 0, erased: 5 });
  expect(new Set((await readRows(folder, 'custom_user_id, event_id')).map((row) => row['custom_user_id']))).toEqual(new Set(['bob', 'carol']));
  expect(await filesWith(lakeDir, 'alice')).toEqual([]);
  expect(await stream.findMessage(stream.sequences[0] ?? 0)).toMatchObject({ payload: Buffer.from('\n') });
  expect((await listLog(table)).commits[0]).toBeGreaterThanOrEqual(report.historyFrom);
  expect(await erase(folder, stream, { users: ['alice'] })).toMatchObject({ rows: 0, failedEvents: 0, filesRewritten: 0 });

  stream.publish([eventLine({ custom_user_id: 'dave' })]);
  await waitFor('dave is stored', async () => (await readRows(folder, 'event_id')).length === 3);
  await compact.stop();
  expect(await checkLake(lakeDir)).toMatchObject({ ok: true, problems: [] });
});

test('an erasure finds a user of every kind, a device of every kind, and an app', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compact = await startTestCompact(folder, stream);
  stream.publish([
    eventLine({ sezam_user_id: '77' }),
    eventLine({ custom_user_id: '77', id_app: 2 }),
    eventLine({ custom_platform_user_id: '77' }),
    eventLine({ lvid: 'd1' }),
    eventLine({ hwid: '123' }),
    eventLine({ id_app: 5 }),
    eventLine({ id_app: 6 }),
  ]);
  expect(await erase(folder, stream, { users: ['77'], app: 1 })).toMatchObject({ rows: 2 });
  expect(await erase(folder, stream, { users: ['77'] })).toMatchObject({ rows: 1 });
  expect(await erase(folder, stream, { devices: ['d1'] })).toMatchObject({ rows: 1 });
  expect(await erase(folder, stream, { devices: ['123'] })).toMatchObject({ rows: 1 });
  expect(await erase(folder, stream, { app: 5 })).toMatchObject({ rows: 1 });
  await expect(erase(folder, stream, {})).rejects.toMatchObject({ code: 'usage' });
  expect((await readRows(folder, 'event_id, id_app')).map((row) => row['id_app'])).toEqual([6n]);
  await compact.stop();
});
