import path from 'node:path';
import { randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { createFlushLimits } from '../../../src/compact/batch/flush-limits.ts';
import { openBatchTables } from '../../../src/lake/batch/batch-tables.ts';
import { extractOversizedLines } from '../../../src/lake/batch/spool-lines.ts';
import { toAdd } from '../../../src/lake/files/data-file.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { hashFile } from '../../../src/runtime/files/file-checks.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { youngFolder } from '../../../src/lake/log/young-folder.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import type { Problem } from '../../../src/runtime/problems/problem.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { type MemoryStream, createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

async function openFiles(lakeDir: string) {
  return (await readSnapshot(lakePaths(lakeDir).table)).files;
}

/** Runs a compactor on a stream in memory. */
async function withCompact(options: Parameters<typeof startTestCompact>[2]) {
  const folder = testFolder();
  const stream: MemoryStream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream, options);
  onTestFinished(() => compactor.stop());
  return {
    stream,
    compact: compactor,
    lakeDir: path.join(folder, 'lake'),
    problems: () => compactor.facts()['problems'] as Problem[],
  };
}

test('An unreadable young file is skipped and named, while the others are sealed and flushes continue', async () => {
  const { stream, compact, lakeDir, problems } = await withCompact({ sealAgeMs: 50 });
  const { table: tableDir } = lakePaths(lakeDir);
  stream.publish([eventLine()]);
  await waitFor('the first event is sealed', async () => (await openFiles(lakeDir)).some((file) => !file.young));
  const table = await openTable(tableDir, { clock: createClock(0), crashPoint: noCrashPoint });
  const name = path.join(youngFolder, `${randomUUID()}.parquet`);
  const file = path.join(tableDir, name);
  // Its checksum matches the log, but the engine cannot read it as Parquet.
  writeFileSync(file, 'PAR1 and nothing else PAR1');
  const written = { sizeBytes: 26, numRecords: 1, stats: { numRecords: 1 }, sha256: await hashFile(file) };
  await table.commit((_state, lake) => ({
    cause: 'flush',
    actions: [{ add: toAdd(name, written, 0, true) }],
    availableAtMs: lake.availableAtMs,
  }));
  for (let stored = 2; stored <= 3; stored += 1) {
    stream.publish([eventLine()]);
    await waitFor(
      'the event is sealed',
      async () => (await openFiles(lakeDir)).filter((found) => !found.young).length === stored,
    );
  }
  expect((await openFiles(lakeDir)).filter((found) => found.young).map((found) => found.path)).toEqual([name]);
  expect(problems()).toEqual([
    {
      code: 'seal_failed',
      subject: expect.stringContaining(name),
      message: expect.stringContaining(name),
      since: expect.any(String),
      action: expect.stringContaining('retries automatically'),
    },
  ]);
  expect(compact.facts()['stored']).toBe(3);
});

test('Failing maintenance is a named problem, ends no flush, and resumes when the cause is removed', async () => {
  const { stream, compact, lakeDir, problems } = await withCompact({ sealAgeMs: 50 });
  let ended: unknown;
  compact.failed.catch((error: unknown) => (ended = error));
  const { staging } = lakePaths(lakeDir);
  stream.publish([eventLine()]);
  await waitFor('the first event is sealed', async () => (await openFiles(lakeDir)).some((file) => !file.young));
  rmSync(staging, { recursive: true });
  writeFileSync(staging, 'no folder');
  stream.publish([eventLine()]);
  await waitFor('the problem is named', () =>
    problems().some(({ message }) => message.startsWith('young rows of the lake have not been sealed since')),
  );
  stream.publish([eventLine()]);
  await waitFor('flushes continue', () => compact.facts()['stored'] === 3);
  expect(ended).toBeUndefined();
  rmSync(staging);
  mkdirSync(staging);
  await waitFor('all is sealed', async () => (await openFiles(lakeDir)).every((file) => !file.young), 30_000);
  await waitFor('the problem is resolved', () => problems().length === 0);
});

test('An event that exceeds the memory of the engine becomes a failed event, and the others of its message are stored', async () => {
  const folder = testFolder();
  const duckdb = await openDuckdb({ memoryMb: 56, threads: 1 });
  onTestFinished(() => duckdb.close());
  const spool = path.join(folder, 'spool.ndjson');
  const params = Object.fromEntries(Array.from({ length: 200_000 }, (_, index) => [index.toString(36), '']));
  const lines = [eventLine(), eventLine({ kind: 'custom_event', custom_event_params: params }), eventLine()].map(
    (line) => JSON.stringify(line),
  );
  writeFileSync(spool, lines.map((line) => `${line}\n`).join(''));
  const tables = await openBatchTables(duckdb);
  expect(await extractOversizedLines(tables, spool)).toEqual([{ reason: 'too_large', line: lines[1] }]);
  expect(await extractOversizedLines(tables, spool)).toEqual([]);
  expect(readdirSync(folder)).toEqual(['spool.ndjson']);
});

test('A batch that exceeds the memory is halved down to one message, whose events are then checked one by one', () => {
  const limits = createFlushLimits({ bytes: 1000, rows: 1, ageMs: 1 });
  const now = (): unknown => [limits.next().maxBytes, limits.isolate()];
  limits.ranOut({ messages: 4, bytes: 800 });
  expect(now()).toEqual([400, false]);
  limits.ranOut({ messages: 1, bytes: 200 });
  expect(now()).toEqual([100, true]);
  limits.flushed(1);
  expect(now()).toEqual([200, false]);
  for (let flush = 0; flush < 5; flush += 1) limits.flushed(1);
  expect(now()).toEqual([1000, false]);
});

test('A lack of memory has its own code, and an engine spills into a folder that does not exist yet', async () => {
  const folder = testFolder();
  const lean = await openDuckdb({ memoryMb: 32, threads: 1 });
  onTestFinished(() => lean.close());
  await expect(lean.rows('SELECT len(list(range)) AS n FROM range(20000000)')).rejects.toMatchObject({
    code: 'memory',
    hint: expect.stringContaining('TRIBUTARY_DUCKDB_MEMORY_MB'),
  });
  const spilling = await openDuckdb({ memoryMb: 64, threads: 1, tempDir: path.join(folder, 'not', 'there') });
  onTestFinished(() => spilling.close());
  await spilling.run(
    'CREATE TEMP TABLE many AS SELECT md5(range::VARCHAR) AS one, md5((range + 1)::VARCHAR) AS two FROM range(2000000)',
  );
  expect(await spilling.rows('SELECT count(*) AS n FROM many')).toEqual([{ n: 2_000_000n }]);
});
