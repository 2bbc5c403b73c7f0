import { datasets } from '../datasets/dataset.ts';
import { createBackoff, pause } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { isRecord } from '../runtime/files/checksummed-json.ts';
import { createPace } from './pace.ts';
import { parseObject, retryAfterMs, toLine, type HttpResponse, type HttpClient } from './http-client.ts';

export interface ImportAccess {
  /** Without a slash at the end. */
  readonly url: string;
  readonly idApp: number;
  readonly token: string;
}

/** One validation error of a batch. */
export interface ServiceValidationError {
  /** Index of the event, from 0; undefined for the whole batch. */
  readonly index: number | undefined;
  readonly field: string | undefined;
  readonly reason: string;
  readonly hint: string | undefined;
}

/** Response to a batch. `later`: send it again with the same key; it may be stored already. */
export type BatchResponse =
  | { readonly state: 'stored'; readonly unknownParameters: readonly string[] }
  | { readonly state: 'rejected'; readonly validationErrors: readonly ServiceValidationError[] }
  | { readonly state: 'later'; readonly why: string; readonly waitMs: number | undefined };

/** State of the events of a key. `receivedAtMs`: of the first event, if known. */
export interface KeyLookupResult {
  readonly isKnown: boolean;
  readonly isInLake: boolean;
  readonly receivedAtMs: number | undefined;
}

/** No definite response: the request must be retried. */
export interface RetryLater {
  readonly why: string;
  readonly waitMs: number | undefined;
}

export interface ImportArea {
  /** Error: `service_refused` if no batch of this app can be accepted. */
  postBatch(method: string, body: string, key: string): Promise<BatchResponse>;
  /** Validates a batch without storing it. Errors as above. */
  checkBatch(method: string, body: string): Promise<BatchResponse>;
  /** Looks up the batch of a key. Errors as above. */
  findKey(key: string): Promise<KeyLookupResult | RetryLater>;
  /** Errors: `service_refused` for an invalid token; `service_away`. */
  checkAccess(): Promise<void>;
  /**
   * Returns the public keys of receipts, if any, and the service's time, Unix milliseconds, if known. Error:
   * `service_away`.
   */
  identify(): Promise<{ readonly keys: readonly string[]; readonly atMs: number | undefined }>;
}

function readFault(value: unknown): ServiceValidationError {
  const { pointer, reason, hint } = isRecord(value) ? value : {};
  const at = /^\/(\d+)(?:\/(.*))?$/s.exec(typeof pointer === 'string' ? pointer : '');
  return {
    index: at === null ? undefined : Number(at[1]),
    field: at?.[2],
    reason: typeof reason === 'string' ? reason : 'is invalid',
    hint: typeof hint === 'string' ? hint : undefined,
  };
}

function readFaults(answer: HttpResponse): readonly ServiceValidationError[] {
  const { errors } = parseObject(answer.text);
  return Array.isArray(errors) && errors.length > 0
    ? errors.map(readFault)
    : [readFault({ reason: answer.header('x-error-detail') ?? describe(answer) })];
}

function describe({ status, text, header }: HttpResponse): string {
  const { error } = parseObject(text);
  const detail = header('x-error-detail');
  const what = typeof error === 'string' ? error : text.slice(0, 100);
  return toLine(`${status} ${what}${detail === undefined ? '' : `: ${detail}`}`);
}

const isLater = (status: number): boolean => status === 429 || status === 408 || status >= 500;

function later(answer: HttpResponse): RetryLater {
  return { why: describe(answer), waitMs: retryAfterMs(answer) };
}

const refusal = ({ url, idApp }: ImportAccess, answer: HttpResponse): AppError =>
  new AppError('service_refused', `${url} rejects events of app ${idApp}: ${describe(answer)}`, {
    hint:
      answer.status === 403
        ? "Check --app and the token against 'tributary app list' on the host of the service."
        : 'Check the URL of the import area.',
  });

/** Parses a response of the service. A proxy may respond with 200, too, and has stored nothing. */
function parseOurs({ url }: ImportAccess, answer: HttpResponse, member: string): Readonly<Record<string, unknown>> {
  const fields = parseObject(answer.text);
  if (typeof fields[member] === 'string') return fields;
  throw new AppError('service_refused', `${url} is not an import area: ${describe(answer)}`, {
    hint: 'Check the URL of the import area, and proxies between you and the service.',
  });
}

function toKeyAnswer({ state, events }: Readonly<Record<string, unknown>>): KeyLookupResult {
  const found = Array.isArray(events) ? events.filter(isRecord) : [];
  const receivedAt = found[0]?.['receivedAt'];
  return {
    isKnown: state !== 'never_seen',
    isInLake:
      !['in_stream', 'never_seen'].includes(String(state)) && found.every((event) => event['state'] !== 'in_stream'),
    receivedAtMs: typeof receivedAt === 'string' ? Date.parse(receivedAt) : undefined,
  };
}

/** The service permits an app 20 lookups per second, ms (docs/api.md#look-up-an-event). */
const lookupEveryMs = 60;

