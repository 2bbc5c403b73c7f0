import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import path from 'node:path';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { renewOperatorToken } from '../../../src/access/secrets.ts';
import { dataPaths } from '../../../src/config.ts';
import { addLoadRoute } from '../../../src/health/load-routes.ts';
import { startOpsServer } from '../../../src/health/ops-server.ts';
import { testFolder } from '../../helpers/folder.ts';
import { addTestApp } from '../../helpers/service-access.ts';

const entry = path.resolve(import.meta.dirname, '../../../dist/main.js');
const file = 'eventId,tsEvent,idApp,idCampaign\na,1750000000,1,66\nb,1750000001,1,67\n';
let dataDir: string;

beforeEach(async () => {
  dataDir = path.join(testFolder(), 'data');
  await addTestApp(dataDir);
});

/** Runs the command as the route does, whose end of the pipes closes with a word that the file was whole, or without. */
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
  const authorization = `Bearer ${await renewOperatorToken(keysDir)}`;
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
  it('A file whose sender dies before it has said that it is whole loads nothing, however whole its rows are', async () => {
    expect(await runCommand(false)).toEqual([
      1,
      { code: 'file_damaged', error: expect.stringContaining('the input is truncated') as string },
    ]);
    expect(await runCommand(true)).toMatchObject([0, { rows: 2, stored: 2 }]);
  });
});

describe('the route of loads', () => {
  it('What is no fault of the file or the query is answered 500 with Retry-After', async () => {
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

  it('A text for the client names no path of the service', async () => {
    const { url, headers } = await open(dataDir);
    for (const map of ['xx', '{"a":1}', '[]']) {
      const response = await fetch(`${url}?map=${encodeURIComponent(map)}`, { method: 'POST', headers, body: file });
      const { error } = (await response.json()) as { readonly error: string };
      expect([response.status, error]).toEqual([400, expect.stringMatching(/^cannot use map: [^/]*$/)]);
    }
    // A value of the client's own that only begins like a folder of the service stays.
    const own = `${dataDir}base`;
    const refused = await fetch(`${url}?app=${encodeURIComponent(own)}`, { method: 'POST', headers, body: file });
    expect(await refused.json()).toMatchObject({ error: expect.stringContaining(own) as string });
    // A command that ends before it can answer says why in its log.
    mkdirSync(path.join(dataDir, 'datasets', 'astray'), { recursive: true });
    const ended = await fetch(url, { method: 'POST', headers, body: file });
    const { error } = (await ended.json()) as { readonly error: string };
    expect([ended.status, error]).toEqual([500, expect.stringContaining('must be in pipelines') as string]);
    expect(error).not.toContain(dataDir);
  });

  it('A load that is under way is not ended by strangers who take all other places', async () => {
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

  it('A command that refuses early says why, however much of the body is still to come', async () => {
    const { url, headers } = await open(dataDir);
    const body = file.repeat(200_000);
    const response = await fetch(`${url}?maxBad=many`, { method: 'POST', headers, body });
    expect([response.status, await response.json()]).toMatchObject([400, { code: 'usage' }]);
  });

  it('A body that comes faster than the command takes it leaves no listener behind each piece that had to wait', async () => {
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

  it('A client that falls silent in its body is given up, and others may load', async () => {
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
