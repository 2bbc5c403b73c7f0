import { datasets } from '../datasets/dataset.ts';
import { createBackoff, pause } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { answeredAtMs, retryAfterMs, toLine, type HttpAnswer, type HttpClient } from './http-client.ts';

/** Where and as whom events are imported. */
export interface ImportAccess {
  /** The address of the import area, without a slash at its end. */
  readonly url: string;
  readonly idApp: number;
  readonly token: string;
}

/** One thing that is wrong with a batch, as the service says it. */
export interface ServiceFault {
  /** Which event of the batch, from 0; undefined: the batch as a whole. */
  readonly index: number | undefined;
  readonly field: string | undefined;
  readonly reason: string;
  readonly hint: string | undefined;
}

/**
 * What became of a batch. `later`: it is to be sent again, the same under the same key; it may be stored already.
 */
export type BatchAnswer =
  | { readonly state: 'stored'; readonly unknownParameters: readonly string[] }
  | { readonly state: 'refused'; readonly faults: readonly ServiceFault[] }
  | { readonly state: 'later'; readonly why: string; readonly waitMs: number | undefined };

/** Where the events of a batch are, by its key. `receivedAtMs`: when the first of them was received, where known. */
export interface KeyAnswer {
  readonly isKnown: boolean;
  readonly isInLake: boolean;
  readonly receivedAtMs: number | undefined;
}

/** What tells a service from another, and its clock from the caller's. */
export interface ServiceIdentity {
  /** The public keys that it signs receipts with; empty where it has none. */
  readonly keys: readonly string[];
  /** Its time, Unix milliseconds; undefined where it does not say. */
  readonly atMs: number | undefined;
}

/** Not to be said now: try again. */
export interface Later {
  readonly why: string;
  readonly waitMs: number | undefined;
}

/** The import area, as an app's client calls it. */
export interface ImportArea {
  /** Error: `service_refused` where no batch of this app can be taken. */
  postBatch(method: string, body: string, key: string): Promise<BatchAnswer>;
  /** Asks what would become of a batch, which is not stored. Errors as above. */
  checkBatch(method: string, body: string): Promise<BatchAnswer>;
  /** Asks where the batch of a key is. Errors as above. */
  findKey(key: string): Promise<KeyAnswer | Later>;
  /** Errors: `service_refused` when the token does not suit the app; `service_away`. */
  checkAccess(): Promise<void>;
  /** Error: `service_away`. */
  identify(): Promise<ServiceIdentity>;
}

const isOther = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

function parseObject(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return isOther(value) ? value : {};
  } catch {
    return {};
  }
}

function readFault(value: unknown): ServiceFault {
  const { pointer, reason, hint } = isOther(value) ? value : {};
  const at = /^\/(\d+)(?:\/(.*))?$/s.exec(typeof pointer === 'string' ? pointer : '');
  return {
    index: at === null ? undefined : Number(at[1]),
    field: at?.[2],
    reason: typeof reason === 'string' ? reason : 'is refused',
    hint: typeof hint === 'string' ? hint : undefined,
  };
}

function readFaults(answer: HttpAnswer): readonly ServiceFault[] {
  const { errors } = parseObject(answer.text);
  return Array.isArray(errors) && errors.length > 0
    ? errors.map(readFault)
    : [readFault({ reason: answer.header('x-error-detail') ?? describe(answer) })];
}

/** What an answer says, in a line. */
function describe({ status, text, header }: HttpAnswer): string {
  const { error } = parseObject(text);
  const detail = header('x-error-detail');
  const what = typeof error === 'string' ? error : text.slice(0, 100);
  return toLine(`${status} ${what}${detail === undefined ? '' : `: ${detail}`}`);
}

const isLater = (status: number): boolean => status === 429 || status === 408 || status >= 500;

function later(answer: HttpAnswer): Later {
  return { why: describe(answer), waitMs: retryAfterMs(answer) };
}

/** What may be wrong with an answer as a whole. */
function createJudges({ url, idApp }: ImportAccess) {
  const refusal = (answer: HttpAnswer): AppError =>
    new AppError('service_refused', `${url} refuses to take events of app ${idApp}: ${describe(answer)}`, {
      hint:
        answer.status === 403
          ? "Compare --app and the token with 'tributary app list' on the service's host."
          : 'Look whether the address is that of the import area.',
    });
  /** A page of a proxy, say, answers 200 as well, and has stored nothing. Returns what the answer holds. */
  function parseOurs(answer: HttpAnswer, member: string): Readonly<Record<string, unknown>> {
    const fields = parseObject(answer.text);
    if (typeof fields[member] === 'string') return fields;
    throw new AppError('service_refused', `${url} does not answer as an import area does: ${describe(answer)}`, {
      hint: 'Look whether the address is that of the import area, and what stands between.',
    });
  }
  return { refusal, parseOurs };
}

function toKeyAnswer({ state, events }: Readonly<Record<string, unknown>>): KeyAnswer {
  const found = Array.isArray(events) ? events.filter(isOther) : [];
  const receivedAt = found[0]?.['receivedAt'];
  return {
    isKnown: state !== 'never_seen',
    isInLake:
      !['in_stream', 'never_seen'].includes(String(state)) && found.every((event) => event['state'] !== 'in_stream'),
    receivedAtMs: typeof receivedAt === 'string' ? Date.parse(receivedAt) : undefined,
  };
}