export function createImportArea(http: HttpClient, access: ImportAccess): ImportArea {
  const { url, idApp, token } = access;
  const lookups = createPace(lookupEveryMs);
  const headers = { authorization: token };

  async function post(address: string, more: Readonly<Record<string, string>>, body: string): Promise<BatchResponse> {
    const answer = await http.send({
      method: 'POST',
      url: `${url}/v1/${address}`,
      headers: { ...headers, 'content-type': 'application/json', prefer: 'errors=all', ...more },
      body,
    });
    if (answer.status === 200) {
      parseOurs(access, answer, 'message');
      const names = answer.header('x-unknown-parameters') ?? '';
      return { state: 'stored', unknownParameters: names === '' ? [] : names.split(/\s*,\s*/) };
    }
    if (answer.status === 400) {
      parseOurs(access, answer, 'error');
      return { state: 'rejected', validationErrors: readFaults(answer) };
    }
    if (isLater(answer.status)) return { state: 'later', ...later(answer) };
    throw refusal(access, answer);
  }

  return {
    postBatch: (method, body, key) => post(`${method}/?idApp=${idApp}`, { 'idempotency-key': key }, body),
    checkBatch: (method, body) => post(`${method}/?idApp=${idApp}&validate=1`, {}, body),
    async findKey(key) {
      const target = `${url}/v1/event?idApp=${idApp}&key=${encodeURIComponent(key)}`;
      const answer = await lookups.run(() => http.send({ method: 'GET', url: target, headers }));
      if (answer.status === 429) lookups.hold(retryAfterMs(answer) ?? 0);
      if (isLater(answer.status)) return later(answer);
      if (answer.status !== 200) throw refusal(access, answer);
      return toKeyAnswer(parseOurs(access, answer, 'state'));
    },
    async checkAccess() {
      const target = `${url}/v1/test-app-access/?idApp=${idApp}`;
      const answer = await http.send({ method: 'POST', url: target, headers, body: 'true' });
      if (answer.status === 200) return void parseOurs(access, answer, 'message');
      if (!isLater(answer.status)) throw refusal(access, answer);
      throw new AppError('service_away', `${url} cannot accept events: ${describe(answer)}`);
    },
    async identify() {
      const answer = await http.send({ method: 'GET', url: `${url}/v1/receipt-key`, headers: {} });
      const { keys } = parseObject(answer.text);
      const atMs = Date.parse(answer.header('date') ?? '');
      return {
        keys: answer.status === 200 && Array.isArray(keys) ? keys.map(String) : [],
        atMs: Number.isNaN(atMs) ? undefined : atMs,
      };
    },
  };
}

const firstWaitMs = 250;
const maxWaitMs = 10_000;

interface InsistOptions {
  readonly signal: AbortSignal;
  /** Longest time without a successful request before `service_away`, ms. */
  readonly giveUpAfterMs: number;
  /** Reports why a request waits; undefined when it continues. */
  readonly onWait: (why: string | undefined) => void;
}

/** Retries a request until the response is definite; undefined if aborted. Errors: those of `request`. */
export type RetryUntilAnswered = <T extends object>(ask: () => Promise<T | RetryLater>) => Promise<T | undefined>;

/** Creates the retries of one import, which share their timeout. */
export function createRetryUntilAnswered({ signal, giveUpAfterMs, onWait }: InsistOptions): RetryUntilAnswered {
  let answeredAt = performance.now();
  return async (request) => {
    const backoff = createBackoff(firstWaitMs, maxWaitMs);
    for (;;) {
      const answer = await request().catch((error: unknown): RetryLater => {
        if (!isAppError(error, 'service_away')) throw error;
        return { why: describeError(error), waitMs: undefined };
      });
      if (!('why' in answer)) {
        answeredAt = performance.now();
        onWait(undefined);
        return answer;
      }
      if (signal.aborted) return undefined;
      const { why, waitMs = backoff.currentMs() * (0.5 + Math.random() / 2) } = answer;
      if (performance.now() - answeredAt > giveUpAfterMs)
        throw new AppError(
          'service_away',
          `no request succeeded within ${Math.round(giveUpAfterMs / 1000)} s: ${why}`,
          {
            hint: 'Retry when the service is running: the import resumes.',
          },
        );
      onWait(why);
      await pause(waitMs, signal);
      backoff.grow();
      if (signal.aborted) return undefined;
    }
  };
}

/** The batch method of each import method. */
export const batchMethods: ReadonlyMap<string, string> = new Map(
  [...datasets.values()].flatMap(({ methods }) => {
    const all = [...methods];
    return all.flatMap(([single, { kind, batch }]): [string, string][] => {
      const [many] = all.find(([, other]) => other.batch && other.kind === kind) ?? [];
      return batch || many === undefined ? [] : [[single, many]];
    });
  }),
);

const everyMs = 500;

/**
 * Waits until the batches of the keys are in the lake, each with the timeout. Errors: `service_away`; `stopping` when
 * aborted; `service_refused`.
 */
export async function waitForLake(
  area: ImportArea,
  keys: readonly string[],
  { signal, giveUpAfterMs, onWait }: InsistOptions,
): Promise<void> {
  // The last key first: the others are usually stored by then.
  for (const key of keys.toReversed()) {
    const until = performance.now() + giveUpAfterMs;
    for (;;) {
      let why = 'the events are not committed to the lake yet';
      let waitMs = everyMs;
      try {
        const answer = await area.findKey(key);
        if ('why' in answer) [why, waitMs] = [answer.why, answer.waitMs ?? everyMs];
        else if (answer.isInLake) break;
      } catch (error) {
        if (!isAppError(error, 'service_away')) throw error;
        why = describeError(error);
      }
      if (performance.now() > until) throw new AppError('service_away', `timed out waiting for the lake: ${why}`);
      onWait(why);
      await pause(waitMs, signal);
      if (signal.aborted) throw new AppError('stopping', 'the events are stored, but not committed to the lake yet');
    }
  }
}
