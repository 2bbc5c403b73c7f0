import { Agent, request } from 'node:http';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../src/demo/random.ts';
import { idParam, type Ledger, type Outcome } from './ledger.ts';

export interface LoadOptions {
  /** Returns the present address of the import area; called before each request. */
  readonly s2s: () => string;
  readonly idApp: number;
  readonly token: string;
  readonly random: Random;
  /** Connections that send at the same time, each one request after the other. */
  readonly clients: number;
  /** Share of requests that are batches; the rest are single events. Default one half. */
  readonly batchShare?: number;
  /** The fewest events of a batch, at most 20, which is the most; default 2. */
  readonly leastBatch?: number;
  /**
   * Off: each event is sent once, and a request without a clear response stays unknown. On: each request has an
   * Idempotency-Key and is repeated, unchanged, until it returns 200 or 4xx.
   */
  readonly idempotencyKeys?: boolean;
  /**
   * With keys: share of acknowledged requests that are sent again, as by a client that lost the response. Default none.
   */
  readonly repeatShare?: number;
  /**
   * Transactions instead of custom events, identified by their ids. Even without keys, each is repeated as with keys,
   * and by either method.
   */
  readonly revenue?: boolean;
  /** Further parameters of every event. */
  readonly params?: Readonly<Record<string, string>>;
  /** Delay of each client after a response, ms; with 0, the default, clients send as fast as the service responds. */
  readonly pauseMs?: number;
  /** Whether each request has its own connection. */
  readonly connectsAnew?: boolean;
  /** Called for each connection that is opened. */
  readonly onConnect?: () => void;
  /** Collects the bodies of responses with 200; each request then asks for a receipt. */
  readonly receipts?: string[];
  /** Receives each response other than 200: its status and body, or 0 and the error's code without a response. */
  readonly onProblem?: (status: number, text: string) => void;
  /** Receives the duration of each request, ms, and its status; 0 without a response. */
  readonly onAnswer?: (ms: number, status: number) => void;
  /** Receives the duration of each acknowledged request, ms. */
  readonly onAcknowledged?: (ms: number, events: number) => void;
}

/** Clients that send until `stop`. */
export interface Load {
  /** Completes the requests in flight; resolves when each event has its outcome in the ledger. */
  stop(): Promise<void>;
}

const requestTimeoutMs = 10_000;
/** Delay before a retry while the service is unavailable: a busy loop would take its processor. */
const awayPauseMs = 50;
const gameLevels = 40;

interface Answer {
  readonly outcome: Outcome;
  /** Whether no process accepted the request: the service is unavailable or full. */
  readonly away: boolean;
  readonly status: number;
  readonly text: string;
}

/** Returns the number of events of the next request. */
function drawSize({ random, batchShare = 0.5, leastBatch = 2 }: LoadOptions): number {
  return random.chance(batchShare) ? random.integer(leastBatch, 20) : 1;
}

/** Starts the clients. Each event is entered in the ledger before it is sent. */
export function startLoad(ledger: Ledger, options: LoadOptions): Load {
  const stopping = new AbortController();
  const agent = new Agent({ keepAlive: options.connectsAnew !== true, maxSockets: options.clients });
  const send = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const answer = await sendNext(ledger, options, agent, drawSize(options));
      const pauseMs = answer.away ? awayPauseMs : (options.pauseMs ?? 0);
      if (pauseMs > 0) await sleep(pauseMs);
    }
  };
  const clients = Promise.all(Array.from({ length: options.clients }, send));
  return {
    async stop() {
      stopping.abort();
      await clients;
      agent.destroy();
    },
  };
}

/** Sends exactly `events` events over the clients and resolves when each has its outcome. */
export async function sendLoad(ledger: Ledger, events: number, options: LoadOptions): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: options.clients });
  let left = events;
  const send = async (): Promise<void> => {
    while (left > 0) {
      const count = Math.min(left, drawSize(options));
      left -= count;
      const answer = await sendNext(ledger, options, agent, count);
      if (answer.away) await sleep(awayPauseMs);
    }
  };
  await Promise.all(Array.from({ length: options.clients }, send));
  agent.destroy();
}

