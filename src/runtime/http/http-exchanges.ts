import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Knows which requests of each connection have no whole answer yet. */
export interface HttpExchanges {
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

/**
 * Follows the requests of a server. Node answers pipelined requests in their order and keeps an answer back until those
 * before it are out: that one has ended says nothing of them. An exchange is over when its answer was handed to the
 * system.
 */
export function followExchanges(http: Server): HttpExchanges {
  const open = new WeakMap<Socket, Set<Exchange>>();
  const newest = new WeakMap<Socket, Exchange>();
  http.prependListener('request', (request, response) => {
    const { socket } = request;
    const exchange = { request, response };
    const exchanges = open.get(socket) ?? new Set();
    open.set(socket, exchanges.add(exchange));
    newest.set(socket, exchange);
    response.once('finish', () => exchanges.delete(exchange));
  });
  return {
    mayAnswer(socket) {
      const last = newest.get(socket);
      if (last === undefined) return true;
      const others = [...(open.get(socket) ?? [])].filter((exchange) => exchange !== last);
      if (others.length > 0) return false;
      // Bytes that break the newest request off are answered in its place, once; those behind it when it has its
      // answer.
      return last.request.complete ? last.response.writableFinished : !last.response.headersSent;
    },
  };
}
