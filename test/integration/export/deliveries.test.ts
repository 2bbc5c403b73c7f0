import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import type { S3 } from '@aws-sdk/client-s3';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createExportArea, type Credentials, type ProcessArea, type RunningArea } from '../../helpers/export-area.ts';
import { createRandom } from '../../helpers/export-events.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { startGateway, startMemoryServer, startMoto, type S3Server } from '../../helpers/s3-servers.ts';
import { findSshd, startSftpServer } from '../../helpers/sftp-server.ts';
import { waitFor } from '../../helpers/wait.ts';
import { startReceiver } from '../../helpers/webhook-receiver.ts';
import { runHere } from '../../helpers/worker-here.ts';

/** Kills of the export stage while it delivers. */
const kills = isWhole ? 20 : 2;
const seed = Number(process.env['TRIBUTARY_TEST_SEED'] ?? 11);
const rows = isWhole ? 30_000 : 6000;
const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const query = 'event=customEvents&selectors=eventId,customUserId,eventName&dateFrom=2025-05-01&dateTo=2025-05-31';
/** Small parts, so that an export has some. */
const parts = { singleFileMaxBytes: 0, partMaxBytes: 10 * rows, maxExports: 100 };
const allowed = { deliveryAllow: ['127.0.0.0/8'] };

interface Delivered {
  readonly name: string;
  readonly bytes: Buffer;
  readonly modifiedMs: number;
}

interface ManifestText {
  readonly idReportFile: string;
  readonly rows: number;
  readonly files: readonly { readonly name: string; readonly bytes: number; readonly sha256: string }[];
}

/** Lists the objects of a bucket below a prefix, and their versions that uploads in parts have left. */
async function listBucket({ settings }: S3Server, prefix: string): Promise<readonly Delivered[]> {
  const { S3: Client } = await import('@aws-sdk/client-s3');
  const s3: S3 = new Client({
    endpoint: settings.endpoint,
    region: 'us-east-1',
    forcePathStyle: true,
    ...(settings.credentials === undefined ? {} : { credentials: settings.credentials }),
  });
  try {
    const { Contents = [] } = await s3.listObjectsV2({ Bucket: settings.bucket, Prefix: prefix });
    return await Promise.all(
      Contents.map(async ({ Key = '', LastModified }) => {
        const { Body } = await s3.getObject({ Bucket: settings.bucket, Key });
        const bytes = Buffer.from((await Body?.transformToByteArray()) ?? []);
        return { name: Key.slice(prefix.length), bytes, modifiedMs: LastModified?.getTime() ?? 0 };
      }),
    );
  } finally {
    s3.destroy();
  }
}

/** Asserts that each export is there once: all of its parts with their bytes, then a manifest that names them. */
function checkDelivered(found: readonly Delivered[], ids: readonly string[]): void {
  const manifests = found.filter(({ name }) => name.endsWith('.manifest.json'));
  const texts = manifests.map(({ bytes }) => JSON.parse(bytes.toString('utf8')) as ManifestText);
  expect(texts.map(({ idReportFile }) => idReportFile).toSorted()).toEqual([...ids].toSorted());
  const named = texts.flatMap(({ files }) => files);
  expect(found.map(({ name }) => name).toSorted()).toEqual(
    [...named.map(({ name }) => name), ...manifests.map(({ name }) => name)].toSorted(),
  );
  const byName = new Map(found.map((one) => [one.name, one]));
  for (const { name, bytes, sha256 } of named) {
    const file = byName.get(name);
    expect([name, file?.bytes.length]).toEqual([name, bytes]);
    expect(
      createHash('sha256')
        .update(file?.bytes ?? '')
        .digest('hex'),
    ).toBe(sha256);
  }
  for (const [index, { files, rows: count }] of texts.entries()) {
    expect([files.length > 1, count]).toEqual([true, rows]);
    const last = Math.max(...files.map(({ name }) => byName.get(name)?.modifiedMs ?? 0));
    expect(manifests[index]?.modifiedMs).toBeGreaterThanOrEqual(last);
  }
}

async function openArea() {
  const area = createExportArea(path.join(testFolder(), 'data'));
  await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
  const user = await area.addUser({});
  const events = Array.from({ length: rows }, (_, id) => ({
    event_id: `event-${id}`,
    kind: 'custom_event' as const,
    id_app: 7,
    event_time: time + id,
    available_at: time + id + 2,
    custom_user_id: `user ${id % 977}`,
    custom_event_name: createHash('md5').update(String(id)).digest('hex'),
  }));
  await writeLake(area.tableDir, [events]);
  return { area, user };
}

