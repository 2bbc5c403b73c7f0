import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { removeApp } from '../../../src/access/apps.ts';
import { addUser, removeUser, rotateUserSecret } from '../../../src/access/users.ts';
import { dataPaths } from '../../../src/config.ts';
import { signLink, openSigningKeys } from '../../../src/reports/signed-links.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import {
  createExportArea,
  send,
  targetOf,
  type Credentials,
  type ExportArea,
  type RunningArea,
} from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { silentLogger } from '../../helpers/nats.ts';
import { isAlive, listServiceProcesses, signalProcess } from '../../helpers/processes.ts';
import { waitFor, within } from '../../helpers/wait.ts';

const query = 'event=customEvents&selectors=idApp,customUserId&dateFrom=2025-05-01&dateTo=2025-05-31';
const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
/** 12,000 of them make a file larger than the buffers of a socket. */
const longText = 'x'.repeat(1000);
const event = (id_app: number, index: number): FixtureEvent => ({
  event_id: `${id_app}-${index}`,
  kind: 'custom_event',
  id_app,
  event_time: time,
  available_at: time,
  custom_event_name: 'n',
  custom_user_id: `${index}${longText}`,
});
const canceled = 'Canceled by user';
const list = '/api/report/v1/file/list.json';

async function countBytes(answer: IncomingMessage): Promise<number> {
  let bytes = 0;
  for await (const chunk of answer) bytes += (chunk as Buffer).length;
  return bytes;
}

