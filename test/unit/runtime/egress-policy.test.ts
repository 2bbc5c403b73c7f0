import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { postToUntrustedUrl } from '../../../src/runtime/http/post-untrusted.ts';
import { createEgressPolicy, type EgressPolicy } from '../../../src/runtime/http/egress-policy.ts';

interface Address {
  readonly address: string;
  readonly family: number;
}

/** What the name server answers, one answer after the other. */
const { answers, asked } = vi.hoisted(() => ({ answers: [] as Address[][], asked: [] as string[] }));

vi.mock('node:dns', async (load) => ({
  ...(await load<object>()),
  lookup(host: string, _options: unknown, done: (error: null, addresses: Address[]) => void) {
    asked.push(host);
    if (host.startsWith('dead.')) return;
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    setImmediate(() => done(null, answer ?? []));
  },
}));

const at = (address: string): Address => ({ address, family: address.includes(':') ? 6 : 4 });

/** Two servers on one port, at two addresses of this machine: who was connected to. */
async function startReceivers() {
  const got: string[] = [];
  let port = 0;
  for (const address of ['127.0.0.1', '127.0.0.2']) {
    const server = createServer((request, response) => {
      got.push(`${address} ${request.headers.host ?? ''}`);
      response.writeHead(200).end();
    }).listen(port, address);
    await once(server, 'listening');
    onTestFinished(() => {
      server.close();
      server.closeAllConnections();
    });
    ({ port } = server.address() as AddressInfo);
  }
  const rules = createEgressPolicy(['127.0.0.1']) as EgressPolicy;
  const stopping = new AbortController();
  const post = (host = 'hooks.example.com', owner = '1') =>
    postToUntrustedUrl(
      {
        url: new URL(`http://${host}:${port}/`),
        owner,
        headers: {},
        body: '{}',
        timeoutMs: 2000,
        signal: stopping.signal,
      },
      rules,
    );
  return { got, port, post, stopping };
}

beforeEach(() => {
  answers.length = 0;
  asked.length = 0;
});

test('A name is looked up once for a message, and the checked address is the one that is connected to', async () => {
  const { got, port, post } = await startReceivers();
  answers.push([at('127.0.0.1')], [at('127.0.0.2')]);
  expect(await post()).toBe(200);
  expect(asked).toEqual(['hooks.example.com']);
  await expect(post()).rejects.toThrow('not at a public address (127.0.0.2)');
  expect(got).toEqual([`127.0.0.1 hooks.example.com:${port}`]);
});

test.each([
  ['behind one that is allowed', [at('127.0.0.1'), at('127.0.0.2')]],
  ['before one that is allowed', [at('127.0.0.2'), at('127.0.0.1')]],
  ['in the form of another version', [at('::ffff:127.0.0.2'), at('127.0.0.1')]],
  ['without any address', []],
])('A name with a denied or missing address is not connected to: %s', async (_where, answer) => {
  const { got, post } = await startReceivers();
  answers.push(answer);
  await expect(post()).rejects.toThrow('is not at a public address');
  expect(got).toEqual([]);
});

test('A name whose name server says nothing is looked up once at a time, and keeps no other owner waiting', async () => {
  const { post, stopping } = await startReceivers();
  answers.push([at('127.0.0.1')]);
  const dead = Array.from({ length: 5 }, () => post('dead.example.com', 'owner of the dead'));
  const next = post('hooks.example.com', 'owner of the dead');
  const ends = Promise.allSettled([...dead, next]);
  expect(await post('hooks.example.com', 'another')).toBe(200);
  expect(asked).toEqual(['dead.example.com', 'hooks.example.com']);
  stopping.abort();
  expect((await ends).map(({ status }) => status)).toEqual(Array.from({ length: 6 }, () => 'rejected'));
});
