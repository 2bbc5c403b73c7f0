import { cpSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/cli/demo/random.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger, reconcileLake, type Ledger } from '../helpers/ledger.ts';
import { startLoad, type Load } from '../helpers/load.ts';
import { isAlive, listTree, signalProcess } from '../helpers/processes.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

/** Two services on one folder, however they came to be: the second is refused, or the first stops taking events. */

const seed = chaosSeed();
const again = `make chaos PART=folder-owners SEED=${seed}`;
const rounds = chaosFigure('TRIBUTARY_TEST_OWNER_ROUNDS', { short: 1, long: 10 });
/** One process less to start. */
const settings = { TRIBUTARY_INGEST_WORKERS: '1' };
const figures = { ways: 0, refusedStarts: 0, secondsLetIn: 0, acknowledgedEvents: 0, lostEvents: 0, doubledEvents: 0, strangeEvents: 0 };

afterAll(() => {
  recordFinding({
    promise: 'P14',
    what: 'a second owner of a data folder: locks and state removed, other paths, moved, copied and restored folders, stopped and killed supervisors',
    wanted: 'the second is refused, naming the first, or the first takes no event: 0 lost, 0 doubled, 0 in the data of another',
    figures,
    reached: figures.ways > 0 && figures.secondsLetIn + figures.lostEvents + figures.doubledEvents + figures.strangeEvents === 0,
    seed,
    again,
  });
});

interface Client {
  readonly ledger: Ledger;
  /** Answers that were not 200. */
  readonly refusals: { status: number; text: string }[];
  /** Waits until further events are acknowledged. */
  acknowledges(events?: number): Promise<void>;
  /** Waits until a further request is refused with 500. */
  isRefused(): Promise<void>;
  stop(): Promise<void>;
}

let ledgers = 0;

/** Starts clients that send to a service, each event once. */
async function send(service: TestService, token: string): Promise<Client> {
  const ledger = createLedger(`owner${(ledgers += 1)}`);
  const refusals: Client['refusals'] = [];
  const onProblem = (status: number, text: string): void => void refusals.push({ status, text });
  const load: Load = startLoad(ledger, { s2s: () => service.s2s, idApp: 1, token, random: createRandom(seed + ledgers), clients: 2, pauseMs: 10, onProblem });
  onTestFinished(() => load.stop());
  return {
    ledger,
    refusals,
    async acknowledges(events = 20) {
      const enough = ledger.totals().acknowledged + events;
      await waitFor('events are acknowledged', () => ledger.totals().acknowledged >= enough, 60_000);
    },
    async isRefused() {
      const known = refusals.length;
      await waitFor('events are refused', () => refusals.slice(known).some(({ status }) => status === 500));
    },
    stop: () => load.stop(),
  };
}

async function startService(dataDir: string): Promise<{ service: TestService; token: string }> {
  const app = await runCommand(['app', 'add', '1', '--platform', 'web', '--data', dataDir]);
  const service = await startTestService({ dataDir, settings });
  onTestFinished(() => service.destroy());
  return { service, token: String(app['token']) };
}

/** Tries to start a second service; returns why it was refused, undefined when it was let in. */
async function startSecond(dataDir: string): Promise<string | undefined> {
  figures.ways += 1;
  const second = startTestService({ dataDir });
  const error = await second.then(async (service) => service.killAll(), (refusal: unknown) => String(refusal));
  if (error === undefined) figures.secondsLetIn += 1;
  else figures.refusedStarts += 1;
  return error ?? undefined;
}

/** Stops the service with everything in its lake, and compares the lake with the ledgers of what it was sent. */
async function settle(service: TestService, own: readonly Ledger[]): Promise<void> {
  await waitUntilWorkedOff(service);
  await service.stop();
  for (const result of await reconcileLake(service.dataDir, own)) {
    figures.acknowledgedEvents += result.acknowledged;
    figures.lostEvents += result.lost.length;
    figures.doubledEvents += result.doubled.length;
    figures.strangeEvents += result.invented.length;
    expect({ lost: result.lost, doubled: result.doubled, invented: result.invented }).toEqual({ lost: [], doubled: [], invented: [] });
  }
}