describe('an export user', () => {
  let area: ExportArea;
  let running: RunningArea;
  let ann: Credentials;
  let bob: Credentials;

  const paths = () => dataPaths(area.dataDir);
  const jobOf = (id: string): { state: string; attempts: number; interruptions?: number } =>
    JSON.parse(readFileSync(path.join(area.reportsDir, id, 'job.json'), 'utf8')) as { state: string; attempts: number };
  const rawStatus = async (user: Credentials, id: string): Promise<string | undefined> =>
    (await running.call(user, `/api/raw/v1/export/get.json?idRawExport=${id}`)).json?.data?.status;
  /** 0: the response had begun when the link's holder was removed, and was aborted. */
  const statusOf = (link: string): Promise<number> =>
    send(running.port, link, { method: 'HEAD' }).then(
      ({ status }) => status,
      () => 0,
    );
  const firstLink = async (user: Credentials, id: string): Promise<string> =>
    targetOf((await running.waitForEnd(user, id)).files?.[0]?.link ?? '');

  /** Creates an export and suspends its worker; returns the worker's process id. */
  async function createStopped(user: Credentials): Promise<{ id: string; worker: number }> {
    const id = await running.create(user, query);
    let worker = 0;
    await waitFor(
      'a worker runs',
      () => (worker = listServiceProcesses(process.pid).find(({ role }) => role === 'job')?.pid ?? 0) !== 0,
    );
    signalProcess(worker, 'SIGSTOP');
    expect(jobOf(id).state).toBe('running');
    return { id, worker };
  }

  /** Starts the area on a lake with events of app 7, and one of app 8. */
  async function begin(events = 10): Promise<void> {
    area = createExportArea(testFolder());
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    await area.addApp({ idApp: 8, platform: 'web', idAccount: 1 });
    [ann, bob] = [await area.addUser({ name: 'ann' }), await area.addUser({ name: 'bob' })];
    await writeLake(area.tableDir, [[...Array.from({ length: events }, (_, index) => event(7, index)), event(8, 0)]]);
    running = await area.start({ exportWorkers: 1, singleFileMaxBytes: 1e9 });
  }

  afterEach(() => running.stop());

  it('The requests of a removed user are canceled, running or queued, and a colleague sees that', async () => {
    await begin();
    const { id, worker } = await createStopped(ann);
    const [waiting, colleagues] = [await running.create(ann, query), await running.create(bob, query)];
    await removeUser(paths(), Number(ann.idUser));
    await waitFor(
      'both are canceled',
      async () => (await rawStatus(bob, id)) === canceled && (await rawStatus(bob, waiting)) === canceled,
    );
    await waitFor('the worker has exited', () => !isAlive(worker));
    expect((await running.call(ann, list)).status).toBe(403);
    expect((await running.waitForEnd(bob, colleagues)).status).toBe('Success!');
  });

  it('The earlier requests of a user who was removed while the export area was stopped are canceled', async () => {
    await begin();
    const { id } = await createStopped(ann);
    const waiting = await running.create(ann, query);
    await running.stop();
    await removeUser(paths(), Number(ann.idUser));
    running = await area.start({ exportWorkers: 1 });
    await waitFor(
      'both are canceled',
      async () => (await rawStatus(bob, id)) === canceled && (await rawStatus(bob, waiting)) === canceled,
    );
    expect((await running.call(ann, list)).status).toBe(403);
  });

  it('A request that reads a removed app restarts without its rows, and counts no attempt', async () => {
    await begin();
    const { id, worker } = await createStopped(ann);
    await removeApp(paths(), 8, Date.now());
    await waitFor('the worker has exited', () => !isAlive(worker));
    const [csv] = await running.download(ann, id);
    expect(
      new Set(
        csv
          ?.trimEnd()
          .split('\n')
          .map((line) => line.split(',')[0]),
      ),
    ).toEqual(new Set(['idApp', '7']));
    expect([jobOf(id).attempts, jobOf(id).interruptions]).toEqual([1, undefined]);
  });

  it("Links end with their user or their secret, and a colleague's links to the same file do not", async () => {
    await begin();
    const id = await running.create(ann, query);
    const [own, colleagues] = [await firstLink(ann, id), await firstLink(bob, id)];
    expect([await statusOf(own), await statusOf(colleagues)]).toEqual([200, 200]);
    const bobs = await rotateUserSecret(paths(), Number(bob.idUser));
    await waitFor("the colleague's old link is refused", async () => (await statusOf(colleagues)) === 403);
    expect([await statusOf(own), (await running.call(bob, list)).status]).toEqual([200, 403]);
    expect(await statusOf(await firstLink(bobs, id))).toBe(200);
    await removeUser(paths(), Number(ann.idUser));
    await waitFor('the link of the removed user is refused', async () => (await statusOf(own)) === 403);
    expect(await statusOf(await firstLink(bobs, id))).toBe(200);
    // A later user of the same name is another user.
    const later = await addUser(paths(), { name: 'ann', idAccount: 1, canExport: true });
    await waitFor('the new user is let in', async () => (await running.call(later, list)).status === 200);
    expect([later.idUser === ann.idUser, await statusOf(own)]).toEqual([false, 403]);
  });

  it('Links without a holder, of an earlier version, work until the user who created the report is removed', async () => {
    await begin();
    const id = await running.create(ann, query);
    const [, name = '', expires = ''] = /\/files\/\d+\/([^?]+)\?expires=(\d+)/.exec(await firstLink(ann, id)) ?? [];
    const keys = await openSigningKeys(area.keysDir, createClock(0), silentLogger);
    const link = signLink(keys, { id: Number(id), name, expiresSeconds: Number(expires) });
    keys.close();
    expect(await statusOf(link)).toBe(200);
    await removeUser(paths(), Number(ann.idUser));
    await waitFor('it is refused', async () => (await statusOf(link)) === 403);
  });

  it('A user who is removed during a download receives no more of it', async () => {
    await begin(12_000);
    const id = await running.create(ann, query);
    const [link, other] = [await firstLink(ann, id), await firstLink(bob, id)];
    const download = (target: string): Promise<IncomingMessage> =>
      new Promise(
        (resolve, reject) =>
          void httpRequest({ host: '127.0.0.1', port: running.port, path: target, agent: false }, resolve)
            .once('error', reject)
            .end(),
      );
    const [cut, whole] = [await download(link), await download(other)];
    await removeUser(paths(), Number(ann.idUser));
    await waitFor('the link is refused', async () => (await statusOf(link)) === 403);
    await expect(within('the download is aborted', countBytes(cut))).rejects.toThrow('aborted');
    expect(await countBytes(whole)).toBe(Number(whole.headers['content-length']));
  });
});
