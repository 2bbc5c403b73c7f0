import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from '../logger.ts';
import { maxHeaderLines } from './request-head.ts';

/** Knows which requests of each connection have no whole answer yet. */
interface HttpExchanges {
  /**
   * Says whether an answer of the server's own, for bytes that are no HTTP, may be written on the bare socket: only
   * when the client cannot take it for the answer to another request. Nothing may be on its way but the request that
   * broke off.
   */
  mayAnswer(socket: Socket): boolean;
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** The two newest exchanges of a connection. */
interface NewestExchanges {
  previous: Exchange | undefined;
  last: Exchange;
}

/** Minimum time between two log lines about refused connections, ms. */
const logEveryMs = 10_000;

/**
 * Sets up what Node's HTTP server would otherwise do by itself, without a body and unseen by the handlers: a request
 * with an expectation, with too many headers or without a Host reaches them as any other, and `findHeadFault` refuses
 * it. A client that ends its sending half after its request gets the answer. The server is made with
 * `requireHostHeader: false`.
 *
 * Each connection beyond `maxConnections` is closed at once, and logged. The server's own `maxConnections` logs
 * nothing, and in a cluster that hands its connections round it gives them back to the supervisor, which keeps what no
 * worker takes.
 *
 * Follows the requests: Node answers pipelined requests in their order and keeps an answer back until those before it
 * are out, so that the end of one says nothing of them. An exchange is over when its answer was handed to the system.
 */
export function takeOverConnections(server: Server, maxConnections: number, logger: Logger): HttpExchanges {
  server.maxHeadersCount = maxHeaderLines;
  server.on('checkExpectation', (request, response) => void server.emit('request', request, response));
  // Without it the server closes a connection as soon as its client has nothing more to send, whatever is still to be
  // answered.
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
    mayAnswer(socket) {
      const { previous, last } = newest.get(socket) ?? {};
      if (last === undefined) return true;
      // With the one before the newest, all before it have their answers.
      if (previous?.response.writableFinished === false) return false;
      // Bytes that break the newest request off are answered in its place, once; those behind it when it has its
      // answer.
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
