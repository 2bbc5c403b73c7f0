import { existsSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createHash } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { rotateSigningKey } from '../../../src/reports/signed-links.ts';
import {
  createExportArea,
  send,
  targetOf,
  type AnswerData,
  type Credentials,
  type ExportArea,
  type RunningArea,
} from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runHere } from '../../helpers/worker-here.ts';
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
const accessDenied = { code: 403, message: 'Access denied', data: null };

describe('links', () => {
  let area: ExportArea;
  let user: Credentials;
  let running: RunningArea;
  let data: AnswerData;

  /** Requests a link under conditions; returns the status, and the code of the envelope if there is one. */
  async function ask(link: string, headers: Record<string, string>, method = 'GET'): Promise<unknown[]> {
    const answer = await send(running.port, link, { method, headers });
    return [answer.status, answer.json?.code];
  }

  const linkOf = (index = 0): string => targetOf(data.files?.[index]?.link ?? '');

  async function begin(options: Parameters<ExportArea['start']>[0] = {}): Promise<string> {
    running = await area.start({ runAttempt: runHere, singleFileMaxBytes: 0, partMaxBytes: 2000, ...options });
    const id = await running.create(user, query);
    data = await running.waitForEnd(user, id);
    return id;
  }

  beforeEach(async () => {
    area = createExportArea(testFolder());
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    user = await area.addUser({});
    await writeLake(area.tableDir, [events]);
  });
  afterEach(() => running.stop());

  it('Links lead to parts with the size, rows and hash of the response, under the names that clients know', async () => {
    const id = await begin();
    expect(data.files?.length).toBeGreaterThan(2);
    let rows = 0;
    for (const [index, file] of (data.files ?? []).entries()) {
      expect(file.link).toMatch(
        new RegExp(
          `^http://127\\.0\\.0\\.1:${running.port}/files/${id}/${id}\\.customEvents\\.[0-9a-f]{32}\\.${index + 1}\\.csv\\.gz\\?expires=\\d+&kid=[0-9a-f]{8}&signature=[0-9a-f]{64}&user=${user.idUser}&x-ending=\\.gz$`,
        ),
      );
      const answer = await send(running.port, targetOf(file.link));
      expect([answer.status, answer.headers['content-type'], answer.body.length]).toEqual([
        200,
        'application/gzip',
        file.bytes,
      ]);
      expect(createHash('sha256').update(answer.body).digest('hex')).toBe(file.sha256);
      const lines = gunzipSync(answer.body).toString('utf8').split('\n');
      expect([lines[0], lines.length - 2]).toEqual(['eventId,customUserId', file.rows]);
      rows += file.rows;
    }
    expect(rows).toBe(300);
  });

  it('Links work with the Authorization header that official clients send along', async () => {
    await begin();
    expect((await running.call(user, linkOf())).status).toBe(200);
    expect((await send(running.port, linkOf(), { headers: { authorization: 'Basic rubbish' } })).status).toBe(200);
  });

  it('A link to the archive streams one zip of all parts', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    onTestFinished(() => void process.off('warning', onWarning));
    await begin({ partMaxBytes: 300 });
    expect(data.files?.length).toBeGreaterThan(15);
    const link = targetOf(data.archive?.link ?? '');
    const answer = await send(running.port, link);
    expect([answer.status, answer.headers['content-type']]).toEqual([200, 'application/zip']);
    const entries = readZip(answer.body);
    const parts = await Promise.all(
      (data.files ?? []).map(async (file) =>
        gunzipSync((await send(running.port, targetOf(file.link))).body).toString('utf8'),
      ),
    );
    expect(entries.map(({ data: part }) => gunzipSync(part).toString('utf8'))).toEqual(parts);
    expect((await send(running.port, link, { method: 'HEAD' })).status).toBe(200);
    expect(warnings).toEqual([]);
  });

  it('Links answer conditional requests and ranges', async () => {
    await begin();
    const whole = await send(running.port, linkOf());
    const etag = String(whole.headers['etag']);
    expect(etag).toBe(`"${data.files?.[0]?.sha256}"`);
    expect((await send(running.port, linkOf(), { headers: { 'if-none-match': etag } })).status).toBe(304);
    const rest = await send(running.port, linkOf(), { headers: { range: 'bytes=10-', 'if-range': etag } });
    expect([rest.status, Buffer.concat([whole.body.subarray(0, 10), rest.body]).equals(whole.body)]).toEqual([
      206,
      true,
    ]);
    expect(
      (await send(running.port, linkOf(), { headers: { range: 'bytes=10-', 'if-range': '"other"' } })).status,
    ).toBe(200);
    const beyond = await send(running.port, linkOf(), { headers: { range: `bytes=${whole.body.length}-` } });
    expect([beyond.status, beyond.headers['content-range']]).toEqual([416, `bytes */${whole.body.length}`]);
    expect((await send(running.port, linkOf(), { method: 'POST' })).status).toBe(404);
  });

  it('Links answer 412 to a client whose copy is of another file, which If-Match names', async () => {
    await begin();
    const etag = `"${data.files?.[0]?.sha256}"`;
    expect(await ask(linkOf(), { 'if-match': etag, range: 'bytes=0-0' })).toEqual([206, undefined]);
    expect(await ask(linkOf(), { 'if-match': '"other"', range: 'bytes=0-0' })).toEqual([412, 412]);
    expect(await ask(linkOf(), { 'if-match': `W/${etag}` })).toEqual([412, 412]);
    expect(await ask(linkOf(), { 'if-match': '"other"' }, 'HEAD')).toEqual([412, undefined]);
    expect(await ask(linkOf(), { 'if-none-match': `"x,y", W/${etag}`, range: 'bytes=0-0' })).toEqual([304, undefined]);
    expect(await ask(linkOf(), { range: 'bytes=0-0', 'if-range': `W/${etag}` })).toEqual([200, undefined]);
    const archive = targetOf(data.archive?.link ?? '');
    expect([await ask(archive, { 'if-match': '*' }), await ask(archive, { 'if-match': etag })]).toEqual([
      [200, undefined],
      [412, 412],
    ]);
  });

  it.each([
    ['cut short', (file: string) => truncateSync(file, 20)],
    ['empty', (file: string) => truncateSync(file, 0)],
    ['longer', (file: string) => writeFileSync(file, 'x', { flag: 'a' })],
    [
      'of the same size, with a byte that has flipped',
      (file: string) => {
        const bytes = readFileSync(file);
        bytes[30] = (bytes[30] ?? 0) ^ 1;
        writeFileSync(file, bytes);
      },
    ],
  ])(
    'Links answer 500 before the first byte for a file that is %s, report it to the operator, and work again once the file is restored',
    async (_what, damage) => {
      const id = await begin();
      const file = path.join(area.reportsDir, id, 'parts', linkOf().split('?')[0]?.split('/').at(-1) ?? '');
      const whole = readFileSync(file);
      expect((await send(running.port, linkOf())).status).toBe(200);
      damage(file);
      for (const call of [{}, { headers: { range: 'bytes=0-9' } }, { headers: { 'if-match': '*' } }]) {
        const answer = await send(running.port, linkOf(), call);
        expect([answer.status, answer.json?.code, answer.json?.data?.error?.detail]).toEqual([
          500,
          500,
          'The report file is damaged on the disk of the service: create the export again',
        ]);
        expect([answer.headers['etag'], answer.headers['content-disposition'], answer.headers['content-type']]).toEqual(
          [undefined, undefined, 'application/json; charset=utf-8'],
        );
      }
      expect((await send(running.port, linkOf(), { method: 'HEAD' })).status).toBe(500);
      expect((await send(running.port, linkOf(1))).status).toBe(200);
      expect(JSON.stringify(running.stage.facts()['warnings'])).toContain(file);
      const archive = await send(running.port, targetOf(data.archive?.link ?? ''));
      expect([archive.status, archive.json?.data?.error?.detail]).toEqual([
        500,
        'The report file is damaged on the disk of the service: create the export again',
      ]);
      writeFileSync(file, whole);
      const again = await send(running.port, linkOf());
      expect([again.status, again.body.equals(whole)]).toEqual([200, true]);
      expect(running.stage.facts()['warnings']).toEqual([]);
    },
  );

  it("Links have the Host of the client's request when no public address is set, and never an invalid host", async () => {
    const id = await begin();
    const target = `/api/report/v1/file/get.json?idReportFile=${id}`;
    const linkUnder = async (host: string): Promise<string | undefined> =>
      (await running.call(user, target, { headers: { host } })).json?.data?.files?.[0]?.link.replace(/\/files\/.*/, '');
    expect(await linkUnder('export.example:8443')).toBe('http://export.example:8443');
    expect(await linkUnder('[::1]:80')).toBe('http://[::1]:80');
    expect(await linkUnder('')).toBe(`http://127.0.0.1:${running.port}`);
    for (const host of ['evil.example/x?', 'a b', 'user@evil.example', '"><script>', 'a:b', ':80']) {
      const answer = await running.call(user, target, { headers: { host } });
      expect([answer.status, answer.body.includes('/files/')], host).toEqual([400, false]);
    }
    // A target in absolute form replaces the Host (RFC 9112, 3.2.2).
    const absolute = (authority: string) =>
      running.call(user, `http://${authority}${target}`, { headers: { host: 'other.example' } });
    expect((await absolute('proxy.example:81')).json?.data?.files?.[0]?.link).toMatch(
      /^http:\/\/proxy\.example:81\/files\//,
    );
    for (const authority of ['user@evil.example', '', 'a:b', ':80'])
      expect((await absolute(authority)).status, authority).toBe(400);
  });

  it('A link to a file expires to the second: then the response is 403, the request is 404, and the files are deleted', async () => {
    const id = await begin({ linkTtlSeconds: 100 });
    const link = linkOf();
    expect((await send(running.port, link)).status).toBe(200);
    await running.stop();
    running = await area.start({ runAttempt: runHere, linkTtlSeconds: 100, clockOffsetSeconds: 101 });
    expect((await send(running.port, link)).json).toEqual(accessDenied);
    const report = await running.call(user, `/api/report/v1/file/get.json?idReportFile=${id}`);
    expect(report.json).toEqual({
      code: 404,
      message: 'Not Found',
      data: { error: { detail: 'File report request is not found' } },
    });
    await waitFor('the files are deleted', () => !existsSync(path.join(area.reportsDir, id)));
    expect(await running.create(user, query)).toBe(String(Number(id) + 1));
  });

  it('A browser gets a page with the next steps for a link without a file, and programs get the envelope', async () => {
    const id = await begin();
    const forged = linkOf().replace(/signature=.{4}/, 'signature=0000');
    const fileOf = (link: string): string =>
      path.join(area.reportsDir, id, 'parts', link.split('?')[0]?.split('/').at(-1) ?? '');
    rmSync(fileOf(linkOf(1)));
    truncateSync(fileOf(linkOf(0)), 20);
    const accept = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8';
    for (const [link, status, title] of [
      [forged, 403, 'This link is invalid or has expired'],
      [linkOf(1), 404, 'The file no longer exists'],
      [linkOf(0), 500, 'The file cannot be sent'],
    ] as const) {
      const answer = await send(running.port, link, { headers: { accept } });
      expect([answer.status, answer.headers['content-type']]).toEqual([status, 'text/html; charset=utf-8']);
      expect(answer.headers['content-security-policy']).toMatch(/^default-src 'none'; style-src 'sha256-/);
      expect(answer.headers['cache-control']).toBe('private, no-store');
      expect(answer.body.toString()).toContain(`<h1>${title}</h1>`);
      expect(answer.body.toString()).toContain(`href="../../console/exports/${id}"`);
      expect(answer.body.toString()).not.toContain('signature');
    }
    // The last is Java's default.
    for (const taken of [
      undefined,
      '*/*',
      'application/json',
      'text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2',
    ]) {
      const answer = await send(running.port, forged, { headers: taken === undefined ? {} : { accept: taken } });
      expect([answer.status, answer.headers['content-type']]).toEqual([403, 'application/json; charset=utf-8']);
      expect(answer.body.toString()).toBe(JSON.stringify(accessDenied));
    }
  });

  it('Links survive a rotation of the key and a restart of the service', async () => {
    const id = await begin();
    const before = linkOf();
    const { kid } = await rotateSigningKey(area.keysDir, { nowMs: () => Date.now() });
    await waitFor('links are signed with the new key', async () => {
      data = await running.waitForEnd(user, id);
      return linkOf().includes(`kid=${kid}`);
    });
    await running.stop();
    running = await area.start();
    for (const link of [before, linkOf()]) expect((await send(running.port, link)).status).toBe(200);
  });

  it('Links changed in any character of their query answer 403', async () => {
    await begin();
    const link = linkOf();
    for (let at = link.indexOf('?'); at < link.length; at += 1) {
      const changed = link.slice(0, at) + (link[at] === '0' ? '1' : '0') + link.slice(at + 1);
      expect((await send(running.port, changed)).json).toEqual(accessDenied);
    }
    for (const target of [
      '/files/',
      '/files/1',
      '/files/1/job.json',
      '/files/1/..%2fjob.json',
      '/files/%2e%2e/1/job.json',
      `${link}&x=1`,
      `${link}&expires=1`,
      link.replace('/files/', '/files//'),
    ]) {
      expect((await send(running.port, target)).status, target).toBe(403);
    }
  });

  it('Links do not lead out of the reports by a symbolic link in the place of a file', async () => {
    const id = await begin();
    const file = path.join(area.reportsDir, id, 'parts', linkOf().split('?')[0]?.split('/').at(-1) ?? '');
    rmSync(file);
    symlinkSync('/etc/passwd', file);
    expect((await send(running.port, linkOf())).status).toBe(404);
    expect((await send(running.port, targetOf(data.archive?.link ?? ''))).status).toBe(500);
  });

  it('Links have the public address when one is set', async () => {
    await begin({ publicUrl: 'https://export.example.com/tributary' });
    expect(data.files?.[0]?.link.startsWith('https://export.example.com/tributary/files/')).toBe(true);
  });
});