/** Lists the files of a folder. */
function listFolder(folder: string): readonly Delivered[] {
  return readdirSync(folder).map((name) => {
    const file = path.join(folder, name);
    return { name, bytes: readFileSync(file), modifiedMs: statSync(file).mtimeMs };
  });
}

/** Returns the arguments of a destination in a bucket. */
function bucketArguments({ settings }: Pick<S3Server, 'settings'>, prefix: string): string {
  const { endpoint, bucket, credentials } = settings;
  const given = { name: 'Bucket', kind: 's3', endpoint, bucket, prefix };
  const secrets = { accessKeyId: credentials?.accessKeyId ?? 'a', secret: credentials?.secretAccessKey ?? 's' };
  return new URLSearchParams({ ...given, ...secrets }).toString();
}

type Caller = Pick<RunningArea, 'call'> | ProcessArea;

async function ask(of: Caller, user: Credentials, target: string, method = 'POST') {
  const answer = await of.call(user, target, { method });
  return answer.json?.data as Readonly<Record<string, never>> | undefined;
}

async function addDestination(of: Caller, user: Credentials, given: string): Promise<string> {
  const data = await ask(of, user, `/api/destination/v1/create.json?${given}`);
  expect(data).not.toHaveProperty('error');
  return String(data?.['idDestination']);
}

const realServers = [
  ['versitygw', () => startGateway(testFolder())],
  ['moto', startMoto],
] as const;
const servers = [['in memory', startMemoryServer] as const, ...(isWhole ? realServers : [])];

/** Waits until a random number of an export's files is delivered. */
async function waitForFiles(of: Caller, user: Credentials, id: string, random: (below: number) => number) {
  let wanted: number | undefined;
  await waitFor(`some files of export ${id} are delivered`, async () => {
    const data = await ask(of, user, `/api/raw/v1/export/get.json?idRawExport=${id}`, 'GET');
    const delivery = data?.['delivery'] as Readonly<Record<'files' | 'filesInTotal', number>> | undefined;
    wanted ??= random(delivery?.filesInTotal ?? 1);
    return (delivery?.files ?? 0) >= wanted;
  });
}

/** Creates exports, kills the stage after each of them, and waits until all are delivered. Returns their ids. */
async function deliverThroughKills(given: string): Promise<readonly string[]> {
  const { area, user } = await openArea();
  let stage = await area.startProcess({ ...parts, ...allowed }, { runsHere: true });
  onTestFinished(() => stage.kill());
  const idDestination = await addDestination(stage, user, given);
  const random = createRandom(seed);
  const ids: string[] = [];
  for (let kill = 0; kill < kills; kill += 1) {
    ids.push(await stage.create(user, `${query}&deliverTo=${idDestination}`));
    await stage.waitForEnd(user, ids.at(-1) ?? '');
    await waitForFiles(stage, user, ids.at(-1) ?? '', random);
    await stage.kill();
    stage = await area.startProcess({ ...parts, ...allowed }, { runsHere: true });
  }
  for (const id of ids) {
    await waitFor(
      `export ${id} is delivered`,
      async () => {
        const data = await ask(stage, user, `/api/raw/v1/export/get.json?idRawExport=${id}`, 'GET');
        return JSON.stringify(data?.['delivery']).includes('"status":"Delivered"');
      },
      60_000,
    );
  }
  return ids;
}