/** Creates the calls of one app. */
export function createImportArea(http: HttpClient, access: ImportAccess): ImportArea {
  const { url, idApp, token } = access;
  const headers = { authorization: token };
  const { refusal, parseOurs } = createJudges(access);

  async function post(address: string, more: Readonly<Record<string, string>>, body: string): Promise<BatchAnswer> {
    const answer = await http.send({
      method: 'POST',
      url: `${url}/v1/${address}`,
      headers: { ...headers, 'content-type': 'application/json', prefer: 'errors=all', ...more },
      body,
    });
    if (answer.status === 200) {
      parseOurs(answer, 'message');
      const names = answer.header('x-unknown-parameters') ?? '';
      return { state: 'stored', unknownParameters: names === '' ? [] : names.split(/\s*,\s*/) };
    }
    if (answer.status === 400) {
      parseOurs(answer, 'error');
      return { state: 'refused', faults: readFaults(answer) };
    }
    if (isLater(answer.status)) return { state: 'later', ...later(answer) };
    throw refusal(answer);
  }

  return {
    postBatch: (method, body, key) => post(`${method}/?idApp=${idApp}`, { 'idempotency-key': key }, body),
    checkBatch: (method, body) => post(`${method}/?idApp=${idApp}&validate=1`, {}, body),
    async findKey(key) {
      const target = `${url}/v1/event?idApp=${idApp}&key=${encodeURIComponent(key)}`;
      const answer = await http.send({ method: 'GET', url: target, headers });
      if (isLater(answer.status)) return later(answer);
      if (answer.status !== 200) throw refusal(answer);
      return toKeyAnswer(parseOurs(answer, 'state'));
    },
    async checkAccess() {
      const target = `${url}/v1/test-app-access/?idApp=${idApp}`;
      const answer = await http.send({ method: 'POST', url: target, headers, body: 'true' });
      if (answer.status === 200) return void parseOurs(answer, 'message');
      if (!isLater(answer.status)) throw refusal(answer);
      throw new AppError('service_away', `${url} cannot take events now: ${describe(answer)}`);
    },
    async identify() {
      const answer = await http.send({ method: 'GET', url: `${url}/v1/receipt-key`, headers: {} });
      const { keys } = parseObject(answer.text);
      return {
        keys: answer.status === 200 && Array.isArray(keys) ? keys.map(String) : [],
        atMs: answeredAtMs(answer),
      };
    },
  };
}

const firstWaitMs = 250;
const longestWaitMs = 10_000;

export interface InsistOptions {
  /** Ends the waiting. */
  readonly signal: AbortSignal;
  /** `service_away` when nothing has been answered to anybody for so long, milliseconds. */
  readonly patienceMs: number;
  /** Something has to wait, and why; undefined: it goes on. */
  readonly onWait: (why: string | undefined) => void;
}

/** Asks until there is an answer that says something; undefined when the signal ended it. Errors: those of `ask`. */
export type Insist = <T extends object>(ask: () => Promise<T | Later>) => Promise<T | undefined>;

/** Makes one try of a question: the answer, or why there is none. */
async function tryOnce<T extends object>(ask: () => Promise<T | Later>): Promise<T | Later> {
  try {
    return await ask();
  } catch (error) {
    if (!isAppError(error, 'service_away')) throw error;
    return { why: describeError(error), waitMs: undefined };
  }
}

/** Creates the asking of one import: its patience is that of all its questions together. */
export function createInsist({ signal, patienceMs, onWait }: InsistOptions): Insist {
  let answeredAt = performance.now();
  return async (ask) => {
    const backoff = createBackoff(firstWaitMs, longestWaitMs);
    for (;;) {
      const answer = await tryOnce(ask);
      if (!('why' in answer)) {
        answeredAt = performance.now();
        onWait(undefined);
        return answer;
      }
      if (signal.aborted) return undefined;
      const { why, waitMs = backoff.currentMs() * (0.5 + Math.random() / 2) } = answer;
      if (performance.now() - answeredAt > patienceMs)
        throw new AppError('service_away', `nothing was taken for ${Math.round(patienceMs / 1000)} s: ${why}`, {
          hint: 'Repeat the command when the service runs again: it goes on where it was.',
        });
      onWait(why);
      await pause(waitMs, signal);
      backoff.grow();
      if (signal.aborted) return undefined;
    }
  };
}

/** What can be imported, by the name of the method for one: that of the method for a batch. */
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

export interface LakeWaitOptions {
  readonly signal: AbortSignal;
  /** How long one key may stay on its way, milliseconds. */
  readonly patienceMs: number;
  readonly onWait: (why: string) => void;
}

/**
 * Waits until the batches of some keys are in the lake, and so in exports. Errors: `service_away` when that takes too
 * long; `stopping` when the signal ends it; `service_refused`.
 */
export async function waitForLake(area: ImportArea, keys: readonly string[], options: LakeWaitOptions): Promise<void> {
  const { signal, patienceMs, onWait } = options;
  // The last ones first: once they are there, the others are.
  for (const key of keys.toReversed()) {
    const until = performance.now() + patienceMs;
    for (;;) {
      let why = 'the events are on their way to the lake';
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
      if (signal.aborted) throw new AppError('stopping', 'the events are stored, and on their way to the lake');
    }
  }
}
