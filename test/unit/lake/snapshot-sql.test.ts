import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { expect, test } from 'vitest';
import { createClock } from '../../../src/runtime/clock.ts';
import { ensureLake } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/snapshot.ts';
import { eventColumns } from '../../../src/model/event-fields.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

/** Runs snapshot.sql as `.read` does, then a query, in an engine that has nothing of ours. */
async function readThroughSql(lakeDir: string, sql: string): Promise<unknown[]> {
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  try {
    const script = await readFile(path.join(lakeDir, 'snapshot.sql'), 'utf8');
    const statements = await connection.extractStatements(script);
    for (let index = 0; index < statements.count; index += 1) await (await statements.prepare(index)).run();
    return (await connection.runAndReadAll(sql)).getRowObjectsJson();
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

test('a lake without events reads as empty views with every column', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  await ensureLake(lakeDir, { clock: createClock(0), retentionMs: 1000 });
  await ensureLake(lakeDir, { clock: createClock(0), retentionMs: 1000 });
  expect(await readThroughSql(lakeDir, 'SELECT count(*) AS n FROM events')).toEqual([{ n: '0' }]);
  expect(await readThroughSql(lakeDir, 'SELECT count(*) AS n FROM custom_event')).toEqual([{ n: '0' }]);
  const columns = (await readThroughSql(lakeDir, 'DESCRIBE events')) as { column_name: string; column_type: string }[];
  expect(columns.map((column) => column.column_name)).toEqual(eventColumns.map((column) => column.name));
  expect((await readSnapshot(path.join(lakeDir, 'events'))).version).toBe(0);
});

test('the views have every committed row, young or sealed, and each kind its own', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const compact = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  stream.publish([eventLine(), eventLine({ kind: 'registration' })]);
  await waitFor('sealed', async () => (await readSnapshot(path.join(lakeDir, 'events'))).files.filter((file) => !file.young).length === 2);
  await compact.stop();
  const last = await startTestCompact(folder, stream);
  stream.publish([eventLine({ kind: 'custom_event', custom_event_name: 'buy', custom_event_params: { a: 'b' } })]);
  await waitFor('flushed', async () => (await readSnapshot(path.join(lakeDir, 'events'))).files.length === 3);
  await last.stop();
  expect(await readThroughSql(lakeDir, 'SELECT kind, count(*)::INT AS n FROM events GROUP BY kind ORDER BY kind')).toEqual([
    { kind: 'custom_event', n: 1 },
    { kind: 'login', n: 1 },
    { kind: 'registration', n: 1 },
  ]);
  expect(await readThroughSql(lakeDir, "SELECT custom_event_params['a'] AS a FROM custom_event")).toEqual([{ a: 'b' }]);
});
