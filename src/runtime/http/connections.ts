import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as Listener, type Socket } from 'node:net';
import type { Logger } from '../logger.ts';
import { maxHeaderLines } from './request-head.ts';

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

interface NewestExchanges {
  previous: Exchange | undefined;
  last: Exchange;
}

/** Minimum time between two log lines about refused connections, ms. */
const logEveryMs = 10_000;

/**
 * Passes each request to the handlers, also those that Node would answer without a body: with expectations, too many
 * headers or no Host. `findRequestHeadError` rejects them. A client that ends its sending half still gets its response.
 * The server needs `requireHostHeader: false`. Closes and logs connections beyond `maxConnections`: Node's own limit
 * logs nothing, and in a cluster returns them to the supervisor, which keeps them. Node sends pipelined responses in
 * order. An exchange ends when its response was handed to the system.
 */
export function takeOverConnections(server: Server, maxConnections: number, logger: Logger) {
  server.maxHeadersCount = maxHeaderLines;
  server.on('checkExpectation', (request, response) => void server.emit('request', request, response));
  // Otherwise the server closes a connection when its client has nothing more to send, even before the response.
  Object.assign(server, { httpAllowHalfOpen: true });
  limitConnections(server, maxConnections, logger);
  const newest = new WeakMap<Socket, NewestExchanges>();
  server.prependListener('request', (request, response) => {
    // Debian's Node 20.19 has no name for the newest method that its parser knows.
    request.method ??= 'QUERY';
    const exchanges = newest.get(request.socket);
    const last = { request, response };
    if (exchanges === undefined) {
      newest.set(request.socket, { previous: undefined, last });
    } else {
      exchanges.previous = exchanges.last;
      exchanges.last = last;
    }
  });
  return {
    /** Reports whether the server may answer invalid HTTP on the socket: never as the response to another request. */
    mayAnswer(socket: Socket): boolean {
      const { previous, last } = newest.get(socket) ?? {};
      if (last === undefined) return true;
      // Earlier requests have their responses when the previous one has.
      if (previous?.response.writableFinished === false) return false;
      // A broken newest request gets this response, once; bytes behind a complete request must wait for its response.
      return last.request.complete ? last.response.writableFinished : !last.response.headersSent;
    },
  };
}

function limitConnections(server: Server, maxConnections: number, logger: Logger): void {
  let open = 0;
  let refused = 0;
  let toldMs = Number.NEGATIVE_INFINITY;
  server.on('connection', (socket: Socket) => {
    open += 1;
    socket.once('close', () => {
      open -= 1;
    });
    if (open <= maxConnections) return;
    socket.destroy();
    refused += 1;
    if (performance.now() - toldMs < logEveryMs) return;
    toldMs = performance.now();
    logger.warn({ maxConnections, refused }, 'too many connections, new ones refused');
    refused = 0;
  });
}

/**
 * Closes the port of a server and keeps its open connections, also idle ones: a proxy may be sending on them. Resolves
 * when all have ended.
 */
export async function stopAccepting(server: Server): Promise<void> {
  const ended = once(server, 'close');
  // The HTTP server's own method would end idle connections.
  Listener.prototype.close.call(server);
  await ended;
}
