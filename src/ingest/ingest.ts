import type { AccessReader } from '../access/access.ts';
import type { KeyMask } from '../datasets/event-id.ts';
import type { ReceiptKeys } from '../receipts/receipt-keys.ts';
import type { Clock } from '../runtime/clock.ts';
import { createRateLimitedLog, failureBound } from '../runtime/problems/rate-limited-log.ts';
import { describeError } from '../runtime/errors.ts';
import { portOf, toListenError } from '../runtime/http/ports.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import type { Tracing } from '../runtime/tracing/tracing.ts';
import type { QueryEvent } from '../stream/event-query-channel.ts';
import type { StreamPublisher } from '../stream/stream.ts';
import { createImportResponses, type ImportResponses } from './responses.ts';
import { createEventLookup } from './event-lookup.ts';
import { createGroupCommit } from './group-commit.ts';
import { createImportHandler, type Fail, type LiveEvents } from './import-handler.ts';
import { endRefusedSpan } from './import-spans.ts';
import { createIngestMetrics, followIngest } from './ingest-metrics.ts';
import { createReceiptSigner } from './receipts.ts';
import { createRefusalLog } from './refusal-log.ts';
import { noRefusalRecorder, type RefusalRecorder } from './refusal-recorder.ts';
import { addDiagnosticsRoutes, type ClientDiagnosticsView } from './diagnostics-routes.ts';
import { addImportRoutes, refuseUnknownPath } from './routes.ts';
import { createServer, defaultServerLimits, isClosing, type ImportServer, type ServerLimits } from './server.ts';
import { createUnavailability } from './unavailability.ts';

/**
 * Ingest: HTTP requests become events in the stream.
 *
 * In: POST /v1/<method>, JSON of one event or a batch (docs/api.md#import), from clients' servers.
 * Out: lines of NDJSON, many requests per message of the stream; 200 once that message is fsynced, else a refusal.
 * Invariant: a request is taken completely or not at all; lines are rendered from validated fields, never the client's
 * bytes; every request gets a response within two seconds of its last byte.
 * Crash: clients do not know whether unanswered requests are stored. Nothing is stored here.
 */

interface IngestDependencies {
  readonly access: AccessReader;
  readonly publisher: StreamPublisher;
  /** Absent if no receipts are given. */
  readonly receiptKeys?: ReceiptKeys | undefined;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
  /** Reports whether the stream's disk is down to its reserve: events are refused. Absent for an external broker. */
  readonly isDiskLow?: () => boolean;
  /** Asks a process that reads the lake where an event is. */
  readonly ask?: QueryEvent;
  /** The mask of the lake that the events go to. */
  readonly keyMask?: KeyMask | undefined;
  /** Keeps refusals for the owners of apps; absent if none are kept. */
  readonly refusals?: RefusalRecorder;
  /** Shows acknowledged events as they arrive. */
  readonly live?: LiveEvents;
  readonly clientDiagnosticsView?: ClientDiagnosticsView;
  /** Absent without a collector of traces. */
  readonly tracing?: Tracing | undefined;
  /** Adds further routes: health. */
  readonly addRoutes?: (server: ImportServer) => void;
}

export interface IngestOptions {
  readonly host: string;
  /** 0: any free port. Workers of a cluster share the port. */
  readonly port: number;
  readonly limits?: Partial<ServerLimits>;
  /** Limits the bytes that wait for the broker in this process. */
  readonly maxWaitingBytes?: number;
  /** Time from the last byte of an import request to its response, ms. */
  readonly answerWithinMs?: number;
}

export interface Ingest extends Stoppable {
  readonly port: number;
  /** Fields of the service's status: what waits, and what keeps events from being stored. */
  facts(): Readonly<Record<string, unknown>>;
}

const nobody = { busy: 'no process reads the lake' } as const;
const defaultWaitingBytes = 8 * 1024 * 1024;
/** Leaves time below the promised two seconds for parsing and the way back. */
const defaultAnswerWithinMs = 1750;

const nobodyLooks: LiveEvents = { isWanted: () => false, stored: () => undefined };

