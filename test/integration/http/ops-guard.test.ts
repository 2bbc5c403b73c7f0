import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startOpsServer } from '../../../src/ops/ops-server.ts';
import { addLoadRoute } from '../../../src/ops/load-routes.ts';
import { dataPaths } from '../../../src/config.ts';
import { send } from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';

async function startOps(names: readonly string[] = []): Promise<number> {
  const dataDir = testFolder();
  const server = await startOpsServer('127.0.0.1', 0, () => undefined, {
    disks: { folders: {}, reserveBytes: 0 },
    names,
    addRoutes: addLoadRoute({ entry: '', dataDir, keysDir: dataPaths(dataDir).keys }),
  });
  onTestFinished(() => server.stop());
  return Number(new URL(server.url).port);
}

/** Opens connections that send only the start of a request. */
async function openSlow(port: number, count: number, head: string): Promise<Socket[]> {
  const sockets = Array.from({ length: count }, () => connect({ port, host: '127.0.0.1', allowHalfOpen: true }));
  for (const socket of sockets) {
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => undefined);
    socket.write(head);
  }
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  return sockets;
}

const statusOf = async (port: number, target: string, headers = {}): Promise<number> =>
  (await send(port, target, { headers })).status;

describe("clients of the operator's port", () => {
  it('A rejected load gets a response, and its connection closes before the end of the body', async () => {
    const port = await startOps();
    const head = 'POST /api/load/v1/installs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx';
    const [socket] = await openSlow(port, 1, head);
    let answer = '';
    socket?.on('data', (piece: Buffer) => (answer += piece.toString()));
    const drip = setInterval(() => socket?.write('y'), 50);
    onTestFinished(() => clearInterval(drip));
    await new Promise((resolve) => socket?.once('close', resolve));
    expect(answer).toMatch(/^HTTP\/1\.1 401 .*\r\nconnection: close\r\n/is);
  });

  it.each([
    ['slow bodies', 'POST /api/load/v1/installs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx'],
    [
      'slow bodies of another kind',
      'POST /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{',
    ],
    ['half a head', 'GET /readyz HTTP/1.1\r\nHost: local'],
    ['nothing', ''],
    ['metrics that are not read', 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n'],
  ])('Health and metrics respond during 130 connections with %s', async (_what, head) => {
    const port = await startOps();
    await openSlow(port, 130, head);
    expect([
      await statusOf(port, '/healthz'),
      await statusOf(port, '/readyz'),
      await statusOf(port, '/metrics'),
    ]).toEqual([200, 503, 200]);
  });

  it.each([
    'evil.example',
    'evil.example:8082',
    'localhost.evil.example',
    'rebound',
    'tributary.example.evil',
    '1.2.3.4.5',
    '',
  ])('Every route rejects a request whose Host is %j', async (host) => {
    const port = await startOps(['tributary.example']);
    const expected = host === '' ? [503, 200, 401] : [403, 403, 403];
    const load = await send(port, '/api/load/v1/installs', { method: 'POST', headers: { host } });
    const statuses = [
      await statusOf(port, '/readyz', { host }),
      await statusOf(port, '/metrics', { host }),
      load.status,
    ];
    expect(statuses).toEqual(expected);
  });

  it.each([
    'localhost:1',
    'LOCALHOST',
    '127.0.0.1',
    '[::1]:8082',
    '10.1.2.3:80',
    'tributary.example',
    'Tributary.Example.:80',
  ])('A request whose Host is %s is accepted', async (host) => {
    expect(await statusOf(await startOps(['tributary.example']), '/metrics', { host })).toBe(200);
  });
});
