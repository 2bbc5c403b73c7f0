import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { checkLake } from '../../src/lake/check.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { listDeferredReplacements, replacementSteps } from '../../src/lake/files/deferred-replacement.ts';
import type { StreamPublisher } from '../../src/stream/stream.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import {
  expectNothingLeftOver,
  prepareCompactProcesses,
  publishEvents,
  waitForAll,
} from '../helpers/compact-process.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { findFilesWith } from '../helpers/find-bytes.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { eventLine, readTotals } from '../helpers/lake.ts';
import { startLakeReaders } from '../helpers/lake-readers.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { openServicePublisher } from '../helpers/service-publisher.ts';
import { waitFor } from '../helpers/wait.ts';

const people = chaosFigure('TRIBUTARY_TEST_ERASURES', { short: 1, long: 25 });
const seed = chaosSeed();
const again = `make chaos PART=erasure SEED=${seed}`;
const folder = temporaryFolder();
const processes = prepareCompactProcesses();
const settings = {
  TRIBUTARY_FLUSH_AGE_MS: '60',
  TRIBUTARY_SEAL_AGE_MS: '250',
  TRIBUTARY_RETENTION_MS: '2000',
  TRIBUTARY_LINK_TTL_SECONDS: '2',
  TRIBUTARY_INGEST_WORKERS: '1',
  TRIBUTARY_QUOTA_USER: 'off',
};
const readersKept = "NOT starts_with(custom_user_id, 'victim')";

/** Runs an erasure and kills it after a while unless it has ended; returns its exit code or signal. */
async function eraseAndKill(dataDir: string, id: string, afterMs: number): Promise<string> {
  const child = spawn(
    process.execPath,
    [path.resolve(import.meta.dirname, '../../dist/main.js'), 'erase', '--user', id, '--data', dataDir],
    { env: { ...process.env, ...settings }, stdio: 'ignore' },
  );
  const exited = once(child, 'exit');
  const timer = setTimeout(() => child.kill('SIGKILL'), afterMs);
  const [code, signal] = (await exited) as [number | null, NodeJS.Signals | null];
  clearTimeout(timer);
  return String(signal ?? code);
}

/**
 * Publishes a person's events in every form that is stored: rows of two kinds, a failed event, a line that is not JSON.
 */
async function publishPerson(publisher: StreamPublisher, id: string): Promise<number> {
  const rows = [
    eventLine({ custom_user_id: id }),
    eventLine({ custom_user_id: id, kind: 'registration' }),
    eventLine({ custom_user_id: `kept with ${seed}` }),
  ];
  const failed = [JSON.stringify(eventLine({ custom_user_id: id, age: 'x' })), `{"custom_user_id":"${id}",`];
  await publisher.publish(Buffer.from([...rows.map((row) => JSON.stringify(row)), ...failed, ''].join('\n')), 5000);
  return rows.length + failed.length;
}

async function waitUntilSealed(dataDir: string, streamed: number): Promise<void> {
  await waitFor(
    'all is sealed',
    async () => {
      const { files, lake } = await readSnapshot(lakePaths(path.join(dataDir, 'lake')).table);
      return lake?.totals.streamed === streamed && files.every((file) => !file.young);
    },
    60_000,
  );
}

async function exportAll(service: TestService): Promise<void> {
  const { idUser, secret } = await service.command('user', 'add', 'ann', '--account', '1');
  const client = createExportClient(service, { idUser: String(idUser), secret: String(secret) });
  const query = exportQuery('customUserId', { event: 'userAuthorisations' });
  let id: string | undefined;
  // every process knows the user within a second
  await waitFor(
    'the export is taken',
    async () => (id = await client.create(query).catch(() => undefined)) !== undefined,
  );
  expect((await client.waitForEnd(id ?? '')).status).toBe('Success!');
}

