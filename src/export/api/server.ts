import type { Socket } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import { membersOf } from '../../runtime/files/checksummed-json.ts';
import { type RateLimitedLog, createRateLimitedLog, failureBound } from '../../runtime/problems/rate-limited-log.ts';
import { describeError } from '../../runtime/errors.ts';
import { takeOverConnections } from '../../runtime/http/connections.ts';
import { portOf } from '../../runtime/http/ports.ts';
import { noRouteSchemas, describeHeadOverflow, findRequestHeadError } from '../../runtime/http/request-head.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { Logger } from '../../runtime/logger.ts';
import { maxFormBytes } from './arguments.ts';
import { badRequest, notFound, errorEnvelope, unavailable, type ExportApiError } from './envelope.ts';

export type ApiServer = FastifyInstance;

/** Bytes of request line and headers: fits 999 campaigns in a query. */
const maxHeadBytes = 64 * 1024;
export interface ApiServerLimits {
  readonly maxConnections: number;
  /** Timeouts of a request's head, and of head and body, ms. */
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** Interval of the checks of these timeouts, ms. */
  readonly checkIntervalMs: number;
  /** Idle timeout of a connection, ms. A download may take longer. */
  readonly stalledMs: number;
  /** Idle timeout between requests, ms. */
  readonly keepAliveMs: number;
  readonly maxRequestsPerSocket: number;
}

export const defaultApiServerLimits: ApiServerLimits = {
  maxConnections: 2000,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  checkIntervalMs: 1000,
  stalledMs: 60_000,
  // Longer than the usual 60 s of load balancers, which would reuse a connection that is closing.
  keepAliveMs: 65_000,
  maxRequestsPerSocket: 100_000,
};

export function sendError(reply: FastifyReply, exportApiError: ExportApiError): FastifyReply {
  if (exportApiError.retryAfterSeconds !== undefined) reply.header('retry-after', exportApiError.retryAfterSeconds);
  return reply.code(exportApiError.code).type('application/json; charset=utf-8').send(errorEnvelope(exportApiError));
}

/** Converts an error of a handler. A 500 may be retried: the service is at fault. */
function refusalOf(error: unknown, failures: RateLimitedLog, path: string): ExportApiError {
  const { statusCode, code } = membersOf(error);
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return badRequest(`The body is larger than ${maxFormBytes} bytes`);
  if (Number(statusCode) >= 400 && Number(statusCode) < 500) return badRequest('The request is malformed');
  failures.add({ path: path.slice(0, 200), error: describeError(error) });
  return unavailable;
}

function toSentence(detail: string): string {
  return `${detail.charAt(0).toUpperCase()}${detail.slice(1)}`;
}

const malformed = badRequest('The request is malformed');
const brokenOff: Readonly<Record<string, ExportApiError>> = {
  HPE_HEADER_OVERFLOW: badRequest(toSentence(describeHeadOverflow(maxHeadBytes))),
  ERR_HTTP_REQUEST_TIMEOUT: badRequest('The request timed out'),
};

/** Responds to bytes that are not a request; without a response if the client would assign it to another request. */
function answerOnSocket(exportApiError: ExportApiError, socket: Socket, mayAnswer: boolean): void {
  if (!socket.writable || !mayAnswer) return void socket.destroy();
  const envelope = errorEnvelope(exportApiError);
  const body = JSON.stringify(envelope);
  const head = `HTTP/1.1 ${envelope.code} ${envelope.message}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close`;
  socket.end(`${head}\r\n\r\n${body}`);
}

/**
 * Creates the server of the api port without routes. Bodies are passed as bytes; errors become envelopes; of a request
 * only its path is logged. `noRoute`: refusal of other paths.
 */
export function createApiServer(
  limits: ApiServerLimits,
  logger: Logger,
  noRoute = notFound('The method does not exist'),
): ApiServer {
  const server = Fastify({
    logger: false,
    schemaController: noRouteSchemas,
    bodyLimit: maxFormBytes,
    requestTimeout: limits.requestTimeoutMs,
    connectionTimeout: limits.stalledMs,
    keepAliveTimeout: limits.keepAliveMs,
    maxRequestsPerSocket: limits.maxRequestsPerSocket,
    forceCloseConnections: 'idle',
    // Requests on open connections are served while the server closes.
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
    frameworkErrors: (_error, _request, reply) => void sendError(reply as unknown as FastifyReply, malformed),
  });
  const exchanges = takeOverConnections(server.server, limits.maxConnections, logger);
  // Before the framework, which may respond at once.
  server.server.prependListener(
    'request',
    (_request, response) => void response.setHeader('x-content-type-options', 'nosniff'),
  );
  // Node passes CONNECT as a bare connection, which is not read: the end of its client would not be noticed.
  server.server.on('connect', (_request, socket: Socket) => {
    socket.on('error', () => socket.destroy());
    answerOnSocket(noRoute, socket, exchanges.mayAnswer(socket));
    socket.destroySoon();
  });
  // Only POST has a body; of other methods the framework would check it before any route.
  for (const method of server.supportedMethods)
    if (method !== 'POST') server.addHttpMethod(method, { hasBody: false, overrideExisting: true });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  server.addHook('onRequest', (request, reply, done) => {
    // The framework would refuse a Content-Type that it cannot parse; here it is ignored.
    delete request.raw.headers['content-type'];
    const headError = findRequestHeadError(request.raw);
    if (headError === undefined) return done();
    // The client may wait for a response before it sends its body.
    if (headError.status === 417) void reply.header('connection', 'close');
    sendError(reply, { code: headError.status, detail: toSentence(headError.detail) });
  });
  const failures = createRateLimitedLog((fields) => logger.error(fields, 'request failed'), failureBound);
  server.setErrorHandler((error, request, reply) =>
    sendError(reply, refusalOf(error, failures, (request.raw.url ?? '').split('?')[0] ?? '')),
  );
  server.setNotFoundHandler((_request, reply) => sendError(reply, noRoute));
  return server;
}

/**
 * Serves the api port while the service may not access its folders: the routes of `addRoutes` (health), and a 500 with
 * Retry-After for all others.
 */
export async function startUnavailableExport(
  { host, port }: { readonly host: string; readonly port: number },
  addRoutes: (server: ApiServer) => void,
  logger: Logger,
): Promise<Stoppable & { readonly port: number }> {
  const server = createApiServer(defaultApiServerLimits, logger, unavailable);
  addRoutes(server);
  await server.listen({ host, port });
  return { port: portOf(server.server), stop: () => server.close() };
}
