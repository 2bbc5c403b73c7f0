import type { AddressInfo } from 'node:net';
import type { AccessReader } from '../access/access.ts';
import type { KeyMask } from '../datasets/event-id.ts';
import type { ReceiptKeys } from '../receipts/receipt-keys.ts';
import type { Clock } from '../runtime/clock.ts';
import { createBoundedLog, failureBound } from '../runtime/conditions/bounded-log.ts';
import { describeError } from '../runtime/errors.ts';
import { toListenError } from '../runtime/http/ports.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { readPackageJson } from '../runtime/files/package-files.ts';
import type { AskForEvent } from '../stream/event-questions.ts';
import type { StreamPublisher } from '../stream/stream.ts';
import { createAnswers, type Answers, createRefusalLog } from './answers.ts';
import { createEventLookUp } from './event-look-up.ts';
import { createGroupCommit } from './group-commit.ts';
import { createImportHandler, type Fail, type LiveEvents } from './import-handler.ts';
import { createIngestMetrics } from './ingest-metrics.ts';
import { createReceiptSigner } from './receipts.ts';
import { noRefusalKeeper, type RefusalKeeper } from './refusal-keeper.ts';
import { addSenderRoutes, type SenderView } from './sender-routes.ts';
import { addImportRoutes, refusePath } from './routes.ts';
import { createServer, defaultServerLimits, isClosing, type ImportServer, type ServerLimits } from './server.ts';
import { createTrouble } from './trouble.ts';

/**
 * Ingest: HTTP requests become events in the stream.
 *
 * In: POST /v1/<method>, JSON of one event or a batch (service.md 2.1 to 2.3, 4.1, 4.2), from clients' servers.
 * Out: lines of NDJSON, many requests' in one message of the stream; 200 when that message is fsynced, else a refusal.
 * Invariant: a request is taken whole or not at all; what is published is rendered from validated fields, never the
 * client's bytes; every request has its answer within two seconds of its last byte.
 * Crash: requests without an answer are unknown to their clients: stored or not. Nothing rests here.
 */

interface IngestDependencies {
  readonly access: AccessReader;
  readonly publisher: StreamPublisher;
  /** The keys of receipts. Absent: none is given. */
  readonly receiptKeys?: ReceiptKeys | undefined;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
  /**
   * Says that the stream's disk has come down to its reserve: events are then refused. Absent: its disk is
   * not this service's to watch.
   */
  readonly isDiskLow?: () => boolean;
  /** Asks who reads the lake where an event is. Absent: nobody does. */
  readonly ask?: AskForEvent;
  /** The mask of the lake that the events go to. */
  readonly keyMask?: KeyMask | undefined;
  /** Keeps what was refused for the app's owner; absent: nobody does. */
  readonly refusals?: RefusalKeeper;
  /** Shows acknowledged events as they arrive; absent: nobody looks. */
  readonly live?: LiveEvents;
  /** What senders may look at beside the answers to their requests; absent: nothing. */
  readonly senderView?: SenderView;
  /** Adds routes of the composition's own: health. */
  readonly addRoutes?: (server: ImportServer) => void;
}

export interface IngestOptions {
  readonly host: string;
  /** 0: any free port. Workers of a cluster share the port. */
  readonly port: number;
  readonly limits?: Partial<ServerLimits>;
  /** Most bytes that wait for the broker in this process. */
  readonly maxWaitingBytes?: number;
  /** Every import request is answered within this time of its last byte, milliseconds. */
  readonly answerWithinMs?: number;
}

export interface Ingest extends Stoppable {
  readonly port: number;
  /** Short facts for the service's status: what waits, and what keeps events from being stored. */
  facts(): Readonly<Record<string, unknown>>;
}

const nobody = { busy: 'nobody reads the lake' } as const;
const mebibyte = 1024 * 1024;
/** Leaves room below the promised two seconds for parsing and the way back. */
const defaultAnswerWithinMs = 1750;

const nobodyLooks: LiveEvents = { isWanted: () => false, stored: () => undefined };

