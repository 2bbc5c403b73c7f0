import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createExportArea, send, targetOf, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { waitFor } from '../../helpers/wait.ts';

const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const maxConnections = 30;
/** Far more bytes than the buffers of a connection hold. */
const events: FixtureEvent[] = Array.from({ length: 4000 }, (_, index) => ({
  event_id: `e${index}`,
  kind: 'custom_event',
  id_app: 7,
  event_time: time,
  available_at: time,
  custom_user_id: 'x'.repeat(5000),
  custom_event_name: 'n',
}));

describe('a connection to the export area', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;
  let link: string;

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    user = await area.addUser({});
    await writeLake(area.tableDir, [events]);
    running = await area.start({
      singleFileMaxBytes: 1024 ** 3,
      limits: {
        maxConnections,
        headersTimeoutMs: 300,
        requestTimeoutMs: 600,
        checkIntervalMs: 50,
        stalledMs: 500,
        keepAliveMs: 400,
      },
    });
    const id = await running.create(
      user,
      'event=customEvents&selectors=eventId,customUserId&dateFrom=2025-05-01&dateTo=2025-05-31',
    );
    link = targetOf((await running.waitForEnd(user, id)).files?.[0]?.link ?? '');
  });
  afterAll(() => running.stop());

  function open(text: string): { readonly socket: Socket; text(): string } {
    const socket = connect(running.port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    let received = '';
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => void (received += chunk.toString('latin1').slice(0, 1000)));
    socket.write(text);
    return { socket, text: () => received };
  }

  const ask = (): Promise<number> =>
    send(running.port, '/api/dictionary/v1/rooted.json').then(
      (answer) => answer.status,
      () => 0,
    );

  it.each([
    ['says nothing', '', ''],
    ['never finishes its head', 'GET / HTTP/1.1\r\nX: ', 'HTTP/1.1 400 Bad Request'],
    [
      'never finishes its body',
      'POST /api/raw/v1/export/create.json HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nevent=',
      '',
    ],
    [
      'never ends its chunks',
      'POST /api/raw/v1/export/create.json HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n',
      '',
    ],
    [
      'has had its answer and asks for nothing more',
      'GET /api/dictionary/v1/rooted.json HTTP/1.1\r\nHost: a\r\n\r\n',
      'HTTP/1.1 200 OK',
    ],
  ])('A connection that %s is closed', async (_, text, begin) => {
    const one = open(text);
    await waitFor('the connection is closed', () => one.socket.destroyed || one.socket.closed);
    expect(one.text().slice(0, begin.length)).toBe(begin);
  });

  it('A connection over which a download makes no progress is closed, and a slow one is not', async () => {
    const standing = open(`GET ${link} HTTP/1.1\r\nHost: a\r\n\r\n`);
    standing.socket.pause();
    const slow = open(`GET ${link} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
    let bytes = 0;
    slow.socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      slow.socket.pause();
      setTimeout(() => slow.socket.resume(), 5);
    });
    const whole = await send(running.port, link);
    await waitFor('the slow download has ended', () => slow.socket.destroyed || slow.socket.closed);
    expect(bytes).toBeGreaterThan(whole.body.length);
    standing.socket.resume();
    let rest = 0;
    standing.socket.on('data', (chunk: Buffer) => void (rest += chunk.length));
    await waitFor('the standing download is closed', () => standing.socket.destroyed || standing.socket.closed);
    expect(rest).toBeLessThan(whole.body.length);
  }, 60_000);

  it('A connection beyond the limit is closed at once, and a new one is accepted after others have closed', async () => {
    const sockets = Array.from({ length: maxConnections * 2 }, () => open('').socket);
    await waitFor(
      'those beyond the limit are closed',
      () => sockets.filter((socket) => socket.destroyed).length >= maxConnections,
    );
    for (const socket of sockets) socket.destroy();
    await waitFor('a connection is accepted again', async () => (await ask()) === 200);
    expect(await ask()).toBe(200);
  });

  it('Every response has headers that keep a browser from guessing its type', async () => {
    for (const target of [
      '/api/dictionary/v1/rooted.json',
      '/api/report/v1/file/list.json',
      '/nothing',
      '/%',
      '/api/%ff',
      link,
      link.slice(0, -1),
    ]) {
      expect((await send(running.port, target)).headers, target).toMatchObject({ 'x-content-type-options': 'nosniff' });
    }
    expect((await send(running.port, link)).headers).toMatchObject({
      'cache-control': 'private, no-store',
      'content-disposition': expect.stringMatching(/^attachment; filename="[\w.]+"$/) as string,
    });
  });
});
