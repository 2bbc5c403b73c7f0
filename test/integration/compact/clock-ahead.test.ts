import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { clockToleranceMs } from '../../../src/lake/log/lake-state.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { repairLake, type LakeRepair } from '../../../src/lake/repair/repair-lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

/** A clock that was ahead: its times in the lake are reported at once, and repaired by `tributary lake repair`. */

const dayMs = 86_400_000;
const startMs = Date.UTC(2026, 0, 1);

/** Opens a lake whose clock is set by the test: each event has its own flush, and is known by its age. */
function openClockLake() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const clock = { now: startMs, nowMs: () => clock.now };
  let events = 0;
  const publish = async (): Promise<void> => {
    stream.publish([
      eventLine({ age: (events += 1), event_time: Math.floor(clock.now / 1000), received_at: clock.now }),
    ]);
    await waitFor('stored', async () => (await readSnapshot(table)).lake?.totals.stored === events);
    clock.now += 1000;
  };
  /** Reads `age` and `available_at` of every row, in the order of a reader by `available_at`. */
  const read = async (after = -Infinity): Promise<{ age: number; at: number }[]> => {
    const rows = (await readRows(folder, 'event_id, age, available_at')).map((row) => ({
      age: Number(row['age']),
      at: Number(row['available_at']),
    }));
    return rows.filter(({ at }) => at > after).toSorted((a, b) => a.at - b.at);
  };
  const repair = async (crashPoint: CrashPoint = noCrashPoint): Promise<LakeRepair> => {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      return await repairLake({ lakeDir, duckdb, clock, crashPoint });
    } finally {
      duckdb.close();
    }
  };
  const start = (options = {}) => startTestCompact(folder, stream, { clock, ...options });
  return { folder, lakeDir, table, stream, clock, publish, read, repair, start };
}

test('A clock that was 400 days ahead is reported at once, increments continue, and a repair gives its rows times that have passed, in the same order', async () => {
  const { lakeDir, table, clock, publish, read, repair, start } = openClockLake();
  const first = await start();
  await publish();
  await first.stop();
  const goodMs = (await read())[0]?.at ?? 0;
  clock.now += 400 * dayMs;
  const ahead = await start({ sealAgeMs: 10 });
  await publish();
  await publish();
  await waitFor('sealed', async () => (await readSnapshot(table)).files.some((file) => !file.young));
  await ahead.stop();
  clock.now -= 400 * dayMs;

  const compactor = await start();
  await publish();
  const cursor = (await read()).at(-1)?.at ?? 0;
  await publish();
  // Although the clock is far behind, a reader by available_at misses nothing.
  expect((await read(cursor)).map(({ age }) => age)).toEqual([5]);
  expect(compactor.facts()['problems']).toEqual([
    {
      code: 'clock_behind_lake',
      message: expect.stringMatching(
        /^the newest available_at of the lake, 2027-02-05T.*, is 400 days ahead of this machine's clock, seen since 2026-01-01T/,
      ) as string,
      action: expect.stringContaining("'tributary lake repair'") as string,
    },
  ]);

  clock.now += 60_000;
  const before = await read();
  const repaired = await repair();
  const after = await read();
  expect(after.map(({ age }) => age)).toEqual(before.map(({ age }) => age));
  expect(after.filter(({ at }) => at <= goodMs)).toEqual(before.filter(({ at }) => at <= goodMs));
  for (const { at } of after.slice(1)) expect(at).toBeGreaterThan(goodMs);
  expect(Math.max(...after.map(({ at }) => at))).toBeLessThanOrEqual(clock.now);
  expect(new Set(after.map(({ at }) => at)).size).toBe(new Set(before.map(({ at }) => at)).size);
  const [from, to] = [before, after].map((rows) =>
    [rows[1]?.at, rows.at(-1)?.at].map((ms) => new Date(ms ?? 0).toISOString()),
  );
  expect(repaired.clock).toEqual([
    {
      rows: 4,
      files: expect.any(Number) as number,
      unchangedUpTo: new Date(goodMs).toISOString(),
      from,
      to,
      cursors: expect.stringContaining(`to ${to?.[1]}.`) as string,
    },
  ]);

  await waitFor('the compactor has read the repair', () => compactor.facts().problems.length === 0);
  clock.now += 1000;
  await publish();
  const newest = (await read()).at(-1);
  expect(newest).toEqual({ age: 6, at: clock.now - 1000 });
  await compactor.stop();
  expect((await checkLake(lakeDir)).problems).toEqual([]);
  expect((await readSnapshot(table)).lake?.totals.stored).toBe(6);
  expect(await repair()).toMatchObject({ repaired: false });
});

test('Small steps of the clock, as time servers make them, are no problem and change no row', async () => {
  const { clock, publish, read, repair, start } = openClockLake();
  const compactor = await start();
  await publish();
  clock.now -= clockToleranceMs;
  await publish();
  const rows = await read();
  expect(rows[1]?.at).toBe((rows[0]?.at ?? 0) + 1);
  expect(compactor.facts()['problems']).toEqual([]);
  expect(await repair()).toMatchObject({ repaired: false, clock: [] });
  expect(await read()).toEqual(rows);
  await compactor.stop();
});

test('Flushes during a repair of the times keep the order, and end with times of the clock', async () => {
  const { clock, stream, publish, read, repair, start, table } = openClockLake();
  const compactor = await start();
  clock.now += 30 * dayMs;
  await publish();
  clock.now -= 30 * dayMs;
  await publish();
  let late = false;
  await repair(async (step) => {
    if (step !== 'change-written' || late) return;
    late = true;
    stream.publish([eventLine({ age: 3 })]);
    await waitFor('stored', async () => (await readSnapshot(table)).lake?.totals.stored === 3);
  });
  const rows = await read();
  expect(rows.map(({ age }) => age)).toEqual([1, 2, 3]);
  // A pass without free milliseconds before now takes the next ones.
  expect((rows.at(-1)?.at ?? Infinity) - clock.now).toBeLessThan(10);
  await compactor.stop();
});

test('A repair of the times that is killed is finished by the next one, with every row once', async () => {
  const { clock, publish, read, repair, start, lakeDir } = openClockLake();
  let count = 0;
  // The rewrite is that of a seal, whose every step the chaos tests take.
  for (const step of ['change-written', 'file-linked', 'change-committed']) {
    const compactor = await start();
    clock.now += 30 * dayMs;
    await publish();
    clock.now -= 30 * dayMs;
    await publish();
    await compactor.stop();
    count += 2;
    clock.now += 1000;
    await expect(
      repair((at) => (at === step ? Promise.reject(new Error('killed')) : Promise.resolve())),
    ).rejects.toThrow('killed');
    await repair();
    const rows = await read();
    expect(
      rows.map(({ age }) => age),
      step,
    ).toEqual(Array.from({ length: count }, (_, index) => index + 1));
    expect(Math.max(...rows.map(({ at }) => at)), step).toBeLessThanOrEqual(clock.now);
  }
  expect((await checkLake(lakeDir)).problems).toEqual([]);
});
