import { once } from 'node:events';
import { createServer, request, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { onTestFinished } from 'vitest';

export interface S3Request {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface S3Answer {
  readonly status: number;
  readonly headers?: IncomingHttpHeaders;
  readonly body?: Buffer | string;
}

/** A fault of one request. `isDone`: the server does the work all the same. */
export interface S3Fault {
  readonly isDone: boolean;
  /** `cut`: the connection ends; `silence`: it stays; `late`: the server's answer after a delay. */
  readonly answer: S3Answer | 'cut' | 'silence' | 'late';
  readonly delayMs?: number;
}

export interface S3Proxy {
  readonly endpoint: string;
  /** Returns the fault of a request; none by default. */
  faultOf: (request: S3Request) => S3Fault | undefined;
}

/** Returns the answer of a server with an error. */
export function errorAnswer(status: number, code: string): S3Answer {
  const body = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`;
  return { status, headers: { 'content-type': 'application/xml' }, body };
}

/** Forwards requests to a server. */
export function forwardTo(endpoint: string): (asked: S3Request) => Promise<S3Answer> {
  const { hostname, port } = new URL(endpoint);
  return async ({ method, url, headers, body }) => {
    const outgoing = request({ hostname, port, method, path: url, headers });
    outgoing.end(body);
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
    const pieces: Buffer[] = [];
    for await (const piece of response) pieces.push(piece as Buffer);
    return { status: response.statusCode ?? 500, headers: response.headers, body: Buffer.concat(pieces) };
  };
}

/** Starts a network with faults in front of a server, until the test ends. */
export async function startS3Proxy(answerOf: (asked: S3Request) => Promise<S3Answer>): Promise<S3Proxy> {
  const server = createServer((incoming, outgoing) => {
    const handle = async (): Promise<void> => {
      const pieces: Buffer[] = [];
      for await (const piece of incoming) pieces.push(piece as Buffer);
      const { method = '', url = '', headers } = incoming;
      const asked = { method, url, headers, body: Buffer.concat(pieces) };
      const fault = proxy.faultOf(asked);
      if (fault?.delayMs !== undefined) await sleep(fault.delayMs);
      const done = fault === undefined || fault.isDone ? await answerOf(asked) : undefined;
      const answer = fault === undefined || fault.answer === 'late' ? done : fault.answer;
      if (answer === 'silence') return;
      if (answer === 'cut' || answer === undefined) incoming.socket.destroy();
      else outgoing.writeHead(answer.status, answer.headers).end(method === 'HEAD' ? undefined : answer.body);
    };
    handle().catch(() => incoming.socket.destroy());
  }).listen(0, '127.0.0.1');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, 'listening');
  const proxy: S3Proxy = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    faultOf: () => undefined,
  };
  return proxy;
}
