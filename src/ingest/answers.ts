import type { ServerResponse } from 'node:http';
import type { ImportMethod } from '../datasets/field-schema.ts';
import type { Receipt } from '../receipts/receipt.ts';
import type { IngestMetrics } from './ingest-metrics.ts';
import { describeForLog } from './refusal-keeper.ts';
import { answerOf, renderDetail, renderNames, type Refusal } from './refusal.ts';
import { createBoundedLog } from '../runtime/conditions/bounded-log.ts';
import type { Logger } from '../runtime/logger.ts';

/** Logs refused requests, so many a second and no more: a client that does everything wrong must not fill the disk. */
interface RefusalLog {
  add(refusal: Refusal, request: { readonly method: string | undefined; readonly idApp: string | undefined }): void;
}

/** Creates the log; what it leaves out is counted in the next line. */
export function createRefusalLog(logger: Logger): RefusalLog {
  const log = createBoundedLog((fields) => logger.info(fields, 'request refused'), { maxLines: 20, windowMs: 1000 });
  return { add: ({ reason, detail }, request) => log.add({ ...request, reason, detail }) };
}

/** Answers requests of the import area on Node's own response, which must not have been answered yet. */
export interface Answers {
  /** The confirmation of service.md 4.1: every event of the request is stored, or what else the message says. */
  accept(response: ServerResponse, said?: Accepted): void;
  /** A body of JSON with status 200. */
  send(response: ServerResponse, body: string): void;
  /** A refusal, counted and logged. `idApp` is the query's, whatever it is. */
  refuse(
    response: ServerResponse,
    refusal: Refusal,
    request: { readonly method?: ImportMethod | undefined; readonly idApp: unknown },
  ): void;
}

/** What an answer says beside that a request is good. */
export interface Accepted {
  /** Names of parameters that were ignored. */
  readonly unknownNames?: readonly string[];
  /** Another text than `Ok`. */
  readonly message?: string | undefined;
  readonly receipt?: Receipt | undefined;
}

interface AnswerDependencies {
  readonly metrics: Pick<IngestMetrics, 'refused'>;
  readonly refusals: RefusalLog;
  /** Says that the server closes: an answer is then the last one on its connection. */
  readonly isClosing: () => boolean;
}

const accepted = JSON.stringify({ message: 'Ok' });
const retryAfterSeconds = 1;

/** The head of every answer, as names and values in turn. Nothing is of a kind that a browser should guess. */
function renderHead(body: string): readonly string[] {
  return [
    'content-type',
    'application/json; charset=utf-8',
    'content-length',
    String(Buffer.byteLength(body)),
    'x-content-type-options',
    'nosniff',
  ];
}

/** The header that names parameters which were ignored. */
function nameUnknown(names: readonly string[] = []): readonly string[] {
  return names.length === 0 ? [] : ['x-unknown-parameters', renderNames(names)];
}

/** Writes the answer to a refusal; `more`: names and values of further headers, in turn. */
export function writeRefusal(response: ServerResponse, refusal: Refusal, more: readonly string[] = []): void {
  const { reason, detail, unknownNames, all } = refusal;
  const { status, error, body: short } = answerOf(reason);
  const leftOut = all === undefined || all.leftOut === 0 ? undefined : all.leftOut;
  const body = all === undefined ? short : JSON.stringify({ error, errors: all.faults, leftOut });
  const applied = all === undefined ? [] : ['preference-applied', 'errors=all'];
  response
    .writeHead(status, [
      ...renderHead(body),
      'x-error-detail',
      renderDetail(detail),
      ...nameUnknown(unknownNames),
      ...applied,
      ...more,
    ])
    .end(body);
}

/**
 * Answers who asks too often about an app. Not one of the refusals of imports: those are never counted against anybody.
 */
export function writeTooMany(response: ServerResponse, detail: string): void {
  const body = JSON.stringify({ error: 'Too Many Requests' });
  response
    .writeHead(429, [
      ...renderHead(body),
      'x-error-detail',
      renderDetail(detail),
      'retry-after',
      String(retryAfterSeconds),
    ])
    .end(body);
}

/** Creates the answers of one server. */
export function createAnswers({ metrics, refusals, isClosing }: AnswerDependencies): Answers {
  const lastOne = (): readonly string[] => (isClosing() ? ['connection', 'close'] : []);
  const acceptedHead = renderHead(accepted);
  const send = (response: ServerResponse, head: readonly string[], body: string): void =>
    void response.writeHead(200, [...head, ...lastOne()]).end(body);
  return {
    accept(response, { unknownNames = [], message = 'Ok', receipt } = {}) {
      if (unknownNames.length === 0 && message === 'Ok' && receipt === undefined)
        return send(response, acceptedHead, accepted);
      const body = JSON.stringify({ message, receipt });
      const applied = receipt === undefined ? [] : ['preference-applied', 'receipt'];
      return send(response, [...renderHead(body), ...nameUnknown(unknownNames), ...applied], body);
    },
    send: (response, body) => send(response, renderHead(body), body),
    refuse(response, refusal, { method, idApp }) {
      const { reason } = refusal;
      const { status } = answerOf(reason);
      metrics.refused(reason);
      // What the service cannot take now is reported once, as a problem of the service (health), not once a request.
      if ((status !== 500 && reason !== 'busy') || reason === 'internal')
        refusals.add(
          { reason, detail: describeForLog(refusal) },
          { method, idApp: typeof idApp === 'string' ? idApp.slice(0, 20) : undefined },
        );
      writeRefusal(response, refusal, [
        ...(status === 500 || reason === 'quota' || reason === 'busy'
          ? ['retry-after', String(retryAfterSeconds)]
          : []),
        ...lastOne(),
      ]);
    },
  };
}
