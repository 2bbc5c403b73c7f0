import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as pass } from 'node:timers/promises';
import { afterAll, expect, it, onTestFinished } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { checkLake } from '../../src/lake/check.ts';
import { totalsOf, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { findProcessesOf } from '../helpers/everything.ts';
import type { Credentials } from '../helpers/export-area.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { hashFiles } from '../helpers/folder-bytes.ts';
import { temporaryFolder, testFolder } from '../helpers/folder.ts';
import { assertExactlyOnce, countLake, createLedger, reconcileLake, type Ledger } from '../helpers/ledger.ts';
import { startLoad, type Load } from '../helpers/load.ts';
import { signalProcess, type ProcessRole } from '../helpers/processes.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { addTestApp, startWithUser } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';

/** Backups under load and kills, and data folders that are moved or copied: every event is stored exactly once. */

const backups = chaosFigure('TRIBUTARY_TEST_BACKUPS', { short: 0, long: 50 });
const moves = chaosFigure('TRIBUTARY_TEST_MOVES', { short: 0, long: 50 });
const seed = chaosSeed();
const again = `make chaos PART=backup SEED=${seed}`;
const entry = path.resolve(import.meta.dirname, '../../dist/main.js');
/** Files change while a backup reads: seals run, and the files that they replace are removed soon. */
const settings = {
  TRIBUTARY_INGEST_WORKERS: '1',
  TRIBUTARY_FLUSH_AGE_MS: '300',
  TRIBUTARY_SEAL_AGE_MS: '2000',
  TRIBUTARY_RETENTION_MS: '4000',
  TRIBUTARY_QUOTA_USER: 'off',
  TRIBUTARY_QUOTA_IP: 'off',
  TRIBUTARY_LOG_LEVEL: 'warn',
};
const root = temporaryFolder();
const figures = {
  backups: 0,
  kills: 0,
  backupsKilled: 0,
  moves: 0,
  copies: 0,
  acknowledgedEvents: 0,
  lostEvents: 0,
  doubledEvents: 0,
  inventedEvents: 0,
  originalsTouched: 0,
};

afterAll(() => {
  if (backups === 0) return;
  recordFinding({
    promise: 'P15',
    what: 'backups under load and kills, restored elsewhere; moved and copied folders',
    wanted: `${backups} backups, ${moves} moves and copies: every event acknowledged before is there once, books balance, 0 originals touched`,
    figures,
    reached:
      figures.backups === backups &&
      figures.moves === moves &&
      figures.copies === moves &&
      figures.lostEvents + figures.doubledEvents + figures.inventedEvents + figures.originalsTouched === 0,
    seed,
    again,
  });
});

let ledgers = 0;

interface Client {
  readonly ledger: Ledger;
  acknowledges(events?: number): Promise<void>;
  stop(): Promise<void>;
}

function startClient(service: () => TestService, token: string): Client {
  const ledger = createLedger(`backup${(ledgers += 1)}`);
  const load: Load = startLoad(ledger, {
    s2s: () => service().s2s,
    idApp: 1,
    token,
    random: createRandom(seed + ledgers),
    clients: 2,
    pauseMs: isLongRun ? 120 : 30,
  });
  onTestFinished(() => load.stop());
  return {
    ledger,
    async acknowledges(events = 50) {
      const enough = ledger.totals().acknowledged + events;
      await waitFor('events are acknowledged', () => ledger.totals().acknowledged >= enough, 120_000);
    },
    stop: () => load.stop(),
  };
}

/** Runs the backup and, on request, kills it after a while; returns the folder of a finished backup. */
async function runBackup(dataDir: string, dir: string, killAfterMs?: number): Promise<string> {
  const machine = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('TRIBUTARY_') || name === 'TRIBUTARY_CACHE_DIR',
  );
  const child = spawn(process.execPath, [entry, 'backup', dir, '--data', dataDir], {
    env: { ...Object.fromEntries(machine), ...settings, TRIBUTARY_LOG_LEVEL: 'error' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let text = '';
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => void (text += chunk));
  const exited = once(child, 'close');
  if (killAfterMs !== undefined) {
    await Promise.race([exited, pass(killAfterMs)]);
    if (signalProcess(child.pid ?? 0, 'SIGKILL')) figures.backupsKilled += 1;
  }
  const [code, signal] = (await exited) as [number | null, NodeJS.Signals | null];
  return code === 0 ? 'made' : `${signal ?? code}: ${text.trim()}`;
}

/** Starts a service again and retries: a backup may run its broker for a moment. */
async function bringBack(service: TestService): Promise<void> {
  let started = false;
  await waitFor(
    'the service is back',
    async () =>
      (started ||= await service.startAgain().then(
        () => true,
        () => false,
      )),
    120_000,
  );
}

/** Kills a process of the service at a random moment of a backup. */
async function killMeanwhile(service: TestService, random: Random, role: ProcessRole): Promise<void> {
  await pass(random.integer(0, 1500));
  if ((await service.kill9(role, random)) !== undefined) figures.kills += 1;
  if (role === 'supervisor') await bringBack(service);
}

/** Compares a restored folder with the events acknowledged before its backup began. */
async function compare(folder: string, ledger: Ledger, before: readonly string[]): Promise<void> {
  const rows = await countLake(folder);
  const stored = new Set(rows.map(({ id }) => id));
  const lost = before.filter((id) => !stored.has(id));
  const doubled = rows.filter((row) => row.rows !== 1 || row.eventIds !== 1 || !row.whole);
  const invented = rows.filter(({ id }) => (ledger.outcomeOf(id) ?? 'refused') === 'refused');
  figures.acknowledgedEvents += before.length;
  figures.lostEvents += lost.length;
  figures.doubledEvents += doubled.length;
  figures.inventedEvents += invented.length;
  expect({ lost, doubled, invented }).toEqual({ lost: [], doubled: [], invented: [] });
  const { streamed, stored: counted, failed, repeats, erased } = await totalsOf(folder);
  expect([streamed, rows.length]).toEqual([counted + failed + repeats + erased, counted]);
  expect((await checkLake(path.join(folder, 'lake'))).problems).toEqual([]);
}

/** Backs up a stopped folder with the backlog in its broker's store; no process may remain. */
async function expectStoppedBackup(dataDir: string, folder: string, ledger: Ledger): Promise<void> {
  const [dir, restored] = [path.join(folder, 'backup'), path.join(folder, 'restored')];
  expect(await runBackup(dataDir, dir)).toBe('made');
  expect(findProcessesOf(dataDir)).toEqual([]);
  await runCommand(['restore', dir, '--data', restored], settings);
  await compare(restored, ledger, ledger.ids('acknowledged'));
}

async function exportAll(service: TestService, user: Credentials): Promise<{ id: string; rows: string[] }> {
  const client = createExportClient(service, user);
  let id: string | undefined;
  await waitFor(
    'the export is taken',
    async () => (id = await client.create(exportQuery('eventId,eventName')).catch(() => undefined)) !== undefined,
    60_000,
  );
  const rows = await client.download(await client.waitForEnd(id ?? ''));
  return { id: id ?? '', rows };
}

it(
  `${backups} backups under load and kills each have every event acknowledged before them once, and a separate service starts from each`,
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const dataDir = path.join(root, 'data');
    const { service, token, user } = await startWithUser({ dataDir, settings });
    const client = startClient(() => service, token);
    await client.acknowledges();
    await waitFor('some events are in the lake', async () => (await totalsOf(dataDir)).stored > 0);
    const exported = await exportAll(service, user);
    const roles: readonly ProcessRole[] = ['compact', 'supervisor', 'nats-server', 'ingest', 'export'];
    const dir = path.join(root, 'backup');

    for (let round = 0; round < backups; round += 1) {
      await client.acknowledges();
      // a killed backup leaves the previous one unchanged, and runs again
      if (round % 2 === 1 || backups === 1) await runBackup(dataDir, dir, random.integer(0, 1500));
      const killing = killMeanwhile(service, random, random.pick(roles));
      let before: readonly string[] = [];
      let outcome = '';
      await waitFor(
        'a backup is made',
        async () => {
          before = client.ledger.ids('acknowledged');
          outcome = await runBackup(dataDir, dir);
          if (outcome !== 'made') process.stderr.write(`backup: ${outcome}\n`);
          return outcome === 'made';
        },
        240_000,
      );
      await killing;
      figures.backups += 1;
      const restored = path.join(root, 'restored');
      await runCommand(['restore', dir, '--data', restored], settings);
      await compare(restored, client.ledger, before);
      if (round + 1 < backups) rmSync(restored, { recursive: true });
    }

    // next to the original, with its apps, users, reports and links
    const other = await startTestService({ dataDir: path.join(root, 'restored'), settings });
    onTestFinished(() => other.destroy());
    const otherClient = startClient(() => other, token);
    await Promise.all([client.acknowledges(), otherClient.acknowledges()]);
    const exports = createExportClient(other, user);
    expect(await exports.download(await exports.waitForEnd(exported.id))).toEqual(exported.rows);
    await Promise.all([client.stop(), otherClient.stop()]);
    for (const [one, own] of [
      [service, [client]],
      [other, [client, otherClient]],
    ] as const) {
      await waitUntilWorkedOff(one);
      await one.stop();
      const results = await reconcileLake(
        one.dataDir,
        own.map(({ ledger }) => ledger),
      );
      // events that the original accepted after the backup are only in its own lake
      for (const [index, result] of results.entries())
        assertExactlyOnce(one === other && index === 0 ? { ...result, lost: [] } : result);
      expect((await checkLake(path.join(one.dataDir, 'lake'))).problems).toEqual([]);
    }
  },
  240_000 + backups * 60_000,
);

it(
  `A folder that is moved or copied ${moves} times is a separate service and never touches the original`,
  async ({ skip }) => {
    inLongForm(skip);
    const folder = testFolder();
    let dataDir = path.join(folder, 'data');
    const token = await addTestApp(dataDir);
    const own: Ledger[] = [];
    for (let round = 0; round <= moves; round += 1) {
      const service = await startTestService({ dataDir, settings });
      onTestFinished(() => service.destroy());
      const client = startClient(() => service, token);
      own.push(client.ledger);
      await client.acknowledges();
      await client.stop();
      if (round === moves) {
        await settle(service, own);
        break;
      }
      // half of the copies are made while much work is in progress
      if (round % 2 === 0) await service.killAll();
      else await service.stop();
      if (round === 0) await expectStoppedBackup(dataDir, folder, client.ledger);

      const copy = path.join(folder, 'copy');
      cpSync(dataDir, copy, { recursive: true });
      const untouched = hashFiles(dataDir);
      const other = await startTestService({ dataDir: copy, settings });
      onTestFinished(() => other.destroy());
      const stranger = startClient(() => other, token);
      await stranger.acknowledges();
      await stranger.stop();
      await settle(other, [...own, stranger.ledger]);
      figures.copies += 1;
      const touched = JSON.stringify(hashFiles(dataDir)) !== JSON.stringify(untouched);
      if (touched) figures.originalsTouched += 1;
      expect(hashFiles(dataDir)).toEqual(untouched);
      rmSync(copy, { recursive: true });

      const moved = path.join(folder, `moved-${round}`);
      renameSync(dataDir, moved);
      dataDir = moved;
      figures.moves += 1;
    }
  },
  240_000 + moves * 60_000,
);

/** Stops a service once everything is in its lake, and compares the lake with the ledgers of its clients. */
async function settle(service: TestService, own: readonly Ledger[]): Promise<void> {
  await waitUntilWorkedOff(service);
  const findProblems = async () => (await checkLake(path.join(service.dataDir, 'lake'))).problems;
  await waitFor('the files that a kill has left are removed', async () => (await findProblems()).length === 0);
  await service.stop();
  for (const result of await reconcileLake(service.dataDir, own)) {
    figures.acknowledgedEvents += result.acknowledged;
    figures.lostEvents += result.lost.length;
    figures.doubledEvents += result.doubled.length;
    figures.inventedEvents += result.invented.length;
    assertExactlyOnce(result);
  }
  expect(await findProblems()).toEqual([]);
}
