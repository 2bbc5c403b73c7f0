import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import path from 'node:path';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { rotateOperatorToken } from '../../../src/access/secrets.ts';
import { dataPaths } from '../../../src/config.ts';
import { addLoadRoute } from '../../../src/ops/load-routes.ts';
import { startOpsServer } from '../../../src/ops/ops-server.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { addTestApp } from '../../helpers/service-access.ts';

beforeEach(oneTestIn(3));

const entry = path.resolve(import.meta.dirname, '../../../dist/main.js');
const file = 'eventId,tsEvent,idApp,idCampaign\na,1750000000,1,66\nb,1750000001,1,67\n';
let dataDir: string;

beforeEach(async () => {
  dataDir = path.join(testFolder(), 'data');
  await addTestApp(dataDir);
});

/** Runs the command as the route does, which confirms a complete file by the second pipe, or does not. */
async function runCommand(isWhole: boolean): Promise<[number, unknown]> {
  const words = [entry, 'load', 'installs', '-', '--by-http', '--data', dataDir];
  const child = spawn(process.execPath, words, { stdio: ['pipe', 'pipe', 'inherit', 'pipe'] });
  const ended = once(child, 'exit') as Promise<[number]>;
  child.stdin?.end(file);
  (child.stdio[3] as Writable).end(isWhole ? '.' : '');
  const output = child.stdout === null ? '' : await text(child.stdout);
  return [(await ended)[0], JSON.parse(output)];
}

interface Opened {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Serves the route alone, for a data folder. */
async function open(folder: string, idleMs?: number): Promise<Opened> {
  const keysDir = dataPaths(dataDir).keys;
  const authorization = `Bearer ${await rotateOperatorToken(keysDir)}`;
  const route = addLoadRoute({ entry, dataDir: folder, keysDir, ...(idleMs === undefined ? {} : { idleMs }) });
  const server = await startOpsServer('127.0.0.1', 0, () => undefined, {
    disks: { folders: {}, reserveBytes: 0 },
    names: [],
    addRoutes: route,
  });
  onTestFinished(() => server.stop());
  return { url: `${server.url}/api/load/v1/installs`, headers: { authorization, 'content-type': 'text/csv' } };
}

describe('the command that a load by HTTP runs', () => {
  it('A file whose sender dies before the confirmation loads nothing, even if its rows are complete', async () => {
    expect(await runCommand(false)).toEqual([
      1,
      { code: 'file_damaged', error: expect.stringContaining('the input is truncated') as string },
    ]);
    expect(await runCommand(true)).toMatchObject([0, { rows: 2, stored: 2 }]);
  });
});

describe('the route of loads', () => {
  it('Errors other than those of the file or the query get 500 with Retry-After', async () => {
    const { url, headers } = await open(path.join(dataDir, 'nowhere'));
    const response = await fetch(url, { method: 'POST', headers, body: file });
    expect([response.status, response.headers.get('retry-after')]).toEqual([500, '5']);
    expect(await response.json()).toMatchObject({
      code: 'not_found',
      error: expect.not.stringContaining('/') as string,
    });
    const wrong = await fetch(`${url}?maxBad=many`, { method: 'POST', headers, body: file });
    expect([wrong.status, wrong.headers.get('retry-after')]).toEqual([400, null]);
  });

  it('A message for the client has no path of the service', async () => {
    const { url, headers } = await open(dataDir);
    for (const map of ['xx', '{"a":1}', '[]']) {
      const response = await fetch(`${url}?map=${encodeURIComponent(map)}`, { method: 'POST', headers, body: file });
      const { error } = (await response.json()) as { readonly error: string };
      expect([response.status, error]).toEqual([400, expect.stringMatching(/^cannot use map: [^/]*$/)]);
    }
    // A client's value that only starts like a folder of the service stays.
    const own = `${dataDir}base`;
    const refused = await fetch(`${url}?app=${encodeURIComponent(own)}`, { method: 'POST', headers, body: file });
    expect(await refused.json()).toMatchObject({ error: expect.stringContaining(own) as string });
    // A command that ends early reports the error in its log.
    mkdirSync(path.join(dataDir, 'datasets', 'astray'), { recursive: true });
    const ended = await fetch(url, { method: 'POST', headers, body: file });
    const { error } = (await ended.json()) as { readonly error: string };
    expect([ended.status, error]).toEqual([500, expect.stringContaining('must be in pipelines') as string]);
    expect(error).not.toContain(dataDir);
  });

  it('A load in progress is not ended by clients that take all other connections', async () => {
    const { url, headers } = await open(dataDir);
    const load = request(url, {
      method: 'POST',
      headers: { ...headers, 'content-length': file.length, expect: '100-continue' },
    });
    const answer = once(load, 'response') as Promise<[IncomingMessage]>;
    load.flushHeaders();
    await once(load, 'continue');
    load.write(file.slice(0, 10));
    const { port } = new URL(url);
    const loadToo = async (): Promise<number> => (await fetch(url, { method: 'POST', headers, body: file })).status;
    await expect.poll(loadToo).toBe(409);
    const strangers = Array.from({ length: 130 }, () => connect({ port: Number(port), host: '127.0.0.1' }));
    await Promise.all(strangers.map((socket) => once(socket, 'connect')));
    onTestFinished(() => strangers.forEach((socket) => socket.destroy()));
    load.end(file.slice(10));
    const [response] = await answer;
    expect([response.statusCode, JSON.parse(await text(response))]).toMatchObject([200, { rows: 2 }]);
  });

  it('A command that fails early returns its error before the end of the body', async () => {
    const { url, headers } = await open(dataDir);
    const body = file.repeat(200_000);
    const response = await fetch(`${url}?maxBad=many`, { method: 'POST', headers, body });
    expect([response.status, await response.json()]).toMatchObject([400, { code: 'usage' }]);
  });

  it('A body that is faster than the command leaves no stream listeners behind', async () => {
    const { url, headers } = await open(dataDir);
    const warnings: Error[] = [];
    const note = (warning: Error): void => void warnings.push(warning);
    process.on('warning', note);
    onTestFinished(() => void process.off('warning', note));
    const body = `${file}${'\n'.repeat(32 * 1024 * 1024)}`;
    const response = await fetch(url, { method: 'POST', headers, body });
    expect([response.status, await response.json()]).toMatchObject([200, { rows: 2, stored: 2 }]);
    expect(warnings).toEqual([]);
  });

  it('A client that stalls in its body is dropped, and others may load', async () => {
    const { url, headers } = await open(dataDir, 300);
    const silent: ClientRequest = request(url, { method: 'POST', headers: { ...headers, 'content-length': '1000' } });
    silent.on('error', () => undefined);
    const gone = new Promise((resolve) => silent.once('close', resolve));
    silent.write(file);
    await gone;
    const load = async (): Promise<number> => (await fetch(url, { method: 'POST', headers, body: file })).status;
    await expect.poll(load, { timeout: 20_000, interval: 200 }).toBe(200);
  });
});
