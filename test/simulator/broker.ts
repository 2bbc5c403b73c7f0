import type { StreamMessage, StreamReader, StreamState } from '../../src/stream/stream.ts';
import { AppError } from '../../src/runtime/errors.ts';
import type { World } from './world.ts';

/** Result of a publish, as the publisher sees it. `unknown`: no response; the message may be stored now or later. */
export type PublishOutcome = 'acknowledged' | 'unknown';

/**
 * The broker's double: a stream that keeps acknowledged messages unless the simulator loses them. Otherwise it behaves
 * as real brokers have been seen to behave. It stores messages without a response, or later. A restart undoes purges.
 * Calls fail after their work was done. At times it does not respond at all.
 */
export interface Broker {
  readonly reader: StreamReader;
  publish(payload: string): Promise<PublishOutcome>;
  /** Stored messages, oldest first. */
  readonly messages: readonly StreamMessage[];
  readonly lastSequence: number;
  /** Every payload ever stored, oldest first. */
  readonly history: readonly string[];
  /** Returns an independent broker with a copy of the store, as a copied folder has it. */
  copy(): Broker;
  /** Makes every later call succeed. */
  calm(): void;
  /** Makes the broker unresponsive for a time. */
  goAway(ms: number): void;
  /** Restarts the broker: purges since the previous restart may be undone. Calls in flight fail. */
  restart(): void;
  /** Loses every message after a sequence, and reuses their sequences. */
  truncate(lastSequence: number): void;
  lose(sequence: number): void;
  /** Loses everything, including the stream's identity. */
  recreate(): void;
}

/** Content of a broker's store. */
interface Store {
  readonly messages: readonly StreamMessage[];
  readonly last: number;
  readonly life: number;
  readonly history: readonly string[];
}

/**
 * Creates a broker. `flakyShare`: the share of calls that fail or respond too late, 0 to 1; `from`: its initial store.
 */
export function createBroker(world: World, flakyShare: number, from?: Store): Broker {
  const { random } = world;
  let messages: StreamMessage[] = [...(from?.messages ?? [])];
  let purged: StreamMessage[] = [];
  let last = from?.last ?? 0;
  let life = from?.life ?? 1;
  const history = [...(from?.history ?? [])];
  let awayUntilMs = 0;
  let flaky = flakyShare;
  const waiting = new Set<() => void>();

  function store(payload: string): void {
    last += 1;
    messages.push({ sequence: last, payload: Buffer.from(payload), storedAtMs: world.clock.nowMs() });
    history.push(payload);
    for (const wake of waiting) wake();
  }

  function assertThere(): void {
    if (world.nowMs() < awayUntilMs) throw new AppError('broker_away', 'the broker does not answer');
  }

  /** Runs one call, which may fail before or after its work. */
  function call<T>(what: string, execute: () => T): Promise<T> {
    return world.operate(`broker ${what}`, () => {
      assertThere();
      const fails = random.chance(flaky);
      if (fails && random.chance(0.5)) throw new AppError('broker_away', 'the broker was not reached');
      const result = execute();
      if (fails) throw new AppError('broker_away', 'the answer was lost');
      return result;
    });
  }

  function readState(): StreamState {
    return {
      id: `SIMULATED@${life}`,
      firstSequence: messages[0]?.sequence ?? last + 1,
      lastSequence: last,
      messages: messages.length,
      bytes: 0,
      clock: { fromMs: world.clock.nowMs(), toMs: world.clock.nowMs() },
    };
  }

  function take(after: number, maxBytes: number): StreamMessage[] {
    const taken: StreamMessage[] = [];
    let bytes = 0;
    for (const message of messages.filter(({ sequence }) => sequence > after)) {
      if (message.sequence !== after + taken.length + 1)
        throw new AppError(
          'stream_gap',
          `the stream has message ${message.sequence} where ${after + taken.length + 1} should be`,
        );
      if (taken.length > 0 && bytes + message.payload.length > maxBytes) break;
      taken.push(message);
      bytes += message.payload.length;
    }
    // A broker returns the messages at hand, not always all that exist.
    return taken.slice(0, random.integer(Math.min(1, taken.length), taken.length));
  }

  async function pull(
    after: number,
    { maxBytes, waitMs, signal }: Parameters<StreamReader['pull']>[1],
  ): Promise<StreamMessage[]> {
    const deadline = world.nowMs() + waitMs;
    for (;;) {
      const taken = await call(`pull after ${after}`, () => take(after, maxBytes));
      const leftMs = deadline - world.nowMs();
      if (taken.length > 0 || leftMs <= 0 || signal?.aborted === true) return taken;
      const woken = new AbortController();
      const wake = (): void => woken.abort();
      waiting.add(wake);
      signal?.addEventListener('abort', wake, { once: true });
      await world.sleep(leftMs, woken.signal).catch(() => undefined);
      waiting.delete(wake);
      signal?.removeEventListener('abort', wake);
    }
  }

  return {
    reader: {
      state: () => call('state', readState),
      findMessage: (sequence) =>
        call(`message ${sequence}`, () => messages.find((message) => message.sequence === sequence)),
      pull,
      purgeBelow: (sequence) =>
        call(`purge below ${sequence}`, () => {
          purged.push(...messages.filter((message) => message.sequence < sequence));
          messages = messages.filter((message) => message.sequence >= sequence);
        }),
      close: () => Promise.resolve(),
    },
    async publish(payload) {
      const fate = random.next();
      if (fate >= flaky) {
        // The response is delayed too; only whether the message was stored matters.
        const done = await call('publish', () => store(payload)).then(
          () => true,
          () => false,
        );
        return done ? 'acknowledged' : 'unknown';
      }
      if (fate < flaky / 2) await world.sleep(random.integer(1, 2000));
      if (random.chance(0.7)) await world.operate('broker stores without an answer', () => store(payload));
      return 'unknown';
    },
    get messages() {
      return messages;
    },
    get lastSequence() {
      return last;
    },
    history,
    copy: () => createBroker(world, flaky, { messages, last, life, history }),
    calm() {
      flaky = 0;
      awayUntilMs = 0;
    },
    goAway(ms) {
      awayUntilMs = world.nowMs() + ms;
      world.note(`the broker is away for ${ms} ms`);
    },
    restart() {
      const back = purged.slice(random.integer(0, purged.length));
      // Only a tail without a gap is restored: purges remove the oldest messages first.
      const whole = back.filter(
        (message, index) => message.sequence === (messages[0]?.sequence ?? last + 1) - (back.length - index),
      );
      messages = [...whole, ...messages];
      purged = [];
      awayUntilMs = Math.max(awayUntilMs, world.nowMs() + 20);
      world.note(`the broker restarts; ${whole.length} purged messages are back`);
    },
    truncate(lastSequence) {
      messages = messages.filter((message) => message.sequence <= lastSequence);
      purged = purged.filter((message) => message.sequence <= lastSequence);
      world.note(`the broker loses its tail: ${last} becomes ${lastSequence}`);
      last = lastSequence;
    },
    lose(sequence) {
      messages = messages.filter((message) => message.sequence !== sequence);
      purged = [];
      world.note(`the broker loses message ${sequence}`);
    },
    recreate() {
      messages = [];
      purged = [];
      last = 0;
      life += 1;
      world.note('the stream is recreated');
    },
  };
}
