import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

/** A message as a client's server gets it. */
export interface Received {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** A client's server. */
export interface Receiver {
  readonly url: string;
  readonly received: readonly Received[];
}

/** Address of a receiver; any free port by default. */
interface ReceiverAddress {
  readonly host: string;
  readonly port: number;
}

async function listen(
  server: Server,
  { host, port }: ReceiverAddress = { host: '127.0.0.1', port: 0 },
): Promise<string> {
  server.listen(port, host);
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://${host}:${(server.address() as AddressInfo).port}/hook`;
}

/** Starts a client's server that accepts each message and responds only after a call of `answer`. */
export async function startHangingReceiver(): Promise<Receiver & { readonly answer: (status?: number) => void }> {
  const received: Received[] = [];
  const waiting: ServerResponse[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      received.push({ headers: request.headers, body });
      waiting.push(response);
    });
  });
  const answer = (status = 200): void => {
    for (const response of waiting.splice(0)) response.writeHead(status).end();
  };
  return { url: await listen(server), received, answer };
}

/** Starts a client's server that responds to each message with a status, after adding it to `received`. */
export async function startAnsweringReceiver(
  answer: (message: Received) => number,
  address?: ReceiverAddress,
): Promise<Receiver> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
    request.on('end', () => {
      const message = { headers: request.headers, body };
      received.push(message);
      response.writeHead(answer(message)).end();
    });
  });
  return { url: await listen(server, address), received };
}

/** Starts a client's server that responds with the statuses given, and repeats the last one. */
export function startReceiver(...statuses: number[]): Promise<Receiver> {
  return startAnsweringReceiver(() => (statuses.length > 1 ? (statuses.shift() ?? 200) : (statuses[0] ?? 200)));
}
