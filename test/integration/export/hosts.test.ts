import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { connectTestBucket } from '../../helpers/connected-bucket.ts';
import {
  createExportArea,
  send,
  targetOf,
  type AnswerData,
  type Credentials,
  type ProcessArea,
} from '../../helpers/export-area.ts';
import { createRandom } from '../../helpers/export-events.ts';
import { startFakeS3 } from '../../helpers/fake-s3.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole, oneTestIn } from '../../helpers/in-turn.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

const seed = Number(process.env['TRIBUTARY_TEST_SEED'] ?? 7);
const kills = isWhole ? 12 : 2;
const leaseMs = 2000;
const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const query = 'event=customEvents&selectors=eventId,eventName,dtEvent&dateFrom=2025-05-01&dateTo=2025-05-31';

const events: FixtureEvent[] = Array.from({ length: 20_000 }, (_, index) => ({
  event_id: `event-${index}`,
  kind: 'custom_event',
  id_app: 7,
  event_time: time + index,
  available_at: time + index + 2,
  custom_event_name: `name, ${index % 13}`,
}));

/** Creates hosts with one lake, whose reports and state are in one bucket. */
async function createHosts(count: number) {
  const server = await startFakeS3();
  const bucket = { endpoint: server.endpoint, leaseMs };
  const [lakeArea, operator] = [testFolder(), testFolder()].map((folder) =>
    createExportArea(path.join(folder, 'data')),
  );
  if (lakeArea === undefined || operator === undefined) throw new Error('unreachable');
  await writeLake(lakeArea.tableDir, [events]);
  const connected = await connectTestBucket(operator.dataDir, bucket);
  await operator.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
  const user = await operator.addUser({});
  await connected.close();
  const areas = Array.from({ length: count }, () => createExportArea(path.join(testFolder(), 'data')));
  const options = {
    lakeDir: path.dirname(lakeArea.tableDir),
    maxExports: 100,
    singleFileMaxBytes: 0,
    partMaxBytes: 256 * 1024,
  };
  async function start(index: number): Promise<ProcessArea> {
    const process = await areas[index]?.startProcess(options, { bucket });
    if (process === undefined) throw new Error('unreachable');
    onTestFinished(() => process.kill());
    return process;
  }
  return { server, user, start };
}

/** The content of a result, without the id of its request. */
const contentOf = (data: AnswerData): unknown =>
  data.files?.map(({ rows, bytes, sha256 }) => ({ rows, bytes, sha256 }));

async function listIds(host: ProcessArea, user: Credentials): Promise<string[]> {
  const { data } = (await host.call(user, '/api/report/v1/file/list.json')).json ?? {};
  return (data?.reports ?? []).map(({ idReportFile }) => String(idReportFile));
}

test('Any host answers for any request, and streams any file in any part', async () => {
  const { user, start } = await createHosts(2);
  const [one, other] = [await start(0), await start(1)];
  const id = await one.create(user, query);
  expect(await listIds(other, user)).toEqual([id]);
  const data = await other.waitForEnd(user, id);
  expect(contentOf(data)).toEqual(contentOf(await one.waitForEnd(user, id)));
  expect(await one.download(user, id)).toEqual(await other.download(user, id));
  for (const { link, bytes, sha256 } of data.files ?? []) {
    const headers = { range: `bytes=10-${bytes - 5}` };
    const parts = await Promise.all([one, other].map(({ port }) => send(port, targetOf(link), { headers })));
    expect(parts.map(({ status, headers: { etag } }) => [status, etag])).toEqual([
      [206, `"${sha256}"`],
      [206, `"${sha256}"`],
    ]);
    expect(parts[0]?.body.equals(parts[1]?.body ?? Buffer.from(''))).toBe(true);
    expect(parts[0]?.body.length).toBe(bytes - 14);
  }
  const next = await other.create(user, query);
  expect(Number(next)).toBe(Number(id) + 1);
  const canceled = await one.call(user, `/api/raw/v1/export/cancel.json?idRawExport=${next}`, { method: 'POST' });
  const end = canceled.status === 200 ? 'Canceled by user' : 'Success!';
  // A host may show a request as it was a quarter of a second ago.
  const findStatus = async () =>
    (await other.call(user, `/api/raw/v1/export/get.json?idRawExport=${next}`)).json?.data?.status;
  await expect.poll(findStatus).toBe(end);
}, 120_000);

test(`Requests end in exactly one right result over ${kills} kills of their hosts (seed ${seed})`, async () => {
  const { server, user, start } = await createHosts(2);
  const hosts = [await start(0), await start(1)] as [ProcessArea, ProcessArea];
  const random = createRandom(seed);
  const undisturbed = contentOf(await hosts[1].waitForEnd(user, await hosts[0].create(user, query)));
  const ids: string[] = [];
  for (let kill = 0; kill < kills; kill += 1) {
    const killed = random(2);
    for (let count = 0; count < 3; count += 1) ids.push(await (hosts[random(2)] as ProcessArea).create(user, query));
    const until = performance.now() + random(800);
    await waitFor('the moment has come', () => performance.now() >= until);
    await (hosts[killed] as ProcessArea).kill();
    const other = hosts[1 - killed] as ProcessArea;
    if (random(2) === 0) for (const id of ids) await other.waitForEnd(user, id);
    hosts[killed] = await start(killed);
  }
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) {
    const ends = [await hosts[0].waitForEnd(user, id), await hosts[1].waitForEnd(user, id)];
    expect(ends.map(({ status }) => status)).toEqual(['Success!', 'Success!']);
    expect(ends.map(contentOf)).toEqual([undisturbed, undisturbed]);
  }
  for (const host of hosts) expect((await listIds(host, user)).length).toBe(ids.length + 1);
  const parts = [...server.objects.keys()].filter((key) => key.includes('/parts/'));
  expect(parts.length).toBe((ids.length + 1) * ((undisturbed as unknown[] | undefined)?.length ?? 0));
}, 300_000);
