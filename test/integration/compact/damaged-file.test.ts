import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { events } from '../../../src/datasets/dataset.ts';
import { createDueRows } from '../../../src/compact/seal/seal-policy.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { openBatchTables } from '../../../src/lake/batch/batch-tables.ts';
import { createIdempotencyKeyCache } from '../../../src/lake/batch/idempotency-keys.ts';
import { sealDueFiles } from '../../../src/compact/seal/seal.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable, type Table } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import type { AppError } from '../../../src/runtime/errors.ts';
import { damageFile } from '../../helpers/damage.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { linesOf } from '../../helpers/keyed-requests.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

const clock = createClock(0);
const sealing = { sealAgeMs: 0, sealMaxBytes: 1e9 };

/** Returns the folder in which a test stages its seals: the running compactor sweeps the lake's own. */
function ownStaging(lakeDir: string): string {
  const folder = path.join(lakeDir, 'staging-of-the-test');
  mkdirSync(folder, { recursive: true });
  return folder;
}

const twoEvents = () => [eventLine({ custom_user_id: 'alice' }), eventLine({ custom_user_id: 'bob' })];
/** The same events under a new Idempotency-Key. */
const keyedEvents = () => linesOf({ key: randomUUID(), names: ['a', 'b'] });

/** Creates a lake of two young files, with a running compactor that seals nothing. */
async function withLake(lines = twoEvents) {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const files = async () => (await readSnapshot(lakePaths(lakeDir).table)).files;
  for (const count of [1, 2]) {
    stream.publish(lines());
    await waitFor('flushed', async () => (await files()).length === count);
  }
  const duckdb = await openDuckdb({ memoryMb: 512, threads: 1 });
  onTestFinished(() => duckdb.close());
  const table = await openTable(lakePaths(lakeDir).table, { clock, crashPoint: noCrashPoint });
  return { lakeDir, stream, duckdb, table, files };
}

/** Creates the same lake, with one bit of its first file flipped. */
async function withDamage(lines = twoEvents) {
  const lake = await withLake(lines);
  const [first] = await lake.files();
  const damaged = first?.absolutePath ?? '';
  damageFile(damaged, 'flip', createRandom(1));
  return { ...lake, damaged };
}

/** Returns the dependencies of a seal of the lake. */
function sealDependencies({ lakeDir, table, duckdb }: { lakeDir: string; table: Table; duckdb: Duckdb }) {
  const stagingDir = ownStaging(lakeDir);
  return {
    dataset: events,
    table,
    duckdb,
    clock,
    crashPoint: noCrashPoint,
    stagingDir,
    dueRows: createDueRows(sealing),
  };
}

test('A damaged file is not sealed, which would hide its damage, and all other files are sealed', async () => {
  const { lakeDir, duckdb, table, files, damaged } = await withDamage();
  const seal = () => sealDueFiles(sealDependencies({ lakeDir, table, duckdb }), sealing, leftOut);
  const leftOut = new Map<string, AppError>();
  expect(await seal()).toMatchObject({ filesIn: 1, rows: 2 });
  expect([...leftOut.values()].map((damage) => damage.message)).toEqual([expect.stringContaining(damaged)]);
  const after = await files();
  expect(after.filter((file) => file.young).map((file) => file.absolutePath)).toEqual([damaged]);
  expect(after.filter((file) => !file.young)).toHaveLength(1);
  expect(await seal()).toBeUndefined();
});

test('An erasure that finds a damaged file rewrites nothing, and names the file', async () => {
  const { lakeDir, stream, duckdb, table, files, damaged } = await withDamage();
  const before = (await files()).map((file) => file.path);
  const erasing = eraseEvents(
    {
      table,
      lakeDir,
      duckdb,
      publisher: stream.publisher,
      clock,
      crashPoint: noCrashPoint,
      signal: new AbortController().signal,
    },
    { users: ['alice'] },
    { retentionMs: 60_000 },
  );
  await expect(erasing).rejects.toMatchObject({ code: 'file_damaged', message: expect.stringContaining(damaged) });
  expect((await files()).map((file) => file.path)).toEqual(before);
});

/** Loads the keys of the last hours; returns the reported damage. */
async function loadKeys(duckdb: Duckdb, table: Table): Promise<AppError[]> {
  const damages: AppError[] = [];
  const tables = await openBatchTables(duckdb);
  const keys = createIdempotencyKeyCache({ tables, table, onDamage: (found) => damages.push(...found) });
  await keys.warmUp(clock.nowMs(), new AbortController().signal);
  return damages;
}

test('The load of recent keys leaves a damaged file out, and reports it', async () => {
  const { duckdb, table, damaged } = await withDamage(keyedEvents);
  const damages = await loadKeys(duckdb, table);
  expect(damages.map((damage) => damage.message)).toEqual([expect.stringContaining(damaged)]);
});

test('A file without keyed events is not read for keys, and neither are its sealed rows', async () => {
  const { lakeDir, stream, duckdb, table, files } = await withDamage();
  const countKeyless = async () => (await files()).filter((file) => file.keyless === true).length;
  expect(await loadKeys(duckdb, table)).toEqual([]);
  const sealed = sealDependencies({ lakeDir, table, duckdb });
  await sealDueFiles(sealed, sealing, new Map());
  expect(await countKeyless()).toBe(2);
  stream.publish([...twoEvents(), ...keyedEvents()]);
  await waitFor('flushed', async () => (await files()).length === 3);
  expect(await countKeyless()).toBe(2);
  await table.refresh();
  await sealDueFiles({ ...sealed, dueRows: createDueRows(sealing) }, sealing, new Map());
  expect((await files()).some((file) => file.keyless !== true && !file.young)).toBe(true);
});

test('A file that was replaced meanwhile does not count as damaged: its keys are loaded again', async () => {
  const { lakeDir, duckdb, table, files } = await withLake(keyedEvents);
  const replaced = await files();
  const other = await openTable(table.dir, { clock, crashPoint: noCrashPoint });
  await sealDueFiles(
    {
      dataset: events,
      table: other,
      duckdb,
      clock,
      crashPoint: noCrashPoint,
      stagingDir: ownStaging(lakeDir),
      dueRows: createDueRows(sealing),
    },
    sealing,
    new Map(),
  );
  for (const { absolutePath } of replaced) await rm(absolutePath);
  await expect(loadKeys(duckdb, table)).rejects.toMatchObject({ code: 'file_damaged', retryable: true });
  expect(await loadKeys(duckdb, table)).toEqual([]);
});
