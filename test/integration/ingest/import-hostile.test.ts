import { once } from 'node:events';
import { connect } from 'node:net';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../helpers/folder.ts';
import { startTestIngest, type TestIngest } from '../../helpers/ingest.ts';
import { waitFor } from '../../helpers/wait.ts';

const folder = temporaryFolder();
const logLines: string[] = [];
let service: TestIngest;
beforeAll(async () => {
  const logger = pino({ level: 'trace' }, { write: (line) => void logLines.push(line) });
  // Long enough for the good clients here: they share this process with the server, and the first of them loads what
  // fetch needs.
  service = await startTestIngest(folder, {
    logger,
    limits: { headersTimeoutMs: 2000, requestTimeoutMs: 3000, checkIntervalMs: 50, maxConnections: 60 },
  });
});
afterAll(() => service.stop());

/** Writes bytes to a socket and reads until the server closes it, or an answer has come and `keep` is not set. */
async function talk(...pieces: string[]): Promise<string> {
  const socket = connect(service.ingest.port, '127.0.0.1');
  let text = '';
  socket.on('data', (chunk) => void (text += chunk.toString('latin1')));
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  for (const piece of pieces) {
    socket.write(piece, 'latin1');
    await new Promise((resolve) => setImmediate(resolve));
  }
  await waitFor('the server has answered and closed', () => socket.destroyed || socket.closed);
  return text;
}

const head = (headers: string): string =>
  `POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nAuthorization: ${service.tokens.web}\r\n${headers}\r\n`;
const event = '{"customUserId":"u"}';

/** Status and body of the answers in a text. */
function answers(text: string): string[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3}) [^]*?\r\n\r\n(\{[^}]*\})/g)].map((match) => `${match[1]} ${match[2]}`);
}

