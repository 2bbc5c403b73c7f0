import type { ServerResponse } from 'node:http';
import type { ImportMethod } from '../datasets/field-schema.ts';
import type { Receipt } from '../receipts/receipt.ts';
import type { IngestMetrics } from './ingest-metrics.ts';
import { describeForLog } from './refusal-recorder.ts';
import type { RefusalLog } from './refusal-log.ts';
import { answerOf, renderDetail, renderNames, type Refusal } from './refusal.ts';
import { addFormerNames } from '../runtime/former-names.ts';

/** Parts of the response to a valid request besides its status. */
export interface Accepted {
  /** Names of ignored parameters. */
  readonly unknownNames?: readonly string[];
  readonly message?: string | undefined;
  readonly receipt?: Receipt | undefined;
}

interface AnswerDependencies {
  readonly metrics: Pick<IngestMetrics, 'refused'>;
  readonly refusalLog: Pick<RefusalLog, 'add'>;
  /** Reports whether the server closes: a response is then the last one on its connection. */
  readonly isClosing: () => boolean;
}

const accepted = JSON.stringify({ message: 'Ok' });
const retryAfterSeconds = 1;

/** Renders the head of every response, as alternating names and values. Browsers must not guess a type. */
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

function nameUnknown(names: readonly string[] = []): readonly string[] {
  return names.length === 0 ? [] : ['x-unknown-parameters', renderNames(names)];
}

/** Writes the response to a refusal; `more`: names and values of further headers. */
export function writeRefusal(response: ServerResponse, refusal: Refusal, more: readonly string[] = []): void {
  const { reason, detail, unknownNames, all } = refusal;
  const { status, error, body: short } = answerOf(reason);
  const errorsOmitted = all?.omitted === 0 ? undefined : all?.omitted;
  const body =
    all === undefined ? short : JSON.stringify(addFormerNames('errors', { error, errors: all.listed, errorsOmitted }));
  const applied = all === undefined ? [] : ['preference-applied', 'errors=all'];
  const detailHeader = ['x-error-detail', renderDetail(detail)];
  response
    .writeHead(status, [...renderHead(body), ...detailHeader, ...nameUnknown(unknownNames), ...applied, ...more])
    .end(body);
}

/** Writes 429 for too many lookups. Imports have no such limit. */
export function writeTooMany(response: ServerResponse, detail: string): void {
  const body = JSON.stringify({ error: 'Too Many Requests' });
  const more = ['x-error-detail', renderDetail(detail), 'retry-after', String(retryAfterSeconds)];
  response.writeHead(429, [...renderHead(body), ...more]).end(body);
}

export type ImportResponses = ReturnType<typeof createImportResponses>;

/** Creates the responses of one server, on Node's own objects, each to be written once. */
export function createImportResponses({ metrics, refusalLog, isClosing }: AnswerDependencies) {
  const lastOne = (): readonly string[] => (isClosing() ? ['connection', 'close'] : []);
  const acceptedHead = renderHead(accepted);
  const send = (response: ServerResponse, head: readonly string[], body: string): void =>
    void response.writeHead(200, [...head, ...lastOne()]).end(body);
  return {
    /** Writes the acknowledgement (docs/api.md#responses): every event is stored, unless the message says otherwise. */
    accept(response: ServerResponse, { unknownNames = [], message = 'Ok', receipt }: Accepted = {}): void {
      if (unknownNames.length === 0 && message === 'Ok' && receipt === undefined)
        return send(response, acceptedHead, accepted);
      const body = JSON.stringify({ message, receipt });
      const applied = receipt === undefined ? [] : ['preference-applied', 'receipt'];
      return send(response, [...renderHead(body), ...nameUnknown(unknownNames), ...applied], body);
    },
    /** Writes a body of JSON with status 200. */
    send: (response: ServerResponse, body: string): void => send(response, renderHead(body), body),
    /** Writes, counts and logs a refusal. `idApp` is the unchecked value of the query. */
    refuse(
      response: ServerResponse,
      refusal: Refusal,
      { method, idApp }: { readonly method?: ImportMethod | undefined; readonly idApp: unknown },
    ): void {
      const { reason } = refusal;
      const { status } = answerOf(reason);
      metrics.refused(reason);
      // Overload is one problem of the service (health), not one line per request.
      if ((status !== 500 && reason !== 'busy') || reason === 'internal') {
        const shownApp = typeof idApp === 'string' ? idApp.slice(0, 20) : undefined;
        refusalLog.add(shownApp, { method, reason, detail: describeForLog(refusal) });
      }
      const isRetried = status === 500 || reason === 'quota' || reason === 'busy';
      const retry = isRetried ? ['retry-after', String(retryAfterSeconds)] : [];
      writeRefusal(response, refusal, [...retry, ...lastOne()]);
    },
  };
}
