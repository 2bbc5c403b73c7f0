import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
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
 * Replaces responses that Node's HTTP server sends without a body and unseen by the handlers: a request with an
 * expectation, with too many headers or without a Host reaches the handlers, and `findHeadFault` rejects it. A client
 * that ends its sending half after the request gets the response. The server is made with `requireHostHeader: false`.
 *
 * Closes and logs each connection beyond `maxConnections`. Node's own `maxConnections` logs nothing, and in a cluster
 * returns the connections to the supervisor, which keeps them.
 *
 * Node sends pipelined responses in order and holds each back until the earlier ones are sent. An exchange has ended
 * when its response was handed to the system.
 */
export function takeOverConnections(server: Server, maxConnections: number, logger: Logger) {
  server.maxHeadersCount = maxHeaderLines;
  server.on('checkExpectation', (request, response) => void server.emit('request', request, response));
  // Otherwise the server closes a connection when its client has nothing more to send, even before the response.
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
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
    /**
     * Reports whether the server may write its own response to bytes that are not HTTP on the socket: only if the
     * client cannot take it for the response to another request. Only the broken request may be unanswered.
     */
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
    logger.warn({ maxConnections, refused }, 'connections refused: too many');
    refused = 0;
  });
}