/** Every file that could be taken for a lock of a service. */
function removeLockFiles(dataDir: string): void {
  const names = readdirSync(dataDir, { recursive: true }).map(String).filter((name) => /(^|\/)(\.?lock|[^/]*\.lock)$/.test(name));
  for (const name of names) rmSync(path.join(dataDir, name));
}

/** Puts a backup over a folder as `rsync -a --delete` does: each file is written aside and renamed, what is not in it goes. */
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

async function readProblems(service: TestService): Promise<string> {
  return (await fetch(`${service.api}/readyz`).catch(() => undefined))?.text() ?? '';
}

describe('a second service', () => {
  it('is refused, naming the first, whatever is removed, by any path, and while the first stands still', { timeout: 300_000 }, async () => {
    const root = testFolder();
    const dataDir = path.join(root, 'data');
    const { service, token } = await startService(dataDir);
    const client = await send(service, token);
    await client.acknowledges();
    const link = path.join(root, 'link');
    symlinkSync(dataDir, link);
    const removeAll = (): void => {
      removeLockFiles(dataDir);
      rmSync(path.join(dataDir, 'run'), { recursive: true });
    };
    const ways: readonly { readonly at: string; readonly before: () => void; readonly after?: () => void }[] = [
      { at: dataDir, before: () => undefined },
      { at: dataDir, before: () => removeLockFiles(dataDir) },
      { at: dataDir, before: removeAll },
      { at: link, before: removeAll },
      { at: dataDir, before: () => void signalProcess(service.pid, 'SIGSTOP'), after: () => void signalProcess(service.pid, 'SIGCONT') },
    ];
    for (let round = 0; round < rounds; round += 1) {
      for (const { at, before, after } of ways) {
        before();
        expect(await startSecond(at)).toContain(`in use by the tributary service (pid ${service.pid})`);
        after?.();
        await client.acknowledges();
      }
    }
    await client.stop();
    expect(client.refusals).toEqual([]);
    await settle(service, [client.ledger]);
  });

  it('is refused while the nats-server of a killed supervisor lives on, and let in when that is gone', { timeout: 120_000 }, async () => {
    const { service, token } = await startService(path.join(testFolder(), 'data'));
    const client = await send(service, token);
    await client.acknowledges();
    const server = service.processes().find(({ role }) => role === 'nats-server')?.pid ?? 0;
    // its watcher would end it together with the supervisor
    for (const pid of listTree(server).filter((one) => one !== server)) signalProcess(pid, 'SIGKILL');
    await service.kill9('supervisor', createRandom(seed));
    await client.stop();
    removeLockFiles(service.dataDir);
    expect(isAlive(server)).toBe(true);
    expect(await startSecond(service.dataDir)).toMatch(/is in use by/);
    signalProcess(server, 'SIGKILL');
    await service.startAgain();
    await settle(service, [client.ledger]);
  });
});

