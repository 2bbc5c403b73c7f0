import { retry } from '../runtime/async/retry.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import type { DemoEvent } from './event-file.ts';

/** The API's limits (service.md 8): elements of a batch, bytes of a body. */
const maxBatchEvents = 20;
const maxBodyBytes = 10_240;
/** How long, and how often, one batch is tried again when the service says "retry later" or is away. */
const retryForMs = 30_000;
const retryEveryMs = 250;

export interface ImportOptions {
  /** The import area's address, without a trailing slash. */
  readonly s2s: string;
  readonly idApp: number;
  readonly token: string;
  readonly connections: number;
  /** Start of the Idempotency-Keys of this import: a batch that is sent again is stored once. */
  readonly keyPrefix: string;
  readonly signal: AbortSignal;
  /** Gets, after every batch, how many events were acknowledged so far. */
  readonly onProgress: (acknowledged: number) => void;
}

/** What was sent and acknowledged with 200. */
export interface ImportResult {
  readonly events: number;
  readonly requests: number;
  /** Events by customEventName. */
  readonly byName: ReadonlyMap<string, number>;
  /** Unix seconds, of the events that carry a time; undefined when none does. */
  readonly firstTimestamp: number | undefined;
  readonly lastTimestamp: number | undefined;
  /** Some event took its time of receipt. */
  readonly timedByReceipt: boolean;
}

interface Batch {
  readonly body: string;
  readonly events: readonly DemoEvent[];
}

/**
 * Groups events into bodies of `customEventBatch` within the API's limits, in order. An event too large for any body
 * goes alone.
 */
export async function* batchEvents(
  events: AsyncIterable<DemoEvent> | Iterable<DemoEvent>,
): AsyncGenerator<Batch, void, void> {
  let pending: DemoEvent[] = [];
  let bytes = 2;
  const flush = (): Batch => {
    const batch = { body: `[${pending.map((event) => event.json).join(',')}]`, events: pending };
    pending = [];
    bytes = 2;
    return batch;
  };
  for await (const event of events) {
    const size = Buffer.byteLength(event.json) + 1;
    if (pending.length > 0 && (pending.length === maxBatchEvents || bytes + size - 1 > maxBodyBytes)) yield flush();
    pending.push(event);
    bytes += size;
  }
  if (pending.length > 0) yield flush();
}

/**
 * Imports events as a client does: batches over several connections, each with an Idempotency-Key so that it can be
 * sent again. Resolves when every event was acknowledged; throws when the service refuses one, or for too long cannot
 * take it.
 */
export async function importEvents(
  events: AsyncIterable<DemoEvent> | Iterable<DemoEvent>,
  options: ImportOptions,
): Promise<ImportResult> {
  const batches = batchEvents(events);
  const byName = new Map<string, number>();
  let [acknowledged, requests, timedByReceipt] = [0, 0, false];
  let firstTimestamp: number | undefined;
  let lastTimestamp: number | undefined;

  const note = (event: DemoEvent): void => {
    byName.set(event.name, (byName.get(event.name) ?? 0) + 1);
    if (event.timestamp === undefined) timedByReceipt = true;
    else {
      firstTimestamp = Math.min(firstTimestamp ?? event.timestamp, event.timestamp);
      lastTimestamp = Math.max(lastTimestamp ?? event.timestamp, event.timestamp);
    }
  };
  // the first connection that fails stops the others, which would go on trying after the service is gone
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const send = async (): Promise<void> => {
    // the generator hands each batch to exactly one of the connections that ask for the next
    for (let next = await batches.next(); next.done !== true; next = await batches.next()) {
      requests += 1;
      await postBatch(next.value, `${options.keyPrefix}-${requests}`, { ...options, signal });
      next.value.events.forEach(note);
      acknowledged += next.value.events.length;
      options.onProgress(acknowledged);
    }
  };
  try {
    await Promise.all(Array.from({ length: options.connections }, send));
  } catch (error) {
    failed.abort();
    throw error;
  }
  return { events: acknowledged, requests, byName, firstTimestamp, lastTimestamp, timedByReceipt };
}

/** Sends one batch until it is acknowledged. A 500, or no answer, means "later"; any other answer is final. */
async function postBatch(batch: Batch, key: string, { s2s, idApp, token, signal }: ImportOptions): Promise<void> {
  const url = `${s2s}/v1/customEventBatch/?idApp=${idApp}`;
  const headers = { authorization: token, 'content-type': 'application/json', 'idempotency-key': key };
  const post = async (): Promise<void> => {
    signal.throwIfAborted();
    // without the signal: each request would hang a listener on it, and the service answers within two seconds
    const response = await fetch(url, { method: 'POST', headers, body: batch.body });
    const answer = await response.text();
    if (response.status === 200) return;
    const problem = `${response.status} ${answer.slice(0, 200)}`;
    if (response.status === 500) throw new Error(problem);
    const first = batch.events[0]?.json.slice(0, 200);
    throw new AppError('usage', `the import refused a batch: ${problem}; its first event: ${first}`);
  };
  const retryable = (error: unknown): boolean => !isAppError(error, 'usage') && !signal.aborted;
  await retry(post, { forMs: retryForMs, everyMs: retryEveryMs, signal, retryable }).catch((error: unknown) => {
    if (!retryable(error)) throw error;
    throw new AppError(
      'overloaded',
      `the import took a batch neither at once nor within ${retryForMs / 1000} s: ${describeError(error)}`,
    );
  });
}
