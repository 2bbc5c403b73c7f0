import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { ApiError, createCalls, type Operation } from '../../../src/sdk/client.ts';

const operation: Operation = {
  verb: 'get',
  path: '/things',
  area: 'export',
  signs: 'user',
  sends: 'nothing',
  answers: 'json',
  headers: [],
};

interface Asked {
  readonly line: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** Starts a server that records requests, and responds as a test specifies. */
async function startServer(answer: (response: ServerResponse) => void = (response) => response.end('{"done":true}')) {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      asked.push({ line: `${request.method} ${request.url}`, headers: request.headers, body });
      answer(response);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const options = { importUrl: url, exportUrl: `${url}/`, token: 'the token', idUser: '7', secret: 's:é' };
  const call = (more: Partial<Operation>, given = {}, how = {}): Promise<unknown> =>
    createCalls({ thing: { ...operation, ...more } }, options)['thing']?.(given, how) ?? Promise.resolve();
  return { asked, call };
}

test('Arguments go into path, query and headers, each member of a set separately', async () => {
  const { asked, call } = await startServer();
  const path = '/files/{id}/{name}';
  const given = {
    id: '../a b',
    name: 'ü?',
    set: ['a,b', 'c&d'],
    none: undefined,
    filter: { 'params[level]': ['3', '4'] },
    limit: 5,
    Range: 'bytes=1-',
  };
  expect(await call({ path, headers: ['Range'] }, given)).toEqual({ done: true });
  expect(asked[0]?.line).toBe(
    'GET /files/..%2Fa%20b/%C3%BC%3F?set=a%2Cb&set=c%26d&params%5Blevel%5D=3&params%5Blevel%5D=4&limit=5',
  );
  expect(asked[0]?.headers['range']).toBe('bytes=1-');
});

test('A form has its arguments as its body, and an import has its body as JSON', async () => {
  const { asked, call } = await startServer();
  await call({ verb: 'post', sends: 'form' }, { event: 'logins', selectors: ['a', 'b'] });
  await call({ verb: 'post', area: 'import', sends: 'json', signs: 'token' }, { idApp: 1, body: [{ a: 'ü' }] });
  expect(asked.map(({ line, body }) => [line, body])).toEqual([
    ['POST /things', 'event=logins&selectors=a&selectors=b'],
    ['POST /things?idApp=1', '[{"a":"ü"}]'],
  ]);
});

test('A call has the credentials of its operation, and no others', async () => {
  const { asked, call } = await startServer();
  for (const signs of ['token', 'user', 'nobody'] as const) await call({ signs });
  const user = `Basic ${Buffer.from('7:s:é').toString('base64')}`;
  expect(asked.map(({ headers }) => headers.authorization)).toEqual(['the token', user, undefined]);
});

test('An unsuccessful response is an error with the status, the body and the time to wait', async () => {
  const { call } = await startServer((response) =>
    response
      .writeHead(429, { 'retry-after': '5', 'x-error-detail': 'asked too often' })
      .end('{"error":"Too Many Requests"}'),
  );
  const error = await call({}).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({
    operation: 'thing',
    status: 429,
    answer: { error: 'Too Many Requests' },
    detail: 'asked too often',
    message: 'thing failed with status 429: asked too often',
    retryAfterSeconds: 5,
  });
});

test('A response that is not JSON is returned unchanged, and the text of a proxy is an error like any other', async () => {
  const whole = await startServer((response) => response.end('a,b\n'));
  expect(await ((await whole.call({ answers: 'response' })) as Response).text()).toBe('a,b\n');
  const proxy = await startServer((response) => response.writeHead(502).end('<h1>Bad Gateway</h1>'));
  await expect(proxy.call({})).rejects.toMatchObject({ status: 502, answer: '<h1>Bad Gateway</h1>' });
});

test('A call ends when its signal aborts', async () => {
  const { call } = await startServer(() => undefined);
  const stop = new AbortController();
  const calling = call({}, {}, { signal: stop.signal });
  stop.abort();
  await expect(calling).rejects.toThrow(/abort/i);
});
