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

const isOpen = ({ response }: Exchange): boolean => !response.writableFinished;

/**
 * Follows the requests of a server. Node answers pipelined requests in their order and keeps an answer back until those
 * before it are out: that one has ended says nothing of them. An exchange is over when its answer was handed to the
 * system.
 */
export function followExchanges(http: Server): HttpExchanges {
  /** Of each connection those that may be open, the newest last. */
  const begun = new WeakMap<Socket, Exchange[]>();
  http.prependListener('request', (request, response) => {
    const exchanges = begun.get(request.socket);
    const exchange = { request, response };
    if (exchanges === undefined) begun.set(request.socket, [exchange]);
    // One after the other, as nearly all clients send them.
    else if (exchanges.length === 1 && exchanges[0]?.response.writableFinished === true) exchanges[0] = exchange;
    else exchanges.splice(0, exchanges.length, ...exchanges.filter(isOpen), exchange);
  });
  return {
    mayAnswer(socket) {
      const exchanges = begun.get(socket) ?? [];
      const last = exchanges.at(-1);
      if (last === undefined) return true;
      if (exchanges.slice(0, -1).some(isOpen)) return false;
      // Bytes that break the newest request off are answered in its place, once; those behind it when it has its
      // answer.
      return last.request.complete ? last.response.writableFinished : !last.response.headersSent;
    },
  };
}