async function sendNext(ledger: Ledger, options: LoadOptions, agent: Agent, count: number): Promise<Answer> {
  const ids = Array.from({ length: count }, () => ledger.nextId());
  const isRevenue = options.revenue === true;
  const events = ids.map((id) => (isRevenue ? revenueOf(id, options) : eventOf(id, options)));
  const body = JSON.stringify(count === 1 ? events[0] : events);
  const method = `${isRevenue ? 'customRevenue' : 'customEvent'}${count === 1 ? '' : 'Batch'}`;
  const repeatable = isRevenue || options.idempotencyKeys === true;
  const headers = {
    authorization: options.token,
    ...(options.idempotencyKeys === true ? { 'idempotency-key': ids[0] ?? '' } : {}),
    ...(options.receipts === undefined ? {} : { prefer: 'receipt' }),
  };
  const started = performance.now();
  let repeats = repeatable && options.random.chance(options.repeatShare ?? 0) ? 1 : 0;
  for (;;) {
    const asked = performance.now();
    const answer = await post(`${options.s2s()}/v1/${method}/?idApp=${options.idApp}`, headers, body, {
      agent,
      onConnect: options.onConnect,
    });
    options.onAnswer?.(performance.now() - asked, answer.status);
    if (answer.status === 200) options.receipts?.push(answer.text);
    else options.onProblem?.(answer.status, answer.text);
    if (repeatable && (answer.outcome === 'unknown' || answer.away)) {
      await sleep(awayPauseMs);
      continue;
    }
    if (answer.outcome === 'acknowledged' && repeats > 0) {
      repeats -= 1;
      continue;
    }
    ledger.record(ids, answer.outcome);
    if (answer.outcome === 'acknowledged') options.onAcknowledged?.(performance.now() - started, count);
    return answer;
  }
}

/** Returns a transaction whose amount identifies it. */
function revenueOf(id: string, { random }: LoadOptions): Record<string, unknown> {
  const total = `${id.slice(id.lastIndexOf('-') + 1)}.25`;
  return { customUserId: `player-${random.integer(1, 500)}`, idTransaction: id, currency: 'EUR', total: Number(total) };
}

function eventOf(id: string, { random, params }: LoadOptions): Record<string, unknown> {
  return {
    customEventName: id,
    customUserId: `player-${random.integer(1, 500)}`,
    lvid: random.hex(32),
    customEventParams: {
      ...params,
      [idParam]: id,
      level: String(random.integer(1, gameLevels)),
      text: `naïve "quoted", ${random.hex(8)}`,
    },
  };
}

/**
 * Posts once. 200: acknowledged. 4xx, or no connection at all: rejected. Otherwise it may be stored or not: unknown.
 */
function post(
  url: string,
  headers: Record<string, string>,
  body: string,
  { agent, onConnect }: { readonly agent: Agent; readonly onConnect: (() => void) | undefined },
): Promise<Answer> {
  return new Promise((resolve) => {
    const failed = (error: NodeJS.ErrnoException): void =>
      resolve({
        outcome: error.code === 'ECONNREFUSED' ? 'refused' : 'unknown',
        away: true,
        status: 0,
        text: error.code ?? error.message,
      });
    const call = request(
      url,
      {
        method: 'POST',
        headers: { ...headers, 'content-length': Buffer.byteLength(body) },
        agent,
        timeout: requestTimeoutMs,
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => void (text += chunk));
        response.once('error', failed);
        response.once('end', () => {
          const status = response.statusCode ?? 0;
          const outcome = status === 200 ? 'acknowledged' : status >= 400 && status < 500 ? 'refused' : 'unknown';
          resolve({ outcome, away: status >= 500, status, text });
        });
      },
    );
    call.once('socket', () => call.reusedSocket || onConnect?.());
    call.once('timeout', () => call.destroy(new Error('no answer in time')));
    call.once('error', failed);
    call.end(body);
  });
}
