import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket, AddressInfo } from 'node:net';
import { fastify, type FastifyInstance } from 'fastify';
import { takeOverConnections } from '../runtime/http/connections.ts';
import type { Logger } from '../runtime/logger.ts';
import { describeHeadOverflow, findHeadFault, ownSchemas } from '../runtime/http/request-head.ts';
import { writeRefusal } from './answers.ts';
import { answerOf, renderDetail, type Refusal } from './refusal.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';

/** The HTTP server of the import port. */
export type ImportServer = FastifyInstance;

/**
 * Limits of the import port. Bodies are small, so a client that takes longer than these is slow on purpose or broken.
 */
export interface ServerLimits {
  /** Most simultaneous connections; further ones are closed at once. */
  readonly maxConnections: number;
  /** Time for a request's headers, and for headers and body, milliseconds. */
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** How often connections are checked for those two, milliseconds. */
  readonly checkIntervalMs: number;
  /** How long an idle connection is kept for the client's next request, milliseconds. */
  readonly keepAliveMs: number;
  /** A connection is closed after so many requests, so that clients spread over the workers again. */
  readonly maxRequestsPerSocket: number;
}

export const defaultServerLimits: ServerLimits = {
  maxConnections: 10_000,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 15_000,
  checkIntervalMs: 1000,
  // Longer than the usual 60 s of load balancers, which would otherwise reuse a connection that is being closed.
  keepAliveMs: 65_000,
  maxRequestsPerSocket: 100_000,
};

const maxHeaderBytes = 16_384;
/** Why what never became a request was refused, by the code of its error. */
const brokenOff: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: describeHeadOverflow(maxHeaderBytes),
  ERR_HTTP_REQUEST_TIMEOUT: 'the request came too slowly',
};

/** Answers on the bare socket, and ends it: what came was no request that the server could give to a handler. */
function answerOnSocket(socket: Socket, refusal: Refusal): void {
  const { status, error, body } = answerOf(refusal.reason);
  socket.end(
    `HTTP/1.1 ${status} ${error}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${body.length}\r\n` +
      `X-Error-Detail: ${renderDetail(refusal.detail)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

interface ServerHandlers {
  /**
   * A request that is refused before any handler: its bytes are no HTTP, it came too slowly, or its head is not
   * allowed.
   */
  readonly onProtocolError: (refusal: Refusal) => void;
  /** Takes requests that are not for the framework; says whether it did. */
  readonly take?: (request: IncomingMessage, response: ServerResponse) => boolean;
  /** A path that cannot be decoded. */
  readonly onBadUrl: (path: string, request: IncomingMessage, response: ServerResponse) => void;
}

/**
 * Says that a server stops. A connection kept after its last answer would hold the stop up until it is idle for too
 * long, so that this answer closes it.
 */
export const isClosing = ({ server }: Pick<ImportServer, 'server'>): boolean => !server.listening;

/** Hands a request on that has passed the checks of its head. */
type HandRequest = (request: IncomingMessage, response: ServerResponse) => void;

/** Creates the server below the framework: what is wrong with a head is answered before anybody sees the request. */
function createHeadServer(
  limits: ServerLimits,
  { onProtocolError, take }: ServerHandlers,
  framework: HandRequest,
): Server {
  const options = {
    maxHeaderSize: maxHeaderBytes,
    requireHostHeader: false,
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    connectionsCheckingInterval: limits.checkIntervalMs,
    keepAliveTimeout: limits.keepAliveMs,
  };
  const server = createHttpServer(options, (request, response) => {
    const fault = findHeadFault(request);
    if (fault !== undefined) {
      const refusal: Refusal = { reason: fault.status === 417 ? 'expectation' : 'protocol', detail: fault.detail };
      onProtocolError(refusal);
      // Whether a body follows is not known: a client that expects something may be waiting with it.
      return writeRefusal(
        response,
        refusal,
        fault.status === 417 || isClosing({ server }) ? ['connection', 'close'] : [],
      );
    }
    if (take?.(request, response) === true) return;
    // Nothing that is answered here is of a kind that a browser should guess.
    response.setHeader('x-content-type-options', 'nosniff');
    framework(request, response);
  });
  server.maxRequestsPerSocket = limits.maxRequestsPerSocket;
  return server;
}

/**
 * Creates the import area's Fastify: no body parser and no error format of its own, limits on everything; not
 * listening.
 */
export function createServer(limits: ServerLimits, handlers: ServerHandlers, logger: Logger): ImportServer {
  const server = fastify({
    logger: false,
    schemaController: ownSchemas,
    // Bodies are read by ourselves (import-handler.ts), with the real limit; this one is only the framework's.
    bodyLimit: 1_048_576,
    serverFactory: (framework) => createHeadServer(limits, handlers, framework),
    trustProxy: false,
    exposeHeadRoutes: false,
    // Requests already on a kept connection are still answered while the server closes.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    routerOptions: { ignoreTrailingSlash: true, caseSensitive: true, onBadUrl: handlers.onBadUrl },
    clientErrorHandler(error, socket) {
      if (error.code === 'ECONNRESET' || socket.destroyed) return;
      refuseOnSocket(socket, { reason: 'protocol', detail: brokenOff[error.code] ?? 'not a valid HTTP request' });
    },
  });
  const exchanges = takeOverConnections(server.server, limits.maxConnections, logger);
  function refuseOnSocket(socket: Socket, refusal: Refusal): void {
    handlers.onProtocolError(refusal);
    if (socket.writable && exchanges.mayAnswer(socket)) answerOnSocket(socket, refusal);
    else socket.destroy();
  }

  // Node hands CONNECT over as a bare connection.
  server.server.on('connect', (_request, socket: Socket) => {
    socket.on('error', () => socket.destroy());
    refuseOnSocket(socket, { reason: 'method', detail: 'no such method' });
    // It is no longer read, so that its client's end would go unnoticed.
    socket.destroySoon();
  });
  // No method's body is the framework's to read: it would answer what it finds wrong with it before any route, QUERY
  // above all.
  for (const method of server.supportedMethods)
    server.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  server.addHook('onSend', (_request, reply, _payload, done) => {
    if (isClosing(server)) void reply.header('connection', 'close');
    done();
  });
  return server;
}

const retryAfterSeconds = 5;

/**
 * Answers every import request with the contract's "retry later" while the service may not touch its folders: before
 * any look at a token, since the access data may be somebody else's. The routes that `addRoutes` brings (health) answer
 * as ever.
 */
export async function startClosedIngest(
  { host, port }: { readonly host: string; readonly port: number },
  addRoutes: (server: ImportServer) => void,
  logger: Logger,
): Promise<Stoppable & { readonly port: number }> {
  const { status, body } = answerOf('unavailable');
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(body.length),
    'retry-after': String(retryAfterSeconds),
    'x-error-detail': renderDetail('not stored: the service has lost its data folder'),
  };
  const server = createServer(
    defaultServerLimits,
    {
      onProtocolError: () => undefined,
      onBadUrl: (_path, _request, response) => void response.writeHead(status, headers).end(body),
    },
    logger,
  );
  addRoutes(server);
  server.addHook('onRequest', (request, reply, done) => {
    if (request.is404) void reply.code(status).headers(headers).send(body);
    done();
  });
  await server.listen({ host, port });
  return { port: (server.server.address() as AddressInfo).port, stop: () => server.close() };
}