describe('deliveries to buckets and folders', () => {
  it.each(servers)(
    'Through kills each part is there once, and the manifest last, on a server %s',
    async (_, start) => {
      const server = await start();
      if (server === undefined) return;
      onTestFinished(() => server.stop());
      const ids = await deliverThroughKills(bucketArguments(server, 'a/b'));
      const found = await listBucket(server, 'a/b/');
      expect(found.length).toBeGreaterThan(2 * kills);
      checkDelivered(found, ids);
    },
    600_000,
  );

  it('Through kills each part is there once, and the manifest last, in a folder of an SFTP server', async () => {
    const sshd = findSshd();
    if (sshd === undefined) return;
    const server = await startSftpServer(sshd, testFolder());
    onTestFinished(() => server.stop());
    const { host, port, username, folder, hostKey, privateKey: secret } = server;
    const given = { name: 'Folder', kind: 'sftp', host, port: String(port), username, folder, hostKey, secret };
    const ids = await deliverThroughKills(new URLSearchParams(given).toString());
    const found = listFolder(folder);
    expect(found.length).toBeGreaterThan(2 * kills);
    checkDelivered(found, ids);
  }, 600_000);

  it('A server with another key than the pinned one gets no credentials and no file', async () => {
    const sshd = findSshd();
    if (sshd === undefined) return;
    const server = await startSftpServer(sshd, testFolder());
    onTestFinished(() => server.stop());
    const { area, user } = await openArea();
    const running = await area.start({ ...parts, ...allowed, runAttempt: runHere });
    onTestFinished(() => running.stop());
    const { host, port, username, folder, privateKey: secret } = server;
    const hostKey = `SHA256:${'A'.repeat(43)}`;
    const given = { name: 'Folder', kind: 'sftp', host, port: String(port), username, folder, hostKey, secret };
    const idDestination = await addDestination(running, user, new URLSearchParams(given).toString());
    const id = await running.create(user, `${query}&deliverTo=${idDestination}`);
    await running.waitForEnd(user, id);
    await waitFor('its user sees the error', async () => {
      const data = await ask(running, user, `/api/raw/v1/export/get.json?idRawExport=${id}`, 'GET');
      return JSON.stringify(data?.['delivery']).includes(`the server has another key: ${server.hostKey}`);
    });
    expect(readdirSync(folder)).toEqual([]);
  });

  it('A wrong secret is retried with its error, a new one is used, and a removed destination ends the delivery', async () => {
    const { url } = await startReceiver(403);
    const { area, user } = await openArea();
    const running = await area.start({ ...parts, ...allowed, runAttempt: runHere });
    onTestFinished(() => running.stop());
    const credentials = { accessKeyId: 'a', secretAccessKey: 'tester-secret' };
    const settings = { endpoint: new URL(url).origin, bucket: 'missing', credentials };
    const given = bucketArguments({ settings }, '');
    const idDestination = await addDestination(running, user, given);
    const id = await running.create(user, `${query}&deliverTo=${idDestination}&name=d`);
    await running.waitForEnd(user, id);
    const find = async () => {
      const data = await ask(running, user, `/api/raw/v1/export/get.json?idRawExport=${id}`, 'GET');
      return data?.['delivery'] as Readonly<Record<string, unknown>> | undefined;
    };
    await waitFor('its user sees the error', async () => (await find())?.['error'] !== undefined, 60_000);
    expect(await find()).toMatchObject({ idDestination, status: 'Waiting', attempts: 1 });
    expect(running.stage.facts()['warnings']).toMatchObject([{ code: 'delivery_failing', subject: id }]);
    const list = await running.call(user, '/api/destination/v1/list.json');
    expect(list.body.toString()).toContain('s3://missing/');
    expect(list.body.toString()).not.toContain('tester-secret');
    expect(
      await ask(running, user, `/api/destination/v1/secret.json?idDestination=${idDestination}&secret=x`),
    ).toMatchObject({ idDestination });
    expect(await ask(running, user, `/api/destination/v1/delete.json?idDestination=${idDestination}`)).toEqual({
      idDestination,
    });
    await waitFor('the delivery ends', async () => (await find())?.['status'] === 'Failed', 60_000);
    expect(await find()).toMatchObject({ error: 'the destination was removed' });
    const refused = await running.call(user, `/api/raw/v1/export/create.json?${query}&deliverTo=${idDestination}`);
    expect(refused.status).toBe(400);
  });

  it.each([
    ['a host that is not listed', { endpoint: 'https://s3.example.com' }],
    ['a private address that is not listed', { endpoint: 'http://10.0.0.1' }],
    ['a path in the endpoint', { endpoint: 'http://127.0.0.1/x' }],
    ['a prefix that leads out', { prefix: '../x' }],
    ['a prefix with a dot', { prefix: 'a/./x' }],
    ['a bucket with a slash', { bucket: 'a/b' }],
    ['no secret', { secret: '' }],
    ['a host key of another form', { kind: 'sftp', host: '127.0.0.1', username: 'u', hostKey: 'any' }],
  ])('A destination with %s is refused', async (_, change) => {
    const area = createExportArea(path.join(testFolder(), 'data'));
    const user = await area.addUser({});
    const running = await area.start(allowed);
    onTestFinished(() => running.stop());
    const given = {
      name: 'n',
      kind: 's3',
      endpoint: 'http://127.0.0.1:9',
      bucket: 'bucket',
      accessKeyId: 'a',
      secret: 's',
      ...change,
    };
    const target = `/api/destination/v1/create.json?${new URLSearchParams(given).toString()}`;
    expect((await running.call(user, target, { method: 'POST' })).status).toBe(400);
    const list = await running.call(user, '/api/destination/v1/list.json');
    expect(list.json?.data).toEqual({ destinations: [] });
  });
});