describe('a service whose folder is taken', () => {
  it('takes no event and writes nothing while another stands in its place, and goes on when it is back', { timeout: 120_000 }, async () => {
    const root = testFolder();
    const dataDir = path.join(root, 'data');
    const away = path.join(root, 'away');
    const { service, token } = await startService(dataDir);
    const client = await send(service, token);
    for (let round = 0; round < rounds; round += 1) {
      await client.acknowledges();
      figures.ways += 1;
      renameSync(dataDir, away);
      await client.isRefused();
      await expect.poll(() => readProblems(service), { timeout: 60_000 }).toContain('was taken from under the running service');

      const { service: other, token: otherToken } = await startService(dataDir);
      const otherClient = await send(other, otherToken);
      await otherClient.acknowledges();
      await otherClient.stop();
      await settle(other, [otherClient.ledger]);
      rmSync(dataDir, { recursive: true });

      renameSync(away, dataDir);
      await client.acknowledges();
    }
    await client.stop();
    // the token is not that of the folder which stood there: it was asked to come again, not told that it is wrong
    expect(client.refusals.filter(({ status }) => status >= 400 && status < 500)).toEqual([]);
    await expect.poll(() => readProblems(service), { timeout: 60_000 }).toContain('"ready":true');
    await settle(service, [client.ledger]);
  });

  it.each(['nats', 'lake'])('takes no event when its %s folder was removed and made anew, and keeps saying so', { timeout: 120_000 }, async (name) => {
    const { service, token } = await startService(path.join(testFolder(), 'data'));
    const client = await send(service, token);
    await client.acknowledges();
    figures.ways += 1;
    const folder = path.join(service.dataDir, name);
    const kept = `${service.dataDir}-${name}`;
    renameSync(folder, kept);
    mkdirSync(folder);
    await client.isRefused();
    await expect.poll(() => readProblems(service), { timeout: 60_000 }).toContain(`the folder ${folder} was taken from under the running service`);
    expect(readdirSync(folder).filter((entry) => entry !== '.lock')).toEqual([]);
    await client.stop();
    rmSync(folder, { recursive: true });
    renameSync(kept, folder);
    await expect.poll(() => readProblems(service), { timeout: 60_000 }).toContain('"ready":true');
    await settle(service, [client.ledger]);
  });

  it('takes no event once a backup was put over it as rsync does', { timeout: 120_000 }, async () => {
    const root = testFolder();
    const backup = path.join(root, 'backup');
    const { service, token } = await startService(path.join(root, 'data'));
    const before = await send(service, token);
    await before.acknowledges();
    await before.stop();
    await waitUntilWorkedOff(service);
    await service.stop();
    cpSync(service.dataDir, backup, { recursive: true });
    await service.startAgain();
    const thrownAway = await send(service, token);
    await thrownAway.acknowledges(100);
    await thrownAway.stop();

    figures.ways += 1;
    restoreOver(backup, service.dataDir);
    const after = await send(service, token);
    await after.isRefused();
    await expect.poll(() => readProblems(service), { timeout: 60_000 }).toContain("files of the broker's store");
    await after.stop();
    await service.stop();

    await service.startAgain();
    const last = await send(service, token);
    await last.acknowledges();
    await last.stop();
    await waitUntilWorkedOff(service);
    await service.stop();
    for (const result of await reconcileLake(service.dataDir, [before.ledger, after.ledger, last.ledger, thrownAway.ledger])) {
      const isThrownAway = result.sent === thrownAway.ledger.totals().sent && result.acknowledged === thrownAway.ledger.totals().acknowledged;
      figures.acknowledgedEvents += isThrownAway ? 0 : result.acknowledged;
      figures.lostEvents += isThrownAway ? 0 : result.lost.length;
      figures.doubledEvents += result.doubled.length;
      expect({ lost: isThrownAway ? [] : result.lost, doubled: result.doubled }).toEqual({ lost: [], doubled: [] });
    }
  });
});

describe('a copied folder', () => {
  it('runs beside its original, each with what it was sent itself', { timeout: 120_000 }, async () => {
    const root = testFolder();
    const { service, token } = await startService(path.join(root, 'data'));
    const shared = await send(service, token);
    await shared.acknowledges();
    await shared.stop();
    await waitUntilWorkedOff(service);
    figures.ways += 1;
    // of a running service: its state in run/ names a living process, which is not the copy's
    const copy = path.join(root, 'copy');
    cpSync(service.dataDir, copy, { recursive: true });
    expect(readdirSync(path.join(copy, 'run'))).not.toEqual([]);
    const other = await startTestService({ dataDir: copy, settings });
    onTestFinished(() => other.destroy());
    const clients = [await send(service, token), await send(other, token)] as const;
    await Promise.all(clients.map((client) => client.acknowledges(100)));
    await Promise.all(clients.map((client) => client.stop()));
    await settle(service, [shared.ledger, clients[0].ledger]);
    await settle(other, [shared.ledger, clients[1].ledger]);
    expect(existsSync(lakePaths(path.join(copy, 'lake')).snapshotSql)).toBe(true);
  });
});