test(
  `${people} people are erased permanently under kills: no byte of them is left in any file, and no reader sees a row twice or a missing file`,
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const dataDir = path.join(folder, 'data');
    const service = await startTestService({ dataDir, settings });
    onTestFinished(() => service.destroy());
    await service.command('app', 'add', '1', '--platform', 'web');
    const paths = lakePaths(path.join(dataDir, 'lake'));
    const publisher = await openServicePublisher(dataDir, 'erasure');
    onTestFinished(() => publisher.close());
    const readers = startLakeReaders(dataDir, readersKept);
    const ids: string[] = [];
    let streamed = 0;
    let kills = 0;
    for (let n = 0; n < people; n += 1) {
      const id = `victim-${randomUUID()}`;
      ids.push(id);
      streamed += await publishPerson(publisher, id);
      await waitUntilSealed(dataDir, streamed);
      // A quarantined file, as after damage to the log; and a report, which ends with its link.
      if (n === 0) {
        const [sealed] = (await readSnapshot(paths.table)).files;
        mkdirSync(paths.quarantine, { recursive: true });
        copyFileSync(sealed?.absolutePath ?? '', path.join(paths.quarantine, 'aside.parquet'));
        await exportAll(service);
      }
      if (random.chance(0.7) && (await eraseAndKill(dataDir, id, random.integer(100, 1500))) === 'SIGKILL') kills += 1;
      if (random.chance(0.3)) kills += (await service.kill9('compact', random)) === undefined ? 0 : 1;
      // a list of people is accepted like one person
      const list = path.join(folder, 'ids');
      writeFileSync(list, `${id}\nvictim-unknown\n`);
      const words = (n + seed) % 2 === 0 ? ['--user', id] : ['--file', list];
      expect(await service.command('erase', ...words)).toMatchObject({
        rows: expect.any(Number),
        reportsEndBy: expect.any(String),
      });
    }
    // within the stated time the erased bytes are removed while the service runs, and stay so
    await waitFor(
      'the status knows of no erasure any more',
      async () => ((await service.status())['lake'] as Record<string, unknown>)['erasure'] === undefined,
      120_000,
    );
    await waitFor(
      'no file has a person who was erased',
      async () => (await findFilesWith(dataDir, ...ids)).length === 0,
      120_000,
    );
    streamed += await publishPerson(publisher, 'another person');
    await waitUntilSealed(dataDir, streamed);
    await readers.stop();
    await service.stop();
    await service.startAgain();
    expect(await findFilesWith(dataDir, ...ids)).toEqual([]);
    expect(await findFilesWith(dataDir, 'kept with')).not.toEqual([]);
    expect((await checkLake(path.join(dataDir, 'lake'))).problems.map((finding) => finding.path)).toEqual([
      'quarantine/aside.parquet',
    ]);
    const totals = await readTotals(path.join(dataDir, 'lake'));
    expect(totals).toMatchObject({ streamed, stored: people + 3, failed: 2, erased: 4 * people });
    expect(readers.reads()).toBeGreaterThan(10);
    const figures = { people, kills, reads: readers.reads(), filesWithThem: 0, doubledRows: 0, missingFiles: 0 };
    recordFinding({
      promise: 'P16',
      what: 'people erased under kills, then every byte of the data folder searched',
      wanted: 'no byte of a person in any file, no row twice, no missing file',
      figures,
      reached: true,
      seed,
      again,
    });
  },
  240_000 + people * 20_000,
);

test('A compactor killed at any step of a deferred replacement repeats it, and a reader of the glob sees every row once', async () => {
  const place = await processes.makePlace('places');
  const kept = new Set<string>();
  const readers = startLakeReaders(place.folder, readersKept);
  const options = { retentionMs: 1500, sealAgeMs: 100 };
  // a rename that no entry of the log records
  const steps = replacementSteps.filter((step) => isLongRun || step === 'place-taken');
  for (const step of steps) {
    const id = `victim of ${step}`;
    const first = processes.start(place, { crashAt: step, options });
    // rows of old dates would wait longer
    const event_time = Math.floor(Date.now() / 1000);
    await publishEvents(place.publisher, kept, { event_time });
    await publishEvents(place.publisher, new Set(), { event_time, custom_user_id: id });
    const table = lakePaths(path.join(place.folder, 'lake')).table;
    await waitFor('all is sealed', async () => {
      const { files, lake } = await readSnapshot(table);
      return (lake?.totals.stored ?? 0) >= kept.size + 5 && files.every((file) => !file.young);
    });
    expect(await processes.start(place, { erase: id }).exited).toBe('0');
    expect(`${step} ${await first.exited}`).toBe(`${step} SIGKILL`);
    const second = processes.start(place, { options });
    await waitFor(
      'every sealed file is at its place',
      async () => (await listDeferredReplacements(table, (await readSnapshot(table)).files)).length === 0,
    );
    await waitFor(
      'the person is in no file',
      async () => (await findFilesWith(path.join(place.folder, 'lake'), id)).length === 0,
    );
    await second.ready;
    second.child.kill('SIGTERM');
    expect(await second.exited).toBe('0');
    await waitForAll(place.folder, kept);
  }
  await readers.stop();
  await expectNothingLeftOver(place, (crashAt) => processes.start(place, { crashAt }));
  const figures = {
    steps: steps.length,
    kills: steps.length,
    keptEvents: kept.size,
    reads: readers.reads(),
    doubledRows: 0,
    missingFiles: 0,
  };
  recordFinding({
    promise: 'P16',
    what: 'compactor killed at each step of the renewal of a place',
    wanted: 'no row twice, none gone, the person in no file',
    figures,
    reached: true,
    seed,
    again,
  });
}, 120_000);
