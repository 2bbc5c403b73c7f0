import { isIP, type Socket } from 'node:net';
import { fastify, type FastifyInstance } from 'fastify';
import { createMetrics, renderMetrics } from '../runtime/metrics.ts';
import { httpAddress, portOf, settlePorts } from '../runtime/http/ports.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { withFormerStatus } from '../runtime/former-names.ts';
import { noRouteSchemas, addressOf } from '../runtime/http/request-head.ts';
import { registerDiskGauges, type WatchedDisks, registerServiceGauges, type ServiceFigures } from './service-gauges.ts';
import { endConnections } from './routes.ts';
import type { IncomingMessage, Server } from 'node:http';
import { hostname } from 'node:os';

/** Time for a refused client to read its response and finish its body, ms. */
const lingerMs = 1000;

/**
 * Limits connections to `maxConnections`. A new connection replaces the oldest one that is not kept: the port has no
 * authentication, and slow clients must not keep health and metrics from answering.
 */
function replaceOldest(server: Server, maxConnections: number) {
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    // Node calls this after the last response. A body that still comes in would reset the connection before the client
    // reads why it was refused.
    socket.destroySoon = () => {
      socket.end();
      setTimeout(() => socket.destroy(), lingerMs).unref();
    };
    const [oldest] = open;
    if (open.size > maxConnections) oldest?.destroy();
  });
  return (socket: Socket): void => void open.delete(socket);
}

/**
 * Creates a check of the Host header, against DNS rebinding. It accepts addresses, localhost, the name of the machine and
 * `names`.
 */
function createHostCheck(names: readonly string[]): (request: IncomingMessage) => boolean {
  const own = new Set(['localhost', hostname(), ...names].map((name) => name.toLowerCase()));
  return (request) => {
    const address = addressOf(request);
    const host = URL.canParse(address) ? new URL(address).hostname : undefined;
    return host !== undefined && (isIP(host.replace(/^\[|\]$/g, '')) !== 0 || own.has(host.replace(/\.$/, '')));
  };
}

/** The supervisor's view of the service. */
export interface OpsView extends ServiceFigures {
  readonly collectMetrics: () => Promise<readonly unknown[][]>;
  readonly isDraining: boolean;
}

export interface OpsServerDependencies {
  readonly disks: WatchedDisks;
  /** Host names that requests may have besides those of the machine. */
  readonly names: readonly string[];
  /** Adds routes that need the operator's token. */
  readonly addRoutes: (server: FastifyInstance, keep: (socket: Socket) => void) => void;
}

const starting: Problem = {
  code: 'starting',
  message: 'the service is starting',
  action: 'Wait a few seconds; the log shows the progress.',
};
const foreignHost =
  'The Host header names another host. Use an address of this machine, or add the name to TRIBUTARY_OPS_NAMES.';
const stopping: Problem = {
  code: 'stopping',
  message: 'the service is stopping',
  action: 'No action needed: it was asked to stop.',
};
const maxConnections = 100;
const headTimeoutMs = 10_000;

/**
 * Serves the operator's address from the supervisor, even if a process is down: `GET /healthz` (200), `GET /readyz`
 * (200, or 503 with problems) and `GET /metrics` (Prometheus text). It shows apps and volumes without authorization and
 * therefore listens on loopback by default. `view` returns undefined during the start. Errors: `start_failed`.
 */
export async function startOpsServer(
  host: string,
  port: number,
  view: () => OpsView | undefined,
  { disks, names, addRoutes }: OpsServerDependencies,
) {
  // Its error names the setting if the port is in use.
  if (port !== 0) await settlePorts(host, [{ port, what: 'ops port (TRIBUTARY_OPS_PORT)' }]);
  const server = fastify({
    logger: false,
    schemaController: noRouteSchemas,
    bodyLimit: 1024,
    forceCloseConnections: true,
    http: { connectionsCheckingInterval: 1000 },
  });
  endConnections(server, () => view()?.isDraining === true);
  const keep = replaceOldest(server.server, maxConnections);
  const isOwnHost = createHostCheck(names);
  // Only the head has a timeout: a load may take hours.
  server.server.headersTimeout = headTimeoutMs;
  server.server.requestTimeout = 0;
  server.addHook('onRequest', (request, reply, done) => {
    void reply.header('x-content-type-options', 'nosniff').header('cache-control', 'no-store');
    if (isOwnHost(request.raw)) done();
    else void reply.code(403).send({ error: foreignHost });
  });
  // The rest of a refused body is not read.
  server.addHook('onSend', (request, reply, _payload, done) => {
    const { complete, headers } = request.raw;
    const hasBody = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
    if (hasBody && !complete) void reply.header('connection', 'close');
    done();
  });
  server.get('/healthz', async () => ({ alive: true }));
  server.get('/readyz', async (_request, reply) => {
    const { problems: found, isDraining } = view() ?? { problems: [starting], isDraining: false };
    const problems = isDraining ? [stopping, ...found] : found;
    return reply
      .code(problems.length === 0 ? 200 : 503)
      .send(withFormerStatus({ ready: problems.length === 0, problems }));
  });
  const metrics = createMetrics();
  registerServiceGauges(metrics, () => view() ?? { problems: [starting], warnings: [], processes: [] });
  registerDiskGauges(metrics, disks);
  server.get('/metrics', async (_request, reply) => {
    const [collected = [], own] = await Promise.all([view()?.collectMetrics(), metrics.snapshot()]);
    const { contentType, body } = await renderMetrics([...collected, own]);
    return reply.type(contentType).send(body);
  });
  addRoutes(server, keep);
  await server.listen({ host, port });
  return { url: httpAddress(host, portOf(server.server)), stop: () => server.close() };
}
