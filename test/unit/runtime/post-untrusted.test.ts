import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { expect, it, onTestFinished, test } from 'vitest';
import { postToUntrustedUrl, validateUrl } from '../../../src/runtime/http/post-untrusted.ts';
import { createEgressPolicy, type EgressPolicy } from '../../../src/runtime/http/egress-policy.ts';

function rulesOf(...entries: string[]): EgressPolicy {
  const rules = createEgressPolicy(entries);
  if (typeof rules === 'string') throw new Error(`bad entry ${rules}`);
  return rules;
}

it.each([
  '0.0.0.0',
  '10.1.2.3',
  '100.64.0.1',
  '127.0.0.1',
  '169.254.169.254',
  '172.31.255.255',
  '192.168.1.1',
  '198.18.0.1',
  '224.0.0.1',
  '255.255.255.255',
  '::',
  '::1',
  '::ffff:127.0.0.1',
  '::ffff:8.8.8.8',
  '64:ff9b::7f00:1',
  'fc00::1',
  'fe80::1',
  'ff02::1',
  '2001:db8::1',
  '2002:7f00:1::',
  '2001::1',
  '100::1',
  'no address',
])('An address that is not public may not be sent to: %s', (address) => {
  expect(rulesOf().allowsAddress(address)).toBe(false);
});

it.each(['8.8.8.8', '1.1.1.1', '172.32.0.1', '2606:4700::1111', '2a00:1450:4001::200e'])(
  'A public address may be sent to: %s',
  (address) => {
    expect(rulesOf().allowsAddress(address)).toBe(true);
  },
);

it.each([
  ['https://example.com/x', [], undefined],
  ['https://8.8.8.8/x', [], undefined],
  ['ftp://example.com/', [], 'it must begin with'],
  ['https://user:pass@example.com/', [], 'a user or password'],
  ['http://127.0.0.1/', [], 'not a public address'],
  ['http://0x7f.1/', [], 'not a public address'],
  ['http://2130706433/', [], 'not a public address'],
  ['http://[::1]/', [], 'not a public address'],
  ['http://[::ffff:127.0.0.1]/', [], 'not a public address'],
  ['https://example.com/', ['hooks.example.com'], 'does not allow'],
  ['https://hooks.example.com/', ['hooks.example.com'], undefined],
  ['https://HOOKS.example.com./', ['hooks.example.com'], undefined],
  ['https://a.b.example.com/', ['*.example.com'], undefined],
  ['https://example.com.evil.org/', ['*.example.com'], 'does not allow'],
  ['https://8.8.8.8/', ['hooks.example.com'], 'does not allow'],
  ['http://10.1.2.3/', ['10.1.0.0/16'], undefined],
  ['http://10.2.2.3/', ['10.1.0.0/16'], 'not a public address'],
])('An address is checked by the list of the operator: %s with %j', (url, entries, refusal) => {
  const judged = validateUrl(new URL(url), rulesOf(...entries));
  expect(refusal === undefined ? judged : (judged ?? '').includes(refusal)).toBe(
    refusal === undefined ? undefined : true,
  );
});

it.each(['10.0.0.0/33', 'fe80::1%eth0/64', 'fe80::1%eth0', 'a b', 'http://x', '10.0.0.0/8/8', '*', ''])(
  'An entry of the list that is neither a network nor a name is reported: %j',
  (entry) => {
    expect(createEgressPolicy(['example.com', entry])).toBe(entry);
  },
);

/** A local server with given responses, which keeps its requests. */
async function startReceiver(
  answer: (request: IncomingMessage) => { status: number; headers?: Record<string, string> },
) {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      bodies.push(body);
      const { status, headers } = answer(request);
      if (status > 0) response.writeHead(status, headers).end('thanks');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  return { port, bodies };
}

const post = (url: string, timeoutMs = 2000) => ({
  url: new URL(url),
  owner: '1',
  headers: { 'content-type': 'application/json' },
  body: '{"zoë":1}',
  timeoutMs,
  signal: new AbortController().signal,
});

test('A message gets to an allowed address, and the status is returned', async () => {
  const { port, bodies } = await startReceiver(() => ({ status: 204 }));
  expect(await postToUntrustedUrl(post(`http://127.0.0.1:${port}/hook`), rulesOf('127.0.0.0/8'))).toBe(204);
  expect(bodies).toEqual(['{"zoë":1}']);
});

test('A name that leads to an address of this network is not connected to', async () => {
  const { port, bodies } = await startReceiver(() => ({ status: 200 }));
  await expect(postToUntrustedUrl(post(`http://localhost:${port}/`), rulesOf())).rejects.toThrow(
    'is not at a public address',
  );
  await expect(postToUntrustedUrl(post(`http://localhost:${port}/`), rulesOf('localhost'))).rejects.toThrow(
    'is not at a public address',
  );
  expect(bodies).toEqual([]);
  expect(await postToUntrustedUrl(post(`http://localhost:${port}/`), rulesOf('localhost', '127.0.0.1', '::1'))).toBe(
    200,
  );
});

test('A redirect is not followed', async () => {
  const target = await startReceiver(() => ({ status: 200 }));
  const { port } = await startReceiver(() => ({
    status: 307,
    headers: { location: `http://127.0.0.1:${target.port}/` },
  }));
  expect(await postToUntrustedUrl(post(`http://127.0.0.1:${port}/`), rulesOf('127.0.0.1'))).toBe(307);
  expect(target.bodies).toEqual([]);
});

test('A receiver that sends nothing, or does not exist, is an error in time', async () => {
  const { port } = await startReceiver(() => ({ status: 0 }));
  await expect(postToUntrustedUrl(post(`http://127.0.0.1:${port}/`, 100), rulesOf('127.0.0.1'))).rejects.toThrow(
    'no response',
  );
  await expect(postToUntrustedUrl(post('http://127.0.0.1:1/'), rulesOf('127.0.0.1'))).rejects.toThrow('ECONNREFUSED');
});

test.each([
  ['switches protocols', 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n', 101],
  ['announces more, and closes', 'HTTP/1.1 100 Continue\r\n\r\n', 'failed'],
  ['closes in the midst of its head', 'HTTP/1.1 200 OK\r\nContent-', 'failed'],
])('A receiver that %s delays no caller', async (_what, answer, end) => {
  const server = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => (end === 101 ? socket.write(answer) : socket.end(answer)));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const sent = postToUntrustedUrl(post(`http://127.0.0.1:${port}/`), rulesOf('127.0.0.1')).catch(() => 'failed');
  expect(await sent).toBe(end);
});

test('An address with a zone is never connected to, regardless of the allowed list', () => {
  const rules = rulesOf('2606:4700::/32', 'fe80::/10');
  expect(rules.allowsAddress('2606:4700::1111')).toBe(true);
  expect(rules.allowsAddress('fe80::1')).toBe(true);
  expect(rules.allowsAddress('2606:4700::1111%eth0')).toBe(false);
  expect(rules.allowsAddress('fe80::1%eth0')).toBe(false);
});
