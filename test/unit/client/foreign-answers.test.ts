import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { downloadFile } from '../../../src/client/download.ts';
import { createExportArea, type ExportArea } from '../../../src/client/export-area.ts';
import { fetchExport } from '../../../src/client/export-output.ts';
import { createHttpClient, type HttpClient } from '../../../src/client/http-client.ts';
import { createImportArea } from '../../../src/client/import-area.ts';
import { testFolder } from '../../helpers/folder.ts';

const never = new AbortController().signal;
const silent = (): void => undefined;

/** Serves the responses of a test; returns the URL and a separate client. */
async function serve(answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const http: HttpClient = createHttpClient();
  onTestFinished(() => {
    http.close();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, http };
}

/** A response of a proxy. */
const page =
  (status: number, text: string, more: Readonly<Record<string, string>> = {}) =>
  (_request: IncomingMessage, response: ServerResponse): void =>
    void response.writeHead(status, more).end(text);

const areaOf = ({ url, http }: Awaited<ReturnType<typeof serve>>): ExportArea =>
  createExportArea(http, { url, idUser: '1', secret: 's' }, { signal: never, onWait: silent });
const create = (area: ExportArea) => area.call('/api/raw/v1/export/create.json', [['event', 'logins']], true);

const importKinds = ['postBatch', 'findKey', 'checkAccess'] as const;

describe('a proxy between a command and the service', () => {
  it.each([200, 400])(
    'A page of a proxy with status %i is not a response of the import: no event counts as stored or rejected',
    async (status) => {
      const { url, http } = await serve(page(status, '<h1>Sign in\u001b[2J</h1>'));
      const area = createImportArea(http, { url, idApp: 1, token: 't' });
      const calls = {
        postBatch: () => area.postBatch('loginBatch', '[]', 'k'),
        findKey: () => area.findKey('k'),
        checkAccess: () => area.checkAccess(),
      };
      for (const kind of importKinds) {
        const error: unknown = await calls[kind]().catch((caught: unknown) => caught);
        expect(error, kind).toMatchObject({ code: 'service_refused' });
        expect(String(error), kind).not.toContain('\u001b');
      }
    },
  );

  it('A rejected export request names the exports that fill the limit', async () => {
    const info = { exports: [{ idRawExport: '41' }, { idRawExport: '42' }] };
    const error = { detail: 'The maximum number of simultaneous requests is reached: 2.', info };
    const area = areaOf(await serve(page(400, JSON.stringify({ message: 'Bad Request', data: { error } }))));
    await expect(create(area)).rejects.toMatchObject({
      code: 'service_refused',
      hint: "Wait until one of these exports ends, or run 'tributary export cancel ID': 41, 42.",
    });
  });

  it('An export request is not repeated if its response was lost behind a gateway, and is if it was certainly not sent', async () => {
    let calls = 0;
    const lost = areaOf(
      await serve((...exchange) => {
        calls += 1;
        page(502, 'Bad gateway')(...exchange);
      }),
    );
    await expect(create(lost)).rejects.toMatchObject({
      code: 'service_away',
      hint: expect.stringContaining('may exist already') as string,
    });
    expect(calls).toBe(1);
    const full = areaOf(
      await serve((...exchange) => {
        calls += 1;
        if (calls === 2) page(503, '{"message":"Service Unavailable"}', { 'retry-after': '0' })(...exchange);
        else page(200, '{"code":200,"message":"OK","data":{"idRawExport":"1"}}')(...exchange);
      }),
    );
    expect(await create(full)).toEqual({ idRawExport: '1' });
    await expect(create(areaOf(await serve(page(200, '<html>'))))).rejects.toMatchObject({ code: 'service_refused' });
  });

  it('A download behind a proxy without range support restarts', async () => {
    const content = Buffer.from('a,b\n'.repeat(1000));
    const { url, http } = await serve((_request, response) => void response.writeHead(200).end(content));
    const folder = path.join(testFolder(), 'work');
    mkdirSync(folder);
    writeFileSync(path.join(folder, 'x.csv'), content.subarray(0, 100));
    const sha256 = createHash('sha256').update(content).digest('hex');
    const file = { name: 'x.csv', link: `${url}/x.csv`, rows: 1000, bytes: content.length, sha256 };
    let have = 0;
    const place = await downloadFile(file, folder, {
      http,
      signal: never,
      renew: async () => [],
      onBytes: (bytes) => void (have += bytes),
      onWait: silent,
    });
    expect(readFileSync(place).equals(content)).toBe(true);
    expect(have).toBe(content.length);
  });

  it('Parts of an unknown format are joined by the header information of the service', async () => {
    const parts = ['a\tb\n1\t2\n', 'a\tb\n3\t4\n'];
    const { url, http } = await serve((request, response) => {
      const part = /\/(\d)\.tsv$/.exec(request.url ?? '')?.[1];
      const files = parts.map((text, index) => ({
        link: `${url}/files/1/${index}.tsv`,
        rows: 1,
        bytes: text.length,
        sha256: createHash('sha256').update(text).digest('hex'),
      }));
      const answer = JSON.stringify({ code: 200, message: 'Ok', data: { status: 'Success!', files, hasHeader: true } });
      response.end(part === undefined ? answer : parts[Number(part)]);
    });
    const area = areaOf({ url, http });
    const output = path.join(testFolder(), 'out.txt');
    const report = await area.get('1');
    const options = { http, signal: never, renew: async () => [], onBytes: silent, onWait: silent };
    await fetchExport(report, output, () => [], options);
    expect(readFileSync(output, 'utf8')).toBe('a\tb\n1\t2\n3\t4\n');
    await fetchExport({ ...report, hasHeader: false }, output, () => [], options);
    expect(readFileSync(output, 'utf8')).toBe(parts.join(''));
  });
});