describe('malformed bytes', () => {
  it.each([
    ['no HTTP at all', 'hello\r\n\r\n'],
    ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    [
      'two lengths',
      'POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello',
    ],
    [
      'a length in addition to chunks',
      `POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    ],
    ['a negative length', 'POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\nhello'],
    [
      'a header with a bare line feed and a space in its name',
      'POST /v1/login/ HTTP/1.1\r\nHost: x\r\nContent Length : 5\n\r\nhello',
    ],
    ['headers without an end of reason', `POST /v1/login/ HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`],
    ['a path without an end of reason', `POST /v1/${'a'.repeat(20_000)} HTTP/1.1\r\nHost: x\r\n\r\n`],
  ])('Malformed bytes (%s) get 400 in the one form of error, and the connection is closed', async (_, bytes) => {
    expect(answers(await talk(bytes))).toEqual(['400 {"error":"Bad Request"}']);
    expect(await service.newLines()).toEqual([]);
  });

  it('Malformed bytes (a bad chunk after a good head) store nothing', async () => {
    expect(answers(await talk(head('Transfer-Encoding: chunked\r\n'), `14\r\n${event}\r\n`, 'zz\r\n'))).toEqual([
      '400 {"error":"Bad Request"}',
    ]);
    expect(await service.newLines()).toEqual([]);
  });

  it('Malformed bytes (a body of a coding that HTTP/1.1 does not have) get exactly one answer', async () => {
    expect(
      answers(await talk('POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nhello')),
    ).toHaveLength(1);
  });

  it('Malformed bytes (garbage behind a request that is being stored) get no response that could be taken for the response to that request', async () => {
    service.nats.signal('SIGSTOP');
    const talking = talk(`${head(`Content-Length: ${event.length}\r\n`)}${event}rubbish\r\n\r\n`);
    expect(answers(await talking)).toEqual([]);
    service.nats.signal('SIGCONT');
    await waitFor('the event is stored', async () => (await service.newLines()).length === 1);
  });

  it('Malformed bytes (a second request smuggled into the body of the first) stay part of that body', async () => {
    const smuggled = `${event}POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\n\r\n`;
    expect(answers(await talk(head(`Connection: close\r\nContent-Length: ${smuggled.length}\r\n`), smuggled))).toEqual([
      '400 {"error":"Bad json"}',
    ]);
    expect(await service.newLines()).toEqual([]);
  });
});

describe('a slow client', () => {
  it('A slow client that never finishes its headers is disconnected', async () => {
    expect(answers(await talk('POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nX-Slow: '))).toEqual([
      '400 {"error":"Bad Request"}',
    ]);
  });

  it('A slow client that never finishes its body is disconnected, and nothing is stored', async () => {
    await talk(head('Content-Length: 20\r\n'), event.slice(0, 10));
    expect(await service.newLines()).toEqual([]);
  });

  it('A body whose rest arrives after it was rejected as too slow is not stored', async () => {
    const socket = connect({ port: service.ingest.port, host: '127.0.0.1', allowHalfOpen: true });
    let text = '';
    socket.on('data', (chunk) => void (text += chunk.toString('latin1')));
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.write(head(`Content-Length: ${event.length}\r\n`) + event.slice(0, 10));
    await waitFor('it is refused', () => answers(text).length === 1);
    socket.end(event.slice(10));
    await once(socket, 'close');
    expect(answers(text)).toEqual(['400 {"error":"Bad Request"}']);
    expect(await service.post('web', 'login', { customUserId: 'next' })).toMatchObject({ status: 200 });
    expect(await service.newLines()).toMatchObject([{ custom_user_id: 'next' }]);
  });

  it('A client that disconnects in the middle of its body leaves nothing behind', async () => {
    const socket = connect(service.ingest.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write(head('Content-Length: 20\r\n') + event.slice(0, 10));
    socket.destroy();
    expect(await service.post('web', 'login', { customUserId: 'next' })).toMatchObject({ status: 200 });
    expect(await service.newLines()).toMatchObject([{ custom_user_id: 'next' }]);
  });

  it('Slow clients cannot keep others out: connections beyond the limit are closed', async () => {
    const sockets = Array.from({ length: 80 }, () =>
      connect(service.ingest.port, '127.0.0.1').on('error', () => undefined),
    );
    await waitFor(
      'connections beyond the limit are closed',
      () => sockets.filter((socket) => socket.destroyed).length >= 10,
    );
    for (const socket of sockets) socket.destroy();
    await waitFor('there is a free connection again', () =>
      service.post('web', 'login', { customUserId: 'u' }).then(
        (answer) => answer.status === 200,
        () => false,
      ),
    );
    expect(await service.newLines()).not.toEqual([]);
  });
});

describe('every answer', () => {
  it('Every response has headers that keep a browser from guessing its type', async () => {
    for (const [path, method] of [
      ['/v1/version', 'POST'],
      ['/v1/login/?idApp=1', 'POST'],
      ['/v1/nothing', 'GET'],
      ['/%', 'GET'],
      ['/v1/%ff', 'POST'],
    ] as const) {
      expect((await fetch(`${service.url}${path}`, { method })).headers.get('x-content-type-options'), path).toBe(
        'nosniff',
      );
    }
  });
});

describe('valid requests in unusual pieces', () => {
  it('A valid request is accepted byte by byte', async () => {
    const request = `${head(`Connection: close\r\nContent-Length: ${event.length}\r\n`)}${event}`;
    expect(answers(await talk(...Array.from(request)))).toEqual(['200 {"message":"Ok"}']);
    expect(await service.newLines()).toHaveLength(1);
  });

  it('Valid requests that arrive at once on one connection are answered in order', async () => {
    const one = `${head(`Content-Length: ${event.length}\r\n`)}${event}`;
    const last = `${head('Connection: close\r\nContent-Length: 1\r\n')}{`;
    expect(answers(await talk(one + one + one + last))).toEqual([
      ...Array.from({ length: 3 }, () => '200 {"message":"Ok"}'),
      '400 {"error":"Bad json"}',
    ]);
    expect(await service.newLines()).toHaveLength(3);
  });

  it('A valid request is accepted after the server has sent 100 Continue', async () => {
    const text = await talk(
      head(`Connection: close\r\nExpect: 100-continue\r\nContent-Length: ${event.length}\r\n`),
      event,
    );
    expect(text).toMatch(/^HTTP\/1\.1 100 Continue/);
    expect(text).toContain('{"message":"Ok"}');
    expect(await service.newLines()).toHaveLength(1);
  });
});

describe('the log', () => {
  it('The log has a line for a refusal, and no line that a client can forge', async () => {
    const forged = 'x"}\n{"level":"error","msg":"forged"';
    await service.post('mobile-b', 'customEvent', {
      customUserId: 'u',
      customEventName: 'e',
      customEventParams: { [forged]: 1 },
    });
    await service.post('web', 'login', { customUserId: 'u' }, { authorization: 'forged-token-value' });
    expect(
      logLines.every((line) => line.endsWith('\n') && (JSON.parse(line) as { msg: string }).msg !== 'forged'),
    ).toBe(true);
    expect(logLines.map((line) => JSON.parse(line) as object)).toContainEqual(
      expect.objectContaining({
        msg: 'request refused',
        reason: 'rules',
        method: 'customEvent',
        idApp: '2',
        requests: 1,
        reasons: ['rules: 1'],
      }),
    );
  });

  it('The log has no token, right or wrong', () => {
    const log = logLines.join('');
    expect([...Object.values(service.tokens), 'forged-token-value'].filter((token) => log.includes(token))).toEqual([]);
  });
});

describe('a service that stops', () => {
  it('A head that turns out to be faulty while the service stops is the last on its connection, and holds the stop up no longer', async () => {
    const stopping = await startTestIngest(`${folder}/stopping`);
    const socket = connect(stopping.ingest.port, '127.0.0.1');
    let text = '';
    socket.on('data', (chunk) => void (text += chunk.toString('latin1')));
    await once(socket, 'connect');
    socket.write('POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\n');
    // The server has read half a head once it has answered another connection.
    expect((await stopping.post('web', 'login', { customUserId: 'u' })).status).toBe(200);
    const closed = once(socket, 'close');
    const stopped = stopping.ingest.stop();
    socket.write('Host: y\r\n\r\n');
    await Promise.all([stopped, closed]);
    expect(answers(text)).toEqual(['400 {"error":"Bad Request"}']);
    expect(text.toLowerCase()).toContain('connection: close');
    await stopping.stop();
  });
});
