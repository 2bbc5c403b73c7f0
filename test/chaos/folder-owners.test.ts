import { cpSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { copyRunningFolder, testFolder } from '../helpers/folder.ts';
import { inTurn, oneTestIn } from '../helpers/in-turn.ts';
import { createLedger, reconcileLake, type Ledger } from '../helpers/ledger.ts';
import { startLoad, type Load } from '../helpers/load.ts';
import { isAlive, listTree, signalProcess } from '../helpers/processes.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { startWithApp } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(2));

/**
 * Two services on one folder, by any sequence of events: the second is rejected, or the first stops accepting events.
 */

const seed = chaosSeed();
const again = `make chaos PART=folder-owners SEED=${seed}`;
const rounds = chaosFigure('TRIBUTARY_TEST_OWNER_ROUNDS', { short: 1, long: 4 });
/** One process less to start. */
const settings = { TRIBUTARY_INGEST_WORKERS: '1' };
const figures = {
  ways: 0,
  refusedStarts: 0,
  secondsLetIn: 0,
  acknowledgedEvents: 0,
  lostEvents: 0,
  doubledEvents: 0,
  strangeEvents: 0,
};

afterAll(() => {
  recordFinding({
    promise: 'P14',
    what: 'a second owner of a data folder: locks and state removed, other paths, moved, copied and restored folders, stopped and killed supervisors',
    wanted:
      'the second is refused, naming the first, or the first takes no event: 0 lost, 0 doubled, 0 in the data of another',
    figures,
    reached:
      figures.ways > 0 &&
      figures.secondsLetIn + figures.lostEvents + figures.doubledEvents + figures.strangeEvents === 0,
    seed,
    again,
  });
});

interface Client {
  readonly ledger: Ledger;
  /** Responses other than 200. */
  readonly refusals: { status: number; text: string }[];
  /** Waits until more events are acknowledged. */
  acknowledges(events?: number): Promise<void>;
  /** Waits until another request fails with 500. */
  isRefused(): Promise<void>;
  stop(): Promise<void>;
}

let ledgers = 0;

/** Starts clients that send each event once. */
async function send(service: TestService, token: string): Promise<Client> {
  const ledger = createLedger(`owner${(ledgers += 1)}`);
  const refusals: Client['refusals'] = [];
  const onProblem = (status: number, text: string): void => void refusals.push({ status, text });
  const load: Load = startLoad(ledger, {
    s2s: () => service.s2s,
    idApp: 1,
    token,
    random: createRandom(seed + ledgers),
    clients: 2,
    pauseMs: 40,
    onProblem,
  });
  onTestFinished(() => load.stop());
  return {
    ledger,
    refusals,
    async acknowledges(events = 20) {
      const enough = ledger.totals().acknowledged + events;
      await waitFor('events are acknowledged', () => ledger.totals().acknowledged >= enough, 120_000);
    },
    async isRefused() {
      const known = refusals.length;
      await waitFor('events are refused', () => refusals.slice(known).some(({ status }) => status === 500), 60_000);
    },
    stop: () => load.stop(),
  };
}

/** Tries to start a second service; returns the error, or undefined if it started. */
async function startSecond(dataDir: string): Promise<string | undefined> {
  figures.ways += 1;
  const second = startTestService({ dataDir });
  const error = await second.then(
    async (service) => {
      await service.killAll();
      return undefined;
    },
    (refusal: unknown) => String(refusal),
  );
  if (error === undefined) figures.secondsLetIn += 1;
  else figures.refusedStarts += 1;
  return error;
}

/** Stops the service once everything is in its lake, and compares the lake with the ledgers of its clients. */
async function settle(service: TestService, own: readonly Ledger[]): Promise<void> {
  await waitUntilWorkedOff(service);
  await service.stop();
  for (const result of await reconcileLake(service.dataDir, own)) {
    figures.acknowledgedEvents += result.acknowledged;
    figures.lostEvents += result.lost.length;
    figures.doubledEvents += result.doubled.length;
    figures.strangeEvents += result.invented.length;
    expect({ lost: result.lost, doubled: result.doubled, invented: result.invented }).toEqual({
      lost: [],
      doubled: [],
      invented: [],
    });
  }
}

/** Removes every file that an operator could consider a lock of a service. */
function removeLockFiles(dataDir: string): void {
  const names = readdirSync(dataDir, { recursive: true })
    .map(String)
    .filter((name) => /(^|\/)(\.?lock|[^/]*\.lock)$/.test(name));
  for (const name of names) rmSync(path.join(dataDir, name));
}

/**
 * Restores a backup over a folder as `rsync -a --delete` does: each file is written under another name and renamed;
 * files that the backup lacks are removed.
 */
function restoreOver(backup: string, dataDir: string): void {
  for (const name of readdirSync(dataDir)) {
    if (!existsSync(path.join(backup, name))) rmSync(path.join(dataDir, name), { recursive: true });
  }
  for (const name of readdirSync(backup)) {
    const [from, to] = [path.join(backup, name), path.join(dataDir, name)];
    if (statSync(from).isDirectory()) {
      mkdirSync(to, { recursive: true });
      restoreOver(from, to);
    } else {
      cpSync(from, `${to}.restored`);
      renameSync(`${to}.restored`, to);
    }
  }
}

/** Counts events in a service's lake that were never sent to it. */
async function countStrangers(service: TestService, own: readonly Ledger[]): Promise<number> {
  await waitUntilWorkedOff(service);
  const strangers = (await reconcileLake(service.dataDir, own)).reduce((sum, { invented }) => sum + invented.length, 0);
  figures.strangeEvents += strangers;
  return strangers;
}

async function readProblems(service: TestService): Promise<string> {
  return (await fetch(`${service.ops}/readyz`).catch(() => undefined))?.text() ?? '';
}

/** Waits until the service reports a problem; an empty text: none. */
async function says(service: TestService, text: string): Promise<void> {
  const ready = text === '' ? '"ready":true' : text;
  let said = '';
  await waitFor(
    `the service says ${ready}`,
    async () => (said = await readProblems(service)).includes(ready),
    60_000,
  ).catch((error: unknown) => {
    throw new Error(`${String(error)}; it says ${said}, and its log ends:\n${service.lastLog(40)}`);
  });
}

interface Scene {
  readonly service: TestService;
  readonly client: Client;
  readonly root: string;
}

/** Tries to start a second service in each way: with removed files, by another path, with a suspended supervisor. */
async function tryWaysIn({ service, client, root }: Scene): Promise<void> {
  const { dataDir } = service;
  const link = path.join(root, 'link');
  if (!existsSync(link)) symlinkSync(dataDir, link);
  const removeAll = (): void => {
    removeLockFiles(dataDir);
    rmSync(path.join(dataDir, 'run'), { recursive: true });
  };
  const ways: readonly { readonly at: string; readonly before: () => void; readonly after?: () => void }[] = [
    { at: dataDir, before: () => removeLockFiles(dataDir) },
    { at: dataDir, before: removeAll },
    { at: link, before: removeAll },
    {
      at: dataDir,
      before: () => void signalProcess(service.pid, 'SIGSTOP'),
      after: () => void signalProcess(service.pid, 'SIGCONT'),
    },
  ];
  for (const { at, before, after } of inTurn(ways, 4)) {
    before();
    expect(await startSecond(at)).toContain(`in use by the tributary service (pid ${service.pid})`);
    after?.();
    await client.acknowledges();
  }
}

/** Moves the folder away and starts another service in its place; then restores it. */
async function standInItsPlace({ service, client, root }: Scene): Promise<void> {
  const { dataDir } = service;
  const away = path.join(root, 'away');
  figures.ways += 1;
  renameSync(dataDir, away);
  await client.isRefused();
  await says(service, `the folder ${dataDir} was moved, removed or replaced while the service ran`);

  const { service: other, token } = await startWithApp({ dataDir, settings });
  const otherClient = await send(other, token);
  await otherClient.acknowledges();
  await otherClient.stop();
  await settle(other, [otherClient.ledger]);
  rmSync(dataDir, { recursive: true });

  renameSync(away, dataDir);
  await client.acknowledges();
  await says(service, '');
}

/** Moves the folder away, and restores it while the processes that report it are starting. */
async function comeBackMeanwhile({ service, client, root }: Scene): Promise<void> {
  const away = path.join(root, 'away');
  const before = service.processes().map(({ pid }) => pid);
  figures.ways += 1;
  renameSync(service.dataDir, away);
  await waitFor(
    'another import process starts',
    () => service.processes().some(({ role, pid }) => role === 'ingest' && !before.includes(pid)),
    60_000,
  );
  renameSync(away, service.dataDir);
  await client.acknowledges();
  await says(service, '');
}

/** Moves a folder of the service away and creates an empty one; then restores it. */
async function replaceFolder({ service, client, root }: Scene, name: string): Promise<void> {
  const folder = path.join(service.dataDir, name);
  const kept = path.join(root, name);
  figures.ways += 1;
  renameSync(folder, kept);
  mkdirSync(folder);
  await client.isRefused();
  await says(service, `the folder ${folder} was moved, removed or replaced while the service ran`);
  expect(readdirSync(folder)).toEqual([]);
  rmSync(folder, { recursive: true });
  renameSync(kept, folder);
  await client.acknowledges();
  await says(service, '');
}

/** The ways to take the folder, or one within it, from the service; the short form selects some. */
const takenAway = [
  standInItsPlace,
  comeBackMeanwhile,
  (scene: Scene) => replaceFolder(scene, 'nats'),
  (scene: Scene) => replaceFolder(scene, 'lake'),
];

describe('a data folder', () => {
  it(
    'A data folder has one service: a second is rejected, naming the first, and one whose folder is taken away writes and accepts nothing until the folder is restored',
    { timeout: isLongRun ? 1_800_000 : 300_000 },
    async () => {
      const root = testFolder();
      const { service, token } = await startWithApp({ dataDir: path.join(root, 'data'), settings });
      const client = await send(service, token);
      const scene = { service, client, root };
      await client.acknowledges();
      for (let round = 0; round < rounds; round += 1) {
        const refusedBefore = client.refusals.length;
        await tryWaysIn(scene);
        expect(client.refusals.slice(refusedBefore)).toEqual([]);
        for (const happen of inTurn(takenAway, 4)) await happen(scene);
      }
      await client.stop();
      // no response said that the token is wrong, even with the access data of another service
      expect(client.refusals.filter(({ status }) => status >= 400 && status < 500)).toEqual([]);

      // a nats-server that outlives its supervisor, without the watcher that would end it, is ended by the next start
      const server = service.processes().find(({ role }) => role === 'nats-server')?.pid ?? 0;
      for (const pid of listTree(server).filter((one) => one !== server)) signalProcess(pid, 'SIGKILL');
      await service.kill9('supervisor', createRandom(seed));
      removeLockFiles(service.dataDir);
      expect(isAlive(server)).toBe(true);
      await service.startAgain();
      expect(isAlive(server)).toBe(false);
      await settle(service, [client.ledger]);
    },
  );

  it(
    'A copied data folder runs next to its original, and a service whose folder was overwritten by a backup accepts no event',
    { timeout: 300_000 },
    async () => {
      const root = testFolder();
      const { service, token } = await startWithApp({ dataDir: path.join(root, 'data'), settings });
      const shared = await send(service, token);
      await shared.acknowledges();
      await shared.stop();
      await waitUntilWorkedOff(service);
      const [copy, backup] = [path.join(root, 'copy'), path.join(root, 'backup')];
      for (const to of [copy, backup]) copyRunningFolder(service.dataDir, to);

      // of a running service: its state in run/ names a running process that is not the copy's
      figures.ways += 1;
      expect(readdirSync(path.join(copy, 'run'))).not.toEqual([]);
      const other = await startTestService({ dataDir: copy, settings });
      onTestFinished(() => other.destroy());
      const clients = [await send(service, token), await send(other, token)] as const;
      await Promise.all(clients.map((client) => client.acknowledges(100)));
      await Promise.all(clients.map((client) => client.stop()));
      await settle(other, [shared.ledger, clients[1].ledger]);
      expect(await countStrangers(service, [shared.ledger, clients[0].ledger])).toBe(0);

      // as rsync --delete does: the operator removes the events sent since the backup
      figures.ways += 1;
      restoreOver(backup, service.dataDir);
      const after = await send(service, token);
      await after.isRefused();
      await says(service, "files of the broker's store");
      await after.stop();
      await service.stop();
      await service.startAgain();
      await waitUntilWorkedOff(service);
      await service.stop();
      const [kept, , sentAfter] = await reconcileLake(service.dataDir, [
        shared.ledger,
        clients[0].ledger,
        after.ledger,
      ]);
      figures.acknowledgedEvents += (kept?.acknowledged ?? 0) + (sentAfter?.acknowledged ?? 0);
      figures.lostEvents += (kept?.lost.length ?? 0) + (sentAfter?.lost.length ?? 0);
      expect([kept?.lost, kept?.doubled, sentAfter?.lost, sentAfter?.doubled]).toEqual([[], [], [], []]);
    },
  );
});
