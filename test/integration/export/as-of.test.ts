import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import type { WorkerOutcome, WorkerPlan } from '../../../src/export/jobs/worker-messages.ts';
import { toReportVersion, resolveReadVersion } from '../../../src/export/worker/read-version.ts';
import { runExport } from '../../../src/export/worker/run-export.ts';
import { checkpointHashName, checkpointName, commitName, listLog, logFolder } from '../../../src/lake/log/log-files.ts';
import { listDeferredReplacements } from '../../../src/lake/files/deferred-replacement.ts';
import { readSnapshotAt } from '../../../src/lake/log/change-feed.ts';
import { writeCheckpoint } from '../../../src/lake/log/checkpoint.ts';
import { loadTableState, readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { repairLake } from '../../../src/lake/repair/repair-lake.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import { isAppError } from '../../../src/runtime/errors.ts';
import { noCrashPoint, type CrashPoint } from '../../../src/runtime/crash-point.ts';
import { createRandom } from '../../../src/demo/random.ts';
import { chaosFigure, chaosSeed } from '../../helpers/chaos.ts';
import { recordFinding } from '../../helpers/chaos-report.ts';
import { readFeed } from '../../helpers/feed.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole, oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const hourMs = 3_600_000;
const repeats = chaosFigure('TRIBUTARY_TEST_AS_OF_REPEATS', { short: isWhole ? 30 : 12, long: 1000 });
const seed = chaosSeed();
const retentionMs = 2 * hourMs;
const limits = { memoryMb: 512, threads: 1, maxRows: 1e6, maxBytes: 1e9, singleFileMaxBytes: 1e8, partMaxBytes: 1e8 };
const appsOf = (idApp: number): WorkerPlan['apps'] => [
  { idApp, title: 'one', sdkKey: 'k', platform: 'web', idAccount: idApp, idProject: undefined },
];

/** A lake with a clock that the test sets, and exports of it by the code of the export worker. */
async function openLake() {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const clock = { now: Date.UTC(2026, 0, 1), nowMs: () => clock.now };
  const start = () => startTestCompact(folder, stream, { clock, retentionMs, sealAgeMs: hourMs, checkpointEvery: 4 });
  let compactor = await start();
  onTestFinished(() => compactor.stop());
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  let stored = 0;
  let exports = 0;
  const planOf = (to: string, asOf: number, idApp = 1): WorkerPlan => ({
    request: {
      event: 'customEvents',
      selectors: ['customUserId'],
      timezone: 'UTC',
      eventTime: {},
      availableAt: {},
      eventNameInvert: false,
      filters: {},
      asOf: String(asOf),
    },
    apps: appsOf(idApp),
    tableDir: table,
    folder: to,
    stem: 'all',
    limits,
    retentionMs,
    begunMs: clock.now,
  });
  return {
    lakeDir,
    table,
    clock,
    planOf: (asOf: number) => planOf(folder, asOf),
    newest: async () => (await readSnapshot(table)).version,
    stop: () => compactor.stop(),
    async restart() {
      await compactor.stop();
      compactor = await start();
    },
    async publish(user = 'a', idApp = 1) {
      const seconds = Math.floor(clock.now / 1000);
      const members = {
        kind: 'custom_event',
        id_app: idApp,
        custom_event_name: 'e',
        custom_user_id: user,
        event_time: seconds,
      };
      stream.publish([eventLine({ ...members, received_at: clock.now })]);
      stored += 1;
      await waitFor('the event is stored', async () => {
        const totals = (await readSnapshot(table)).lake?.totals;
        return (totals?.stored ?? 0) + (totals?.erased ?? 0) === stored;
      });
      clock.now += 1000;
    },
    async seal() {
      clock.now += 30 * hourMs;
      await waitFor('all rows are sealed', async () => (await readSnapshot(table)).young.length === 0);
    },
    repair: (crashPoint: CrashPoint = noCrashPoint) => repairLake({ lakeDir, duckdb, clock, crashPoint }),
    async erase(user: string, crashPoint: CrashPoint) {
      const options = { clock, crashPoint };
      const { publisher } = stream;
      const { signal } = new AbortController();
      const dependencies = { table: await openTable(table, options), lakeDir, duckdb, ...options, publisher, signal };
      await eraseEvents(dependencies, { users: [user] }, { retentionMs });
    },
    async exportAsOf(asOf: number, idApp = 1): Promise<WorkerOutcome> {
      exports += 1;
      const to = path.join(folder, `export ${exports}`);
      mkdirSync(to);
      return await runExport(planOf(to, asOf, idApp), () => undefined);
    },
  };
}

/** Removes the log before its newest checkpoint, as a trim does. */
async function trim(table: string): Promise<void> {
  const { commits, checkpoints } = await listLog(table);
  const first = checkpoints.at(-1) ?? 0;
  const names = [
    ...commits.map((version) => [version, commitName(version)] as const),
    ...checkpoints.flatMap((version) => [
      [version, checkpointName(version)] as const,
      [version, checkpointHashName(version)] as const,
    ]),
  ];
  for (const [version, name] of names) if (version < first) rmSync(path.join(logFolder(table), name), { force: true });
}

test('A version with a sealed file that a rewrite replaced is no longer available, and nothing is damaged', async () => {
  const lake = await openLake();
  const right = lake.clock.now;
  lake.clock.now += 30 * 24 * hourMs;
  await lake.publish();
  await lake.seal();
  const version = await lake.newest();
  lake.clock.now = right + 60_000;
  await lake.repair();
  expect(await lake.exportAsOf(version)).toMatchObject({ kind: 'done', files: [{ rows: 1 }] });
  lake.clock.now += 100 * hourMs;
  await lake.publish();
  await lake.restart();
  await waitFor(
    'the rewrite has its place',
    async () => (await listDeferredReplacements(lake.table, (await readSnapshot(lake.table)).files)).length === 0,
  );
  expect(await lake.exportAsOf(version)).toMatchObject({
    kind: 'failed',
    reason: 'user',
    error: expect.stringContaining('is no longer available'),
  });
});

test('A damaged file that the newest version names too is damage for every requested version', async () => {
  const lake = await openLake();
  await lake.publish();
  const version = await lake.newest();
  await lake.publish();
  const [file] = (await readSnapshotAt(lake.table, { version, tag: undefined })).files;
  writeFileSync(file?.absolutePath ?? '', 'another file');
  expect(await lake.exportAsOf(version)).toMatchObject({ kind: 'failed', reason: 'damage' });
});

test('A version that is trimmed during its read is refused or read, and is not read as an empty table', async () => {
  const lake = await openLake();
  for (let n = 0; n < 4; n += 1) await lake.publish();
  await lake.stop();
  const untrimmed = path.join(testFolder(), 'events');
  cpSync(lake.table, untrimmed, { recursive: true });
  const version = (await lake.newest()) - 1;
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  await writeCheckpoint(duckdb, lake.table, await loadTableState(lake.table), noCrashPoint);
  await trim(lake.table);
  const ends = new Set<string>();
  // Trims a little later each time, until the read ends before the trim.
  for (let turns = 0; !ends.has(`version ${version}`); turns = Math.ceil(turns * 1.2) + 1) {
    const copy = path.join(testFolder(), 'events');
    cpSync(untrimmed, copy, { recursive: true });
    const reading = readSnapshotAt(copy, { version, tag: undefined }).then(
      (snapshot) => `version ${snapshot.version}`,
      (error: unknown) => (isAppError(error) ? error.code : String(error)),
    );
    for (let turn = 0; turn < turns; turn += 1) await setImmediate();
    rmSync(logFolder(copy), { recursive: true });
    cpSync(logFolder(lake.table), logFolder(copy), { recursive: true });
    ends.add(await reading);
  }
  expect([...ends].toSorted()).toEqual(['not_found', `version ${version}`]);
});

test('An export since version 0 has all rows if the log was trimmed before the ledger began', async () => {
  const lake = await openLake();
  for (let n = 0; n < 8; n += 1) await lake.publish();
  await waitFor('a checkpoint', async () => ((await listLog(lake.table)).checkpoints.at(-1) ?? 0) > 1);
  await lake.stop();
  await trim(lake.table);
  expect((await readFeed(lake.table, '0')).ids).toHaveLength(8);
  await expect(readFeed(lake.table, '1')).rejects.toThrow('version 1 is no longer known');
});

test('Older versions are refused during and after an erasure, for accounts with the erased apps only', async () => {
  const lake = await openLake();
  await lake.publish('erased');
  await lake.publish('other', 2);
  await lake.publish('kept');
  const version = await lake.newest();
  let seen: WorkerOutcome[] = [];
  const killed = lake.erase('erased', async () => {
    const { version: newest, lake: state } = await readSnapshot(lake.table);
    if (state?.erasing === undefined || seen.length > 0) return;
    seen = [await lake.exportAsOf(version - 1), await lake.exportAsOf(newest), await lake.exportAsOf(version - 1, 2)];
    throw new Error('killed');
  });
  await expect(killed).rejects.toThrow('killed');
  expect(seen).toMatchObject([
    { kind: 'failed', reason: 'user', error: expect.stringContaining('that are being erased') },
    { kind: 'done', files: [{ rows: 1 }] },
    { kind: 'done', files: [{ rows: 1 }] },
  ]);
  await lake.erase('erased', noCrashPoint);
  await lake.publish('later');
  const erased = { kind: 'failed', reason: 'user', error: expect.stringContaining('has rows that were erased') };
  expect(await lake.exportAsOf(version)).toMatchObject(erased);
  expect(await lake.exportAsOf(version - 1, 2)).toEqual(seen[2]);
});

test('A version of another engine is refused, before and after the repair', async () => {
  const lake = await openLake();
  await lake.publish();
  await lake.publish();
  await lake.stop();
  const { version, files } = await readSnapshot(lake.table);
  const foreign = [
    { commitInfo: { timestamp: lake.clock.now, operation: 'DELETE', engineInfo: 'spark' } },
    { remove: { path: files[0]?.path, deletionTimestamp: lake.clock.now, dataChange: true } },
  ];
  const text = foreign.map((action) => `${JSON.stringify(action)}\n`).join('');
  writeFileSync(path.join(logFolder(lake.table), commitName(version + 1)), text);
  const refused = { kind: 'failed', reason: 'user', error: expect.stringContaining('another engine') };
  expect(await lake.exportAsOf(version + 1)).toMatchObject(refused);
  expect(await lake.exportAsOf(version)).toMatchObject({ kind: 'done', files: [{ rows: 2 }] });
  await lake.repair();
  expect(await lake.exportAsOf(version + 1)).toMatchObject(refused);
  // The version of the first half of the repair is refused too.
  expect(await lake.newest()).toBeGreaterThan(version + 1);
  for (let half = version + 2; half < (await lake.newest()); half += 1)
    expect(await lake.exportAsOf(half)).toMatchObject(refused);
  expect(await lake.exportAsOf(await lake.newest())).toMatchObject({ kind: 'done', files: [{ rows: 2 }] });
});

test('A promised version is kept, also during a slow rewrite', async () => {
  const lake = await openLake();
  const right = lake.clock.now;
  lake.clock.now += 30 * 24 * hourMs;
  await lake.publish();
  lake.clock.now = right + 60_000;
  let keptUntilSeconds = 0;
  await lake.repair(async (step) => {
    if (step !== 'change-written' || keptUntilSeconds > 0) return;
    lake.clock.now += 1.5 * hourMs;
    const plan = lake.planOf(await lake.newest());
    ({ keptUntilSeconds } = await toReportVersion(plan, await resolveReadVersion(plan)));
  });
  const { tombstones } = (await openTable(lake.table, { clock: lake.clock, crashPoint: noCrashPoint })).state();
  const goAtSeconds = [...tombstones.values()].map((remove) => ((remove.deletionTimestamp ?? 0) + retentionMs) / 1000);
  expect(goAtSeconds.length).toBeGreaterThan(0);
  expect(Math.min(...goAtSeconds)).toBeGreaterThanOrEqual(keptUntilSeconds);
});

test('Version 0 of a table that does not exist is empty, and stays empty after the table is created', async () => {
  const nowhere = path.join(testFolder(), 'payments');
  const first = { version: 0, tag: undefined };
  await expect(readSnapshotAt(nowhere, first)).resolves.toMatchObject({ version: -1, files: [] });
  await expect(readSnapshotAt(nowhere, { version: 1, tag: undefined })).rejects.toMatchObject({ code: 'not_found' });
  const lake = await openLake();
  await lake.publish();
  await expect(readSnapshotAt(lake.table, first)).resolves.toMatchObject({ version: 0, files: [] });
});

test('A cursor is refused if its version has another tag, or none', async () => {
  const lake = await openLake();
  await lake.publish();
  const { next, version } = await readFeed(lake.table, undefined);
  await lake.publish();
  const tag = next.slice(next.indexOf('-') + 1);
  const other = `${tag.startsWith('0') ? '1' : '0'}${tag.slice(1)}`;
  await expect(readSnapshotAt(lake.table, { version, tag })).resolves.toMatchObject({ version });
  const anotherOne = expect.stringContaining('has changed: the lake was restored');
  await expect(readSnapshotAt(lake.table, { version, tag: other })).rejects.toMatchObject({ message: anotherOne });
  await expect(readFeed(lake.table, `${version}-${other}`)).rejects.toMatchObject({ message: anotherOne });
  // A version before the first row has no tag.
  await expect(readFeed(lake.table, `1-${tag}`)).rejects.toMatchObject({ message: anotherOne });
});

test('A cursor of another dataset is refused with the name of its table', async () => {
  const [lake, other] = [await openLake(), await openLake()];
  await lake.publish();
  await other.publish();
  const { next, version } = await readFeed(other.table, undefined);
  cpSync(other.table, path.join(path.dirname(lake.table), 'payments'), { recursive: true });
  const message = expect.stringContaining(`${next} is a cursor of the table payments, not of events`);
  await expect(readFeed(lake.table, next)).rejects.toMatchObject({ message });
  const tag = next.slice(next.indexOf('-') + 1);
  await expect(readSnapshotAt(lake.table, { version, tag })).rejects.toMatchObject({ message });
});

test('A cursor before the first row is valid, and is refused if its version has rows, as after a restore', async () => {
  const lake = await openLake();
  const { next } = await readFeed(lake.table, undefined);
  expect(next).toMatch(/^\d+-0{8}$/);
  await lake.publish();
  expect((await readFeed(lake.table, next)).ids).toHaveLength(1);
  const anotherOne = expect.stringContaining('has changed: the lake was restored');
  const other = `${await lake.newest()}-00000000`;
  await expect(readFeed(lake.table, other)).rejects.toMatchObject({ message: anotherOne });
});

const refusals =
  /^asOf: version \d+ (is not kept any more|is no longer available|has rows that were erased|may have rows that are being erased)/;

test(
  'Repeated exports as of a version, through seals and erasures, have the same bytes or a documented refusal',
  async () => {
    const random = createRandom(seed);
    const lake = await openLake();
    const hashes = new Map<number, string>();
    const outcomes = { same: 0, refused: 0 };
    const wrong: string[] = [];

    async function repeat(version: number): Promise<void> {
      const outcome = await lake.exportAsOf(version);
      if (outcome.kind === 'failed') {
        outcomes.refused += 1;
        if (!refusals.test(outcome.error)) wrong.push(outcome.error);
        return;
      }
      const hash = outcome.files.map(({ sha256 }) => sha256).join(' ');
      const known = hashes.get(version) ?? hash;
      hashes.set(version, known);
      outcomes.same += 1;
      if (known !== hash) wrong.push(`version ${version} has other bytes`);
    }

    for (let done = 0; done < repeats; done += 1) {
      if (random.chance(0.2)) await lake.publish(`user ${random.integer(1, 6)}`);
      else if (random.chance(0.06)) await lake.seal();
      else if (random.chance(0.02)) await lake.erase(`user ${random.integer(1, 6)}`, noCrashPoint);
      const version = await lake.newest();
      await repeat(random.chance(0.3) ? version : random.integer(Math.max(1, version - 12), version));
    }
    expect(wrong).toEqual([]);
    recordFinding({
      promise: 'P10',
      what: 'exports as of a version, again and again',
      wanted: 'the same bytes, or the documented refusal',
      figures: { repeats, versions: hashes.size, ...outcomes },
      reached: true,
      seed,
      again: `TRIBUTARY_TEST_AS_OF_REPEATS=${repeats} TRIBUTARY_TEST_SEED=${seed}`,
    });
  },
  60_000 + repeats * 2000,
);
