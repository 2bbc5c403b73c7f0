import { readFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { shareCredentials } from '../helpers/bucket.ts';
import { basic, send, targetOf, type Call, type Credentials } from '../helpers/export-area.ts';
import { createExportClient, exportQuery, type ExportClient } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { oneFileIn } from '../helpers/in-turn.ts';
import { startTestCluster } from '../helpers/nats-cluster.ts';
import { readSheet } from '../helpers/read-sheet.ts';
import { forwardTo, startS3Proxy } from '../helpers/s3-proxy.ts';
import { startGateway, startMemoryServer } from '../helpers/s3-servers.ts';
import { sendEvents, startWithUser, waitForRows } from '../helpers/service-access.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneFileIn(3, 0));

type Settings = Readonly<Record<string, string>>;

type HostsStatus = {
  readonly problems: readonly unknown[];
  readonly hosts?: readonly {
    readonly roles: readonly string[];
    readonly program: string;
    readonly isAlive?: boolean;
  }[];
  readonly leases?: readonly { readonly name: string; readonly holder: string; readonly isHeld?: boolean }[];
};

const page = readFileSync(path.join(packageRoot, 'docs/several-hosts.md'), 'utf8');

/** Reads the settings and the commands of the documented steps, with values of the test for those of the page. */
function readSteps(values: Settings) {
  let [, text = ''] = /^## From one machine to a cluster\n(.*?)^## /ms.exec(page) ?? [];
  for (const [documented, value] of Object.entries(values)) {
    expect(text).toContain(documented);
    text = text.replaceAll(documented, value);
  }
  const named = [...text.matchAll(/(?:^ +|`)((?:TRIBUTARY|AWS)_\w+)=([^\s`]+)/gm)];
  const commands = [...text.matchAll(/`tributary ([^`]+)`/g)].map(([, words = '']) => words.split(' '));
  return { settings: Object.fromEntries(named.map(([, name = '', value = '']) => [name, value])), commands };
}

/** Starts the servers that the steps need. The bucket is behind a network with faults. */
async function startServers() {
  const cluster = await startTestCluster();
  onTestFinished(() => cluster.stop());
  const server = (await startGateway(testFolder())) ?? (await startMemoryServer());
  onTestFinished(() => server.stop());
  const network = await startS3Proxy(forwardTo(server.settings.endpoint));
  const { accessKeyId = '', secretAccessKey = '' } = server.settings.credentials ?? {};
  const access = { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey };
  return { cluster, network, access };
}

async function listUsers(client: ExportClient): Promise<readonly string[]> {
  const id = (await client.create(exportQuery('customUserId'))) ?? '';
  return (await client.download(await client.waitForEnd(id))).slice(1).toSorted();
}

/** Checks what reads and writes files on any host: workbooks, columns of parameters, deliveries, data of a person. */
async function checkFiles(host: TestService, user: Credentials, settings: Settings, bucket: string): Promise<void> {
  const client = createExportClient(host, user);
  const call = async (target: string, options: Call = {}) =>
    send(Number(new URL(host.api).port), target, { headers: { authorization: basic(user) }, ...options });
  const given = { name: 'Bucket', kind: 's3', endpoint: bucket, bucket: 'lake', prefix: 'delivered/' };
  const secrets = { accessKeyId: settings['AWS_ACCESS_KEY_ID'] ?? '', secret: settings['AWS_SECRET_ACCESS_KEY'] ?? '' };
  const added = await call('/api/destination/v1/create.json', {
    method: 'POST',
    body: new URLSearchParams({ ...given, ...secrets }).toString(),
  });
  const { idDestination: deliverTo } = (added.json?.data ?? {}) as { readonly idDestination?: string };
  const columns = { columns: 'params', deliverTo: deliverTo ?? '' };
  const table = await client.waitForEnd((await client.create(exportQuery('customUserId', columns))) ?? '');
  const rows = ['ann,', 'bob,', 'carl,', 'customUserId,params.level', 'dora,', 'params,7'];
  expect((await client.download(table)).toSorted()).toEqual(rows);
  const id = (await client.create(exportQuery('customUserId', { ...columns, format: 'xlsx' }))) ?? '';
  const [file] = (await client.waitForEnd(id)).files ?? [];
  const { body } = await call(targetOf(file?.link ?? ''), { headers: {} });
  const cells = readSheet(body).map((row) => row.map(({ text }) => text).join());
  expect(cells.toSorted()).toEqual(rows);
  let shown = '';
  await waitFor('the workbook is delivered', async () => {
    shown = (await call(`/api/raw/v1/export/get.json?idRawExport=${id}`)).body.toString();
    return /"delivery":\{[^}]*"status":"(?!Waiting)/.test(shown);
  });
  expect(shown).toContain('"status":"Delivered"');
  const desk = ['--data', path.join(testFolder(), 'desk')];
  const folder = path.join(testFolder(), 'person');
  const counts = await runCommand(['erase', '--user', 'ann', '--dry-run', ...desk], settings);
  const exported = await runCommand(['person', 'export', 'ann', '-o', folder, ...desk], settings);
  expect([exported['rows'], counts['rows']]).toEqual([1, 1]);
  expect(readFileSync(path.join(folder, 'events.jsonl'), 'utf8')).toContain('"custom_user_id":"ann"');
}

test('The documented steps lead from one machine to several hosts and back, and no event, export or user is missing', async () => {
  const { cluster, network, access } = await startServers();
  const root = testFolder();
  const { settings: documented, commands } = readSteps({
    'nats://service:password@nats-1,nats-2,nats-3': cluster.url,
    'nats://system:password@nats-1,nats-2,nats-3': cluster.systemUrl,
    's3://my-bucket/': 's3://lake/',
    'https://s3.example.com': network.endpoint,
    'eu-central-1': 'us-east-1',
    '/var/lib/tributary': root,
  });
  const [moveThere = [], status = [], startIngest = [], startOthers = [], moveBack = []] = commands;
  expect(commands).toHaveLength(5);
  const quiet = {
    TRIBUTARY_QUOTA_USER: 'off',
    TRIBUTARY_DELIVERY_ALLOW: '127.0.0.0/8',
    TRIBUTARY_LEASE_MS: '5000',
    TRIBUTARY_STREAM_MAX_BYTES: String(1024 ** 3),
  };
  const settings: Settings = { ...documented, ...access, ...quiet };
  shareCredentials(settings);
  const { TRIBUTARY_NATS_URL: natsUrl = '', TRIBUTARY_STORAGE_URL: address } = documented;

  const dataDir = path.join(root, 'data');
  const { service: first, token, user } = await startWithUser({ dataDir, settings: quiet });
  await sendEvents(first, token, ['ann', 'bob']);
  await waitForRows(first, 2);
  const analyst = createExportClient(first, user);
  const id = (await analyst.create(exportQuery('customUserId'))) ?? '';
  const rows = await analyst.download(await analyst.waitForEnd(id));
  await first.stop();

  await first.startAgain({ TRIBUTARY_NATS_URL: natsUrl });
  await sendEvents(first, token, ['carl']);
  await waitForRows(first, 3);
  await first.stop();

  // All settings of the bucket may be there before the data is.
  const redirected = { ...settings, TRIBUTARY_DOWNLOADS: 'redirect' };
  expect(await runCommand([...moveThere, '--data', dataDir], redirected)).toMatchObject({ from: dataDir, to: address });
  const started = runCommand(['start', '--data', dataDir], { TRIBUTARY_NATS_URL: natsUrl });
  await expect(started).rejects.toThrow(`the data of ${dataDir} was moved to ${address}`);
  await first.startAgain(settings);
  expect(await first.command(...status)).toMatchObject({ running: true, problems: [] });

  const startHost = async (name: string, [, ...words]: readonly string[]): Promise<TestService> => {
    const host = await startTestService({ dataDir: path.join(root, name), words, settings });
    onTestFinished(() => host.destroy());
    return host;
  };
  const [ingest, others] = await Promise.all([startHost('ingest', startIngest), startHost('others', startOthers)]);
  await sendEvents(ingest, token, ['dora']);
  const event = { customUserId: 'params', customEventName: 'level', customEventParams: { level: '7' } };
  await fetch(`${ingest.s2s}/v1/customEvent/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token },
    body: JSON.stringify(event),
  });
  await waitForRows(others, 5);
  const client = createExportClient(others, user);
  expect(await listUsers(client)).toEqual(['ann', 'bob', 'carl', 'dora', 'params']);
  await checkFiles(others, user, settings, network.endpoint);
  expect(await client.download((await client.find(id)) ?? {})).toEqual(rows);

  let shown: HostsStatus = { problems: [] };
  await waitFor('all hosts are seen alive', async () => {
    shown = (await others.status()) as HostsStatus;
    return shown.hosts?.length === 3 && shown.hosts.every(({ isAlive }) => isAlive === true);
  });
  expect(shown.hosts?.map(({ roles }) => roles.join()).toSorted()).toEqual([
    'compact,export',
    'ingest',
    'ingest,compact,export',
  ]);
  expect(shown.leases?.find(({ name }) => name === 'compact')).toMatchObject({ holder: expect.any(String) as string });

  const elsewhere = await runCommand([...status, '--data', path.join(root, 'desk')], settings);
  expect(elsewhere).toMatchObject({ running: false, problems: [], hosts: [{}, {}, {}] });

  // The bucket is away: imports continue, and their events wait in the stream.
  network.faultOf = () => ({ isDone: false, answer: 'cut' });
  await sendEvents(ingest, token, ['eve']);
  await sendEvents(first, token, ['fred']);
  network.faultOf = () => undefined;
  await first.stop();
  await waitForRows(others, 7);
  await Promise.all([ingest.stop(), others.stop()]);

  expect(await runCommand([...moveBack, '--data', dataDir], settings)).toMatchObject({ from: address });
  const back = await startTestService({
    dataDir: moveBack.at(-1) ?? '',
    settings: { ...quiet, TRIBUTARY_NATS_URL: natsUrl },
  });
  onTestFinished(() => back.destroy());
  await sendEvents(back, token, ['gina']);
  await waitForRows(back, 8);
  const again = createExportClient(back, user);
  expect(await listUsers(again)).toEqual(['ann', 'bob', 'carl', 'dora', 'eve', 'fred', 'gina', 'params']);
  expect(await again.download((await again.find(id)) ?? {})).toEqual(rows);
  expect(await back.command('lake', 'check')).toMatchObject({ ok: true });
}, 300_000);
