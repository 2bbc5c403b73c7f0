import { createHash } from 'node:crypto';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createHttpClient } from '../../../src/client/http-client.ts';
import { downloadFile } from '../../../src/client/download.ts';
import { removeUser } from '../../../src/access/users.ts';
import type { ExportOptions } from '../../../src/export/export.ts';
import type { S3Settings } from '../../../src/runtime/store/s3-bucket.ts';
import { connectS3Folders } from '../../../src/runtime/store/s3-folders.ts';
import { createExportArea, send, targetOf, type Answer } from '../../helpers/export-area.ts';
import { fakeBucket, startFakeS3 } from '../../helpers/fake-s3.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inTurn } from '../../helpers/in-turn.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { startGateway, startMemoryServer } from '../../helpers/s3-servers.ts';
import { readZip } from '../../helpers/zip.ts';

const query = 'event=customEvents&selectors=eventId,customUserId&dateFrom=2025-05-01&dateTo=2025-05-31';
const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const events: FixtureEvent[] = Array.from({ length: 300 }, (_, index) => ({
  event_id: `e${index}`,
  kind: 'custom_event',
  id_app: 7,
  event_time: time,
  available_at: time,
  custom_user_id: `user "${index}"`,
  custom_event_name: 'n',
}));

/** Starts an export area whose reports are in the bucket of a server, with a request that has ended. */
async function startArea(server: S3Settings, downloads: ExportOptions['downloads']) {
  const area = createExportArea(path.join(testFolder(), 'data'));
  const { bucket, ...settings } = server;
  const folders = await connectS3Folders({
    ...settings,
    dataDir: area.dataDir,
    places: { [area.reportsDir]: { bucket, prefix: 'reports' } },
    cacheMaxBytes: 1 << 30,
    leaseMs: 15_000,
  });
  onTestFinished(() => folders.close());
  await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
  const user = await area.addUser({});
  await writeLake(area.tableDir, [events]);
  let nowMs = Date.now();
  const options = { singleFileMaxBytes: 0, partMaxBytes: 2000, clock: { nowMs: () => nowMs } };
  const running = await area.start({ ...options, downloads });
  onTestFinished(() => running.stop());
  const id = await running.create(user, query);
  const data = await running.waitForEnd(user, id);
  expect(data.status).toBe('Success!');
  const ask = (link: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> =>
    send(running.port, targetOf(link), { headers, method });
  return { area, user, data, running, ask, setClock: (ms: number) => (nowMs = ms) };
}

const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

const servers = [
  { name: 'a server in memory', startServer: startMemoryServer },
  { name: 'versitygw', startServer: () => startGateway(testFolder()) },
];

test.each(inTurn(servers, 2))(
  'On $name, valid links lead to the bucket for a minute at most, and all others to nothing',
  async (one) => {
    const server = await one.startServer();
    if (server === undefined) return;
    onTestFinished(() => server.stop());
    const { area, user, data, ask, setClock } = await startArea(server.settings, 'redirect');
    const [link = ''] = (data.files ?? []).map((file) => file.link);
    const locationOf = async (headers: Record<string, string> = {}): Promise<URL> => {
      const { status, headers: found, body } = await ask(link, headers);
      expect([status, body.length]).toEqual([302, 0]);
      expect(found['cache-control']).toBe('private, no-store');
      return new URL(String(found['location']));
    };

    for (const file of data.files ?? []) {
      const answer = await ask(file.link);
      const fetched = await fetch(String(answer.headers['location']));
      const streamed = await ask(file.link, { authorization: 'Basic rubbish' });
      expect([fetched.status, streamed.status]).toEqual([200, 200]);
      for (const name of ['content-type', 'content-disposition', 'cache-control'])
        expect(fetched.headers.get(name), name).toBe(streamed.headers[name]);
      const bytes = Buffer.from(await fetched.arrayBuffer());
      expect(bytes.equals(streamed.body)).toBe(true);
      expect(hashOf(bytes)).toBe(file.sha256);
    }

    const { origin, searchParams } = await locationOf();
    expect([origin, searchParams.get('X-Amz-Expires')]).toEqual([server.settings.endpoint, '60']);
    const part = await fetch(await locationOf({ range: 'bytes=5-9' }), { headers: { range: 'bytes=5-9' } });
    expect([part.status, (await part.arrayBuffer()).byteLength]).toEqual([206, 5]);
    expect((await ask(link, { range: 'bytes=900000-' })).status).toBe(416);
    const etag = `"${data.files?.[0]?.sha256}"`;
    expect((await ask(link, { 'if-match': etag })).status).toBe(200);
    expect((await ask(link, { 'if-none-match': etag })).status).toBe(304);
    const head = await ask(link, {}, 'HEAD');
    expect([head.status, head.headers['content-length']]).toEqual([200, String(data.files?.[0]?.bytes)]);
    const archive = await ask(data.archive?.link ?? '');
    expect([archive.status, readZip(archive.body).length]).toEqual([200, data.files?.length]);

    const http = createHttpClient();
    onTestFinished(() => http.close());
    const [file] = (data.files ?? []).map((each) => ({ ...each, name: path.basename(new URL(each.link).pathname) }));
    if (file === undefined) throw new Error('the request has no file');
    const ignored = { onBytes: () => undefined, onWait: () => undefined, renew: async () => [] };
    await downloadFile(file, testFolder(), {
      http,
      signal: new AbortController().signal,
      giveUpAfterMs: 0,
      ...ignored,
    });

    const expiresMs = Number(data.files?.[0]?.timestampExpires) * 1000;
    setClock(expiresMs - 5400);
    expect((await locationOf()).searchParams.get('X-Amz-Expires')).toBe('5');
    setClock(expiresMs - 400);
    expect((await ask(link)).status).toBe(200);
    setClock(expiresMs);
    expect((await ask(link)).status).toBe(403);
    setClock(expiresMs - 5400);
    expect((await ask(link.replace(/expires=\d/, 'expires=9'))).status).toBe(403);
    await removeUser({ access: path.join(area.dataDir, 'access.json'), keys: area.keysDir }, Number(user.idUser));
    await expect.poll(async () => (await ask(link)).status).toBe(403);
  },
);

test('While the bucket is away, downloads get 503, creates are not acknowledged, and exports wait', async () => {
  const s3 = await startFakeS3();
  const limits = { callMs: 1000 };
  const { user, data, running, ask } = await startArea({ ...fakeBucket(s3.endpoint), limits }, 'stream');
  const link = data.files?.[0]?.link ?? '';
  const id = await running.create(user, query);
  s3.faultOf = () => ({ isDone: false, answer: 'cut' });
  const refused = await ask(link);
  expect([refused.status, refused.json?.code, refused.headers['retry-after']]).toEqual([503, 503, '5']);
  expect(refused.headers['etag']).toBeUndefined();
  const create = { method: 'POST', body: query };
  const created = await running.call(user, '/api/raw/v1/export/create.json', create);
  expect([created.status, created.headers['retry-after']]).toEqual([500, '5']);
  expect(String(s3.objects.get(`reports/${id}/job.json`)?.bytes)).not.toContain('success');
  s3.faultOf = () => undefined;
  expect((await running.waitForEnd(user, id)).status).toBe('Success!');
  expect(hashOf((await ask(link)).body)).toBe(data.files?.[0]?.sha256);
});