/** Answers requests that could not be handled, for a reason that is ours, and logs so many of them a second. */
function createFail(answers: Answers, logger: Logger): Fail {
  const failures = createBoundedLog((fields) => logger.error(fields, 'request failed'), failureBound);
  return (error, { request, response, idApp, method }) => {
    if (request.destroyed && !request.complete) return;
    const path = request.url?.split('?')[0]?.slice(0, 200);
    failures.add({ error: describeError(error), method: request.method, path });
    if (response.headersSent) response.destroy();
    else answers.refuse(response, { reason: 'internal', detail: 'internal error' }, { method, idApp });
  };
}

/**
 * Starts taking events. `stop` ends listening, finishes the requests in progress, and returns when all are answered.
 */
export async function startIngest(dependencies: IngestDependencies, options: IngestOptions): Promise<Ingest> {
  const logger = dependencies.logger.child({ stage: 'ingest' });
  const metrics = createIngestMetrics(dependencies.metrics);
  const isDiskLow = dependencies.isDiskLow ?? (() => false);
  const trouble = createTrouble(isDiskLow);
  const { access, clock, publisher, receiptKeys, keyMask } = dependencies;
  const signReceipts = receiptKeys === undefined ? undefined : createReceiptSigner(receiptKeys, clock);
  const groupCommit = createGroupCommit(
    { publisher, logger, onGroup: (figures) => metrics.group(figures), isDiskLow, trouble, signReceipts },
    {
      maxWaitingBytes: options.maxWaitingBytes ?? 8 * mebibyte,
      answerWithinMs: options.answerWithinMs ?? defaultAnswerWithinMs,
    },
  );
  dependencies.metrics.readGauge('ingest_waiting_bytes', 'Bytes that wait for the broker.', () =>
    groupCommit.waitingBytes(),
  );

  const { refusals = noRefusalKeeper, live = nobodyLooks, senderView } = dependencies;
  dependencies.metrics.readGauge(
    'ingest_live_listeners',
    'Clients that are shown what arrives.',
    () => senderView?.hub.size() ?? 0,
  );
  const answers = createAnswers({ metrics, refusals: createRefusalLog(logger), isClosing: () => isClosing(server) });
  const fail = createFail(answers, logger);
  const handed = { access, groupCommit, clock, metrics, answers, refusals, live, keyMask, fail };
  const imports = createImportHandler(handed);
  const server = createServer(
    { ...defaultServerLimits, ...options.limits },
    {
      take: (request, response) => imports.take(request, response),
      onProtocolError: (refusal) => metrics.refused(refusal.reason),
      onBadUrl: (path, _request, response) => answers.refuse(response, refusePath(path), { idApp: undefined }),
    },
    logger,
  );
  const { version } = readPackageJson('package.json') as { version: string };
  const lookUp = createEventLookUp({ access, answers, ask: dependencies.ask ?? (async () => nobody), keyMask });
  addImportRoutes(server, { access, imports, lookUp, answers, refusals, fail, receiptKeys }, version);
  if (senderView !== undefined) addSenderRoutes(server, { access, answers, fail, view: senderView });
  dependencies.addRoutes?.(server);

  try {
    await server.listen({ host: options.host, port: options.port });
  } catch (error) {
    const hint = 'Choose another port by TRIBUTARY_S2S_PORT or --s2s-port.';
    throw toListenError(error, options.host, options.port, hint);
  }
  const { port } = server.server.address() as AddressInfo;
  logger.info({ host: options.host, port }, 'ingest is listening');

  async function stop(): Promise<void> {
    // An answer that goes on until its client goes would keep the server.
    senderView?.hub.close();
    await server.close();
    await groupCommit.drain();
  }
  let stopped: Promise<void> | undefined;
  const facts = (): Readonly<Record<string, unknown>> => ({
    ...metrics.counts(),
    waitingBytes: groupCommit.waitingBytes(),
    problems: trouble.problems(),
    notices: receiptKeys?.notices() ?? [],
  });
  return { port, facts, stop: () => (stopped ??= stop()) };
}
