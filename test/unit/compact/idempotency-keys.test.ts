import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openBatchTables, type ClassifiedBatch } from '../../../src/lake/batch/batch-tables.ts';
import { createIdempotencyKeyCache } from '../../../src/lake/batch/idempotency-keys.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

const clock = createClock(0);
const hourMs = 3_600_000;

const linesAt = (ms: number, requests = ['one', 'two']) =>
  requests.flatMap((key) => linesOf({ key, names: ['a', 'b'], receivedMs: ms }));

/** Opens a lake with a file for each of two requests, and a table of their keys in which each becomes a slice. */
async function openMemory() {
  const folder = testFolder();
  const receivedMs = clock.nowMs();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const { table: tableDir } = lakePaths(path.join(folder, 'lake'));
  for (const count of [1, 2]) {
    stream.publish(linesAt(receivedMs).slice(2 * count - 2, 2 * count));
    await waitFor('flushed', async () => (await readSnapshot(tableDir)).files.length === count);
  }
  await compactor.stop();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const slices = path.join(folder, 'slices');
  const tables = await openBatchTables(duckdb, undefined, { folder: slices, rows: 1 });
  const table = await openTable(tableDir, { clock, crashPoint: noCrashPoint });
  const keys = createIdempotencyKeyCache({ tables, table, onDamage: () => undefined });
  return {
    slices,
    receivedMs,
    warmUp: () => keys.warmUp(receivedMs, new AbortController().signal),
    /** Classifies two requests, those of the lake unless given, as received at a time. */
    judge: async (ms: number, requests?: string[]) => {
      const spool = path.join(folder, 'spool.ndjson');
      writeFileSync(
        spool,
        linesAt(ms, requests)
          .map((line) => `${JSON.stringify(line)}\n`)
          .join(''),
      );
      return keys.classify(await tables.load(spool, 4), false);
    },
    remember: (batch: ClassifiedBatch) => keys.remember(batch, undefined),
    countKnown: async () => Number((await duckdb.rows('SELECT count(*) AS n FROM recent_keys'))[0]?.['n']),
  };
}

test('Keys that could not all be loaded are not added again by each attempt', async () => {
  const { slices, receivedMs, warmUp, judge, countKnown } = await openMemory();
  writeFileSync(slices, 'in the way of the folder');
  for (let attempt = 0; attempt < 3; attempt += 1) await expect(warmUp()).rejects.toThrow(slices);
  expect(await countKnown()).toBe(0);
  rmSync(slices);
  await warmUp();
  expect(readdirSync(slices)).toHaveLength(2);
  expect(await judge(receivedMs + hourMs)).toMatchObject({ rows: 0, repeats: 4 });
});

test('A batch that arrives while keys are loaded waits for them all, and none is loaded twice', async () => {
  const { slices, receivedMs, warmUp, judge } = await openMemory();
  const [, judged] = await Promise.all([warmUp(), judge(receivedMs + hourMs)]);
  expect(judged).toMatchObject({ rows: 0, repeats: 4 });
  expect(readdirSync(slices)).toHaveLength(2);
});

test('Keys that an error has dropped are read again when the clock goes back to their time', async () => {
  const { slices, receivedMs, warmUp, judge, remember } = await openMemory();
  await warmUp();
  const later = await judge(receivedMs + 50 * hourMs, ['three', 'four']);
  expect(later).toMatchObject({ rows: 4, repeats: 0 });
  for (const name of readdirSync(slices)) {
    rmSync(path.join(slices, name));
    mkdirSync(path.join(slices, name));
  }
  await expect(remember(later)).rejects.toThrow(slices);
  expect(await judge(receivedMs + hourMs)).toMatchObject({ rows: 0, repeats: 4 });
});
