import { type AddressInfo, isIP, type Socket } from 'node:net';
import { fastify, type FastifyInstance } from 'fastify';
import type { Stoppable } from '../runtime/lifecycle.ts';
import { createMetrics, renderMetrics } from '../runtime/metrics.ts';
import { httpAddress, settlePorts } from '../runtime/http/ports.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { ownSchemas, addressOf } from '../runtime/http/request-head.ts';
import { followDisks, type WatchedDisks, followService, type ServiceFigures } from './service-gauges.ts';
import { endConnections } from './routes.ts';
import type { IncomingMessage, Server } from 'node:http';
import { hostname } from 'node:os';

/** Time in which a refused client may read its response and finish its body, ms. */
const lingerMs = 1000;

/** Exempts a connection from being replaced by a new one. */
type KeepConnection = (socket: Socket) => void;

/**
 * Limits connections to `most`. A new connection replaces the oldest one that is not kept: the port has no
 * authentication, and slow clients must not keep health and metrics from answering.
 */
function replaceOldest(server: Server, most: number): KeepConnection {
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    // Node closes a connection so after its last answer. A body that is still coming would reset it, and the client
    // would not read why it was refused.
    socket.destroySoon = () => {
      socket.end();
      setTimeout(() => socket.destroy(), lingerMs).unref();
    };
    const [oldest] = open;
    if (open.size > most) oldest?.destroy();
  });
  return (socket) => void open.delete(socket);
}

/**
 * Creates the check of the host that a request names. A page of another site whose name resolves to this machine (DNS
 * rebinding) names that site. Addresses, localhost, the name of the machine and `names` are the service's own.
 */
function createHostCheck(names: readonly string[]): (request: IncomingMessage) => boolean {
  const own = new Set(['localhost', hostname(), ...names].map((name) => name.toLowerCase()));
  return (request) => {
    const address = addressOf(request);
    const host = URL.canParse(address) ? new URL(address).hostname : undefined;
    return host !== undefined && (isIP(host.replace(/^\[|\]$/g, '')) !== 0 || own.has(host.replace(/\.$/, '')));
  };
}

/** What the supervisor knows, asked at each request. */
export interface OpsView extends ServiceFigures {
  /** Reads the metrics of each process. */
  readonly collectMetrics: () => Promise<readonly unknown[][]>;
  /** The service was asked to stop. */
  readonly isDraining: boolean;
}

/** What else is served, and shown. */
export interface OpsParts {
  /** The disks whose room the metrics have. */
  readonly disks: WatchedDisks;
  /** Host names, besides those of the machine, that requests may name. */
  readonly names: readonly string[];
  /** Adds what an operator's token is needed for. */
  readonly addRoutes: (server: FastifyInstance, keep: KeepConnection) => void;
}

/** The operator's address. */
interface OpsServer extends Stoppable {
  readonly url: string;
}

const starting: Problem = {
  code: 'starting',
  what: 'the service is starting',
  todo: 'Ask again in a few seconds; the log says what it does.',
};
const foreignHost =
  'The Host header names another host. Use an address of this machine, or add the name to TRIBUTARY_OPS_NAMES.';
const stopping: Problem = {
  code: 'stopping',
  what: 'the service is stopping',
  todo: 'No action needed: it was asked to stop.',
};
/** An operator's tools are few. */
const maxConnections = 100;
const headTimeoutMs = 10_000;

/**
 * Serves the operator's address, from the supervisor, so that it answers whichever process is down: `GET /healthz` (200
 * while the supervisor answers), `GET /readyz` (200, or 503 with what is wrong and what to do) and `GET /metrics`
 * (Prometheus text). It names apps and volumes and asks nobody who they are, hence an address of its own, on loopback
 * unless an operator says otherwise. `view` gives undefined while the service starts. Errors: `start_failed`.
 */
export async function startOpsServer(
  host: string,
  port: number,
  view: () => OpsView | undefined,
  { disks, names, addRoutes }: OpsParts,
): Promise<OpsServer> {
  // For its words, which name the setting's purpose when the port is taken.
  if (port !== 0) await settlePorts(host, [{ port, what: 'ops port (TRIBUTARY_OPS_PORT)' }]);
  const server = fastify({
    logger: false,
    schemaController: ownSchemas,
    bodyLimit: 1024,
    forceCloseConnections: true,
    http: { connectionsCheckingInterval: 1000 },
  });
  endConnections(server, () => view()?.isDraining === true);
  const keep = replaceOldest(server.server, maxConnections);
  const isOwnHost = createHostCheck(names);
  // Of the head only: a file that is loaded takes its time.
  server.server.headersTimeout = headTimeoutMs;
  server.server.requestTimeout = 0;
  server.addHook('onRequest', (request, reply, done) => {
    void reply.header('x-content-type-options', 'nosniff').header('cache-control', 'no-store');
    if (isOwnHost(request.raw)) done();
    else void reply.code(403).send({ error: foreignHost });
  });
  // The rest of a body that was refused is not waited for.
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
    return reply.code(problems.length === 0 ? 200 : 503).send({ ready: problems.length === 0, problems });
  });
  const metrics = createMetrics();
  followService(metrics, () => view() ?? { problems: [starting], notices: [], processes: [] });
  followDisks(metrics, disks);
  server.get('/metrics', async (_request, reply) => {
    const [collected = [], own] = await Promise.all([view()?.collectMetrics(), metrics.snapshot()]);
    const { contentType, body } = await renderMetrics([...collected, own]);
    return reply.type(contentType).send(body);
  });
  addRoutes(server, keep);
  await server.listen({ host, port });
  return { url: httpAddress(host, (server.server.address() as AddressInfo).port), stop: () => server.close() };
}
