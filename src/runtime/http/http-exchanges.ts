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

/** The two newest exchanges of a connection. */
interface NewestExchanges {
  previous: Exchange | undefined;
  last: Exchange;
}

/**
 * Follows the requests of a server. Node answers pipelined requests in their order and keeps an answer back until those
 * before it are out: that one has ended says nothing of them. An exchange is over when its answer was handed to the
 * system.
 */
export function followExchanges(http: Server): HttpExchanges {
  const newest = new WeakMap<Socket, NewestExchanges>();
  http.prependListener('request', (request, response) => {
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
