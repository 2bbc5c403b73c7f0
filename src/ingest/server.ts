import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { fastify, type FastifyInstance } from 'fastify';
import { takeOverConnections } from '../runtime/http/connections.ts';
import { portOf } from '../runtime/http/ports.ts';
import type { Logger } from '../runtime/logger.ts';
import { describeHeadOverflow, findRequestHeadError, noRouteSchemas } from '../runtime/http/request-head.ts';
import { writeRefusal } from './responses.ts';
import { answerOf, renderDetail, type Refusal } from './refusal.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';

export type ImportServer = FastifyInstance;

/** Limits of the import port. Bodies are small: a client that needs longer is slow on purpose or broken. */
export interface ServerLimits {
  /** Further connections are closed at once. */
  readonly maxConnections: number;
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
  readonly checkIntervalMs: number;
  readonly keepAliveMs: number;
  /** Then a connection is closed, so that clients spread over the workers again. */
  readonly maxRequestsPerSocket: number;
}

export const defaultServerLimits: ServerLimits = {
  maxConnections: 10_000,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 15_000,
  checkIntervalMs: 1000,
  // Above the usual 60 s of load balancers, which would reuse a connection that is being closed.
  keepAliveMs: 65_000,
  maxRequestsPerSocket: 100_000,
};

const maxHeaderBytes = 16_384;
/** Reasons for refusing what never became a request, by the code of its error. */
const brokenOff: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: describeHeadOverflow(maxHeaderBytes),
  ERR_HTTP_REQUEST_TIMEOUT: 'the request timed out',
};

/** Answers on the socket, and ends it: no request reached a handler. */
function answerOnSocket(socket: Socket, refusal: Refusal): void {
  const { status, error, body } = answerOf(refusal.reason);
  socket.end(
    `HTTP/1.1 ${status} ${error}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${body.length}\r\n` +
      `X-Error-Detail: ${renderDetail(refusal.detail)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

interface ServerHandlers {
  /** Called for a request that is refused before any handler: no HTTP, too slow, or a head that is not allowed. */
  readonly onProtocolError: (refusal: Refusal) => void;
  /** Handles a request before the framework; reports whether it did. */
  readonly take?: (request: IncomingMessage, response: ServerResponse) => boolean;
  readonly onBadUrl: (path: string, request: IncomingMessage, response: ServerResponse) => void;
}

/** Reports whether a server stops: a response then closes its connection, which would delay the stop while idle. */
export const isClosing = ({ server }: Pick<ImportServer, 'server'>): boolean => !server.listening;

/** Creates the server below the framework, which answers a wrong head itself. */
function createHeadServer(
  limits: ServerLimits,
  { onProtocolError, take }: ServerHandlers,
  framework: (request: IncomingMessage, response: ServerResponse) => void,
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
    const headError = findRequestHeadError(request);
    if (headError !== undefined) {
      const refusal: Refusal = {
        reason: headError.status === 417 ? 'expectation' : 'protocol',
        detail: headError.detail,
      };
      onProtocolError(refusal);
      // A client that expects something may hold its body back: whether one follows is not known.
      const isLast = headError.status === 417 || isClosing({ server });
      return writeRefusal(response, refusal, isLast ? ['connection', 'close'] : []);
    }
    if (take?.(request, response) === true) return;
    response.setHeader('x-content-type-options', 'nosniff');
    framework(request, response);
  });
  server.maxRequestsPerSocket = limits.maxRequestsPerSocket;
  return server;
}

/** Creates the import area's Fastify, without body parser or error format; not listening. */
export function createServer(limits: ServerLimits, handlers: ServerHandlers, logger: Logger): ImportServer {
  const server = fastify({
    logger: false,
    schemaController: noRouteSchemas,
    // Only the framework's: import-handler.ts reads bodies with the real limit.
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
    // It is not read, so the client's end would go unnoticed.
    socket.destroySoon();
  });
  // The framework must not read bodies: it would answer a fault, of QUERY above all, before any route.
  for (const method of server.supportedMethods)
    server.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  server.addHook('onSend', (_request, reply, _payload, done) => {
    if (isClosing(server)) void reply.header('connection', 'close');
    done();
  });
  return server;
}

const retryAfterSeconds = 5;

/** Starts a server that rejects all imports, without reading tokens, while the folders may be another service's. */
export async function startUnavailableIngest(
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
  return { port: portOf(server.server), stop: () => server.close() };
}