/** Creates the response to requests that failed inside the service; the log of them is bounded. */
function createFail(importResponses: ImportResponses, logger: Logger): Fail {
  const failures = createRateLimitedLog((fields) => logger.error(fields, 'request failed'), failureBound);
  return (error, { request, response, idApp, method, span }) => {
    endRefusedSpan(span, { reason: 'internal' });
    if (request.destroyed && !request.complete) return;
    const path = request.url?.split('?')[0]?.slice(0, 200);
    failures.add({ error: describeError(error), method: request.method, path });
    if (response.headersSent) response.destroy();
    else importResponses.refuse(response, { reason: 'internal', detail: 'internal error' }, { method, idApp });
  };
}

/** Starts to take events. `stop` ends listening, finishes the requests in progress, and returns after their answers. */
export async function startIngest(dependencies: IngestDependencies, options: IngestOptions): Promise<Ingest> {
  const { access, clock, publisher, receiptKeys, keyMask, tracing, isDiskLow = () => false } = dependencies;
  const {
    refusals = noRefusalRecorder,
    live = nobodyLooks,
    ask = async () => nobody,
    clientDiagnosticsView,
  } = dependencies;
  const { maxWaitingBytes = defaultWaitingBytes, answerWithinMs = defaultAnswerWithinMs, host } = options;
  const logger = dependencies.logger.child({ stage: 'ingest' });
  const metrics = createIngestMetrics(dependencies.metrics);
  const unavailability = createUnavailability(isDiskLow);
  const signReceipts = receiptKeys === undefined ? undefined : createReceiptSigner(receiptKeys, clock);
  const groupCommit = createGroupCommit(
    { publisher, logger, onGroup: (figures) => metrics.group(figures), isDiskLow, unavailability, signReceipts },
    { maxWaitingBytes, answerWithinMs },
  );
  followIngest(
    dependencies.metrics,
    () => groupCommit.waitingBytes(),
    () => clientDiagnosticsView?.hub.size() ?? 0,
  );

  const refusalLog = createRefusalLog((fields) => logger.info(fields, 'request refused'));
  const importResponses = createImportResponses({ metrics, refusalLog, isClosing: () => isClosing(server) });
  const fail = createFail(importResponses, logger);
  const handed = { access, groupCommit, clock, metrics, importResponses, refusals, live, keyMask, tracing, fail };
  const imports = createImportHandler(handed);
  const server = createServer(
    { ...defaultServerLimits, ...options.limits },
    {
      take: (request, response) => imports.take(request, response),
      onProtocolError: (refusal) => metrics.refused(refusal.reason),
      onBadUrl: (path, _request, response) =>
        importResponses.refuse(response, refuseUnknownPath(path), { idApp: undefined }),
    },
    logger,
  );
  const { version } = findBuild();
  const lookUp = createEventLookup({ access, importResponses, queryEvent: ask, keyMask });
  addImportRoutes(server, { access, imports, lookUp, importResponses, refusals, fail, receiptKeys }, version);
  if (clientDiagnosticsView !== undefined)
    addDiagnosticsRoutes(server, { access, importResponses, fail, view: clientDiagnosticsView });
  dependencies.addRoutes?.(server);

  try {
    await server.listen({ host, port: options.port });
  } catch (error) {
    const hint = 'Choose another port by TRIBUTARY_S2S_PORT or --s2s-port.';
    throw toListenError(error, host, options.port, hint);
  }
  const port = portOf(server.server);
  logger.info({ host, port }, 'ingest is listening');

  async function stop(): Promise<void> {
    // An event stream would keep the server open until its client leaves.
    clientDiagnosticsView?.hub.close();
    await server.close();
    await groupCommit.drain();
    refusalLog.stop();
  }
  let stopped: Promise<void> | undefined;
  const facts = (): Readonly<Record<string, unknown>> => ({
    ...metrics.counts(),
    waitingBytes: groupCommit.waitingBytes(),
    problems: unavailability.problems(),
    warnings: receiptKeys?.notices() ?? [],
  });
  return { port, facts, stop: () => (stopped ??= stop()) };
}
