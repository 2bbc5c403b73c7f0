import type { AddressInfo, Socket } from 'node:net';
import Fastify, { type FastifyError, type FastifyInstance, type FastifyReply } from 'fastify';
import { type BoundedLog, createBoundedLog, failureBound } from '../../runtime/conditions/bounded-log.ts';
import { describeError } from '../../runtime/errors.ts';
import { takeOverConnections } from '../../runtime/http/connections.ts';
import { ownSchemas, describeHeadOverflow, findHeadFault } from '../../runtime/http/request-head.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import { maxBodyBytes } from './arguments.ts';
import { badRequest, type Refusal, refusalEnvelope } from './envelope.ts';

/** The HTTP server of the api port. */
export type ApiServer = FastifyInstance;

/** Room for the request line and headers: 999 campaigns fit into a query. */
const maxHeadBytes = 64 * 1024;
/** Limits of the api port's connections. */
export interface ApiServerLimits {
  /** Most simultaneous connections; further ones are closed at once. */
  readonly maxConnections: number;
  /** Time for a request's head, and for head and body, milliseconds. */
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** How often connections are checked for those two, milliseconds. */
  readonly checkIntervalMs: number;
  /**
   * A connection over which nothing passes for so long is closed: a download takes as long as it takes, but not
   * standing still.
   */
  readonly stalledMs: number;
  /** How long an idle connection is kept for the client's next request, milliseconds. */
  readonly keepAliveMs: number;
  readonly maxRequestsPerSocket: number;
}

export const defaultApiServerLimits: ApiServerLimits = {
  maxConnections: 2000,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  checkIntervalMs: 1000,
  stalledMs: 60_000,
  // Longer than the usual 60 s of load balancers, which would otherwise reuse a connection that is being closed.
  keepAliveMs: 65_000,
  maxRequestsPerSocket: 100_000,
};

const retryAfterSeconds = 5;

/** Answers with a refusal. */
export function refuse(reply: FastifyReply, refusal: Refusal): FastifyReply {
  if (refusal.retryAfterSeconds !== undefined) reply.header('retry-after', refusal.retryAfterSeconds);
  return reply.code(refusal.code).type('application/json; charset=utf-8').send(refusalEnvelope(refusal));
}

/** What an error in a handler is answered with. Every 500 may be retried: the fault is the service's. */
function refusalOf(error: unknown, failures: BoundedLog, path: string): Refusal {
  const { statusCode, code } = error as Partial<FastifyError>;
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return badRequest(`The body is larger than ${maxBodyBytes} bytes`);
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) return badRequest('The request is malformed');
  failures.add({ path: path.slice(0, 200), error: describeError(error) });
  return { code: 500, retryAfterSeconds };
}

/** A detail as the area's answers have it. */
function toSentence(detail: string): string {
  return `${detail.charAt(0).toUpperCase()}${detail.slice(1)}`;
}

const malformed = badRequest('The request is malformed');
/** Refusals of what never became a request, by the code of its error. */
const brokenOff: Readonly<Record<string, Refusal>> = {
  HPE_HEADER_OVERFLOW: badRequest(toSentence(describeHeadOverflow(maxHeadBytes))),
  ERR_HTTP_REQUEST_TIMEOUT: badRequest('The request came too slowly'),
};

/**
 * Answers what never became a request: bytes that are no HTTP, a head that is too large, a request that came too
 * slowly. Where the client would take this answer for that of another request, the connection is just closed.
 */
function answerOnSocket(refusal: Refusal, socket: Socket, mayAnswer: boolean): void {
  if (!socket.writable || !mayAnswer) return void socket.destroy();
  const envelope = refusalEnvelope(refusal);
  const body = JSON.stringify(envelope);
  const head = `HTTP/1.1 ${envelope.code} ${envelope.message}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close`;
  socket.end(`${head}\r\n\r\n${body}`);
}

/**
 * Creates the server of the api port, without routes. Bodies are handed on as bytes whatever their Content-Type says;
 * everything unforeseen becomes an envelope, and what has no route is refused with `noRoute`; nothing is logged of a
 * request but its path.
 */
export function createApiServer(
  limits: ApiServerLimits,
  logger: Logger,
  noRoute: Refusal = { code: 404, detail: 'There is no such method' },
): ApiServer {
  const server = Fastify({
    logger: false,
    schemaController: ownSchemas,
    bodyLimit: maxBodyBytes,
    requestTimeout: limits.requestTimeoutMs,
    connectionTimeout: limits.stalledMs,
    keepAliveTimeout: limits.keepAliveMs,
    maxRequestsPerSocket: limits.maxRequestsPerSocket,
    forceCloseConnections: 'idle',
    // Requests already on a kept connection are still answered while the server closes, in the envelope that clients
    // know.
    return503OnClosing: false,
    routerOptions: { maxParamLength: 500 },
    http: {
      maxHeaderSize: maxHeadBytes,
      requireHostHeader: false,
      headersTimeout: limits.headersTimeoutMs,
      connectionsCheckingInterval: limits.checkIntervalMs,
    },
    clientErrorHandler: (error, socket) =>
      answerOnSocket(brokenOff[error.code] ?? malformed, socket, exchanges.mayAnswer(socket)),
    // A malformed request target is refused like any other malformed request.
    frameworkErrors: (_error, _request, reply) => void refuse(reply as unknown as FastifyReply, malformed),
  });
  const exchanges = takeOverConnections(server.server, limits.maxConnections, logger);
  // Before the framework, which may answer at once. Nothing that is answered here is of a kind that a browser should
  // guess.
  server.server.prependListener(
    'request',
    (_request, response) => void response.setHeader('x-content-type-options', 'nosniff'),
  );
  // Node hands CONNECT over as a bare connection, which is no longer read: its client's end would go unnoticed.
  server.server.on('connect', (_request, socket: Socket) => {
    socket.on('error', () => socket.destroy());
    answerOnSocket(noRoute, socket, exchanges.mayAnswer(socket));
    socket.destroySoon();
  });
  // Only POST has a body that is read; of other methods the framework would refuse what it finds wrong with it before
  // any route.
  for (const method of server.supportedMethods)
    if (method !== 'POST') server.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  server.addHook('onRequest', (request, reply, done) => {
    // The framework would refuse a Content-Type it cannot read; here it is ignored.
    delete request.raw.headers['content-type'];
    const fault = findHeadFault(request.raw);
    if (fault === undefined) return done();
    // Whether a body follows is not known: a client that expects something may be waiting with it.
    if (fault.status === 417) void reply.header('connection', 'close');
    refuse(reply, { code: fault.status, detail: toSentence(fault.detail) });
  });
  const failures = createBoundedLog((fields) => logger.error(fields, 'request failed'), failureBound);
  server.setErrorHandler((error, request, reply) =>
    refuse(reply, refusalOf(error, failures, (request.raw.url ?? '').split('?')[0] ?? '')),
  );
  server.setNotFoundHandler((_request, reply) => refuse(reply, noRoute));
  return server;
}

/**
 * Serves the api port while the service may not touch its folders: the routes that `addRoutes` brings (health), and a
 * 500 for everything else, with Retry-After. No request or report file is read.
 */
export async function startClosedExport(
  { host, port }: { readonly host: string; readonly port: number },
  addRoutes: (server: ApiServer) => void,
  logger: Logger,
): Promise<Stoppable & { readonly port: number }> {
  const server = createApiServer(defaultApiServerLimits, logger, { code: 500, retryAfterSeconds });
  addRoutes(server);
  await server.listen({ host, port });
  return { port: (server.server.address() as AddressInfo).port, stop: () => server.close() };
}
