import { keyedEventIds } from '../../src/datasets/event-id.ts';
import { renderCanonicalInput } from '../../src/datasets/event-line.ts';
import { renderLine } from '../helpers/render-line.ts';
import type { Broker, PublishOutcome } from './broker.ts';
import type { World } from './world.ts';

/** A client's request, with its events in the order of the message. */
export interface SentRequest {
  /** The Idempotency-Key; undefined if it has none. */
  readonly key: string | undefined;
  /**
   * Names of the events that become rows, in order. The ledger creates the names and sends them in the events. Two
   * names are equal if and only if their events under one key are equal. So two requests under a key are the same if
   * and only if these lists are equal.
   */
  readonly names: readonly string[];
  /** Names of the events that must fail. */
  readonly badNames: readonly string[];
  readonly receivedAtMs: number;
}

/** A published message, and what to expect of it. */
export interface SentMessage {
  readonly payload: string;
  readonly requests: readonly SentRequest[];
  outcome: PublishOutcome | 'on its way';
  /** Time of the response to the client, on the monotonic clock. */
  answeredMs: number;
  /** Whether the broker has lost it before the lake had it durably. */
  isLost: boolean;
}

/** Everything sent to the stream: the truth that the lake is compared with. */
export interface Ledger {
  readonly sent: readonly SentMessage[];
  /**
   * Publishes a request of some events. One under a key is repeated, as clients repeat requests without a response, or
   * the key is reused for another request.
   */
  send(): void;
  /** Reports whether every client has its last response. */
  isQuiet(): boolean;
  find(payload: Uint8Array): readonly SentMessage[];
}

/** Time for which a key is remembered, between receipts. */
export const keyWindowMs = 24 * 3_600_000;

/** Reports whether two requests under a key are the same, sent twice. */
export function isSameRequest(a: SentRequest, b: SentRequest): boolean {
  return a.names.length === b.names.length && a.names.every((name, index) => name === b.names[index]);
}

const daySeconds = 86_400;

const methods = {
  login: { one: 'login', many: 'loginBatch' },
  custom_event: { one: 'customEvent', many: 'customEventBatch' },
} as const;

interface Client {
  readonly idApp: number;
  readonly kind: 'login' | 'custom_event';
  /** Sends one event by the deprecated method. */
  readonly isSparing: boolean;
  readonly key: string | undefined;
  readonly eventTime: number;
}

/**
 * Creates the ledger of a world's clients. `before`: messages of another ledger when its lake and broker were copied.
 */
export function createLedger(world: World, broker: Broker, before: readonly SentMessage[] = []): Ledger {
  const { random, clock } = world;
  const sent: SentMessage[] = before.map((message) => ({
    ...message,
    outcome: message.outcome === 'on its way' ? 'unknown' : message.outcome,
  }));
  const byPayload = new Map<string, SentMessage[]>();
  let clients = 0;
  let names = 0;
  let busy = 0;

  const note = (message: SentMessage): void =>
    void byPayload.set(message.payload, [...(byPayload.get(message.payload) ?? []), message]);
  for (const message of sent) note(message);

  const newId = (): string =>
    `0190${random.hex(4)}-${random.hex(4)}-7${random.hex(3)}-8${random.hex(3)}-${random.hex(12)}`;
  const newNames = (count: number): string[] =>
    Array.from({ length: count }, () => `${before.length}-e${(names += 1)}`);

  /** Renders a request's valid events as ingest does. */
  function render(
    { idApp, kind, isSparing, key, eventTime }: Client,
    { names: own, receivedAtMs }: SentRequest,
  ): string {
    const method = methods[kind][isSparing && own.length === 1 ? 'one' : 'many'];
    const events = own.map((name) => ({
      customUserId: name,
      eventTimestamp: eventTime,
      ...(kind === 'custom_event' ? { customEventName: 'x' } : {}),
    }));
    const ids =
      key === undefined
        ? newId
        : keyedEventIds({
            idApp,
            key,
            method,
            eventTexts: events.map((fields) => renderCanonicalInput(kind, 'web', fields)),
          });
    const context = { kind, idApp, platform: 'web', receivedAtMs, ids } as const;
    return events.map((fields, index) => renderLine(context, fields, index)).join('');
  }

  /** Returns a bad event: a value that no column accepts, or a line that is not JSON. */
  function badLine(name: string): string {
    const event = {
      event_id: newId(),
      kind: 'login',
      id_app: 1,
      event_time: 1,
      received_at: clock.nowMs(),
      custom_user_id: name,
      age: 'x',
    };
    return random.chance(0.5) ? `${JSON.stringify(event)}\n` : `{"custom_user_id":"${name}",\n`;
  }

  const newClient = (isKeyed: boolean): Client => ({
    idApp: random.integer(1, 3),
    kind: random.pick(['login', 'custom_event'] as const),
    isSparing: random.chance(0.5),
    key: isKeyed ? random.hex(16) : undefined,
    eventTime: Math.floor(clock.nowMs() / 1000) - random.pick([0, 0, daySeconds, 40 * daySeconds]),
  });

  async function publish(
    client: Client,
    lists: readonly (readonly string[])[],
    badNames: readonly string[] = [],
  ): Promise<void> {
    const requests = lists.map((own): SentRequest => ({
      key: client.key === undefined ? undefined : `${client.idApp} ${client.key}`,
      names: own,
      badNames,
      receivedAtMs: clock.nowMs(),
    }));
    const message: SentMessage = {
      payload: [...requests.map((request) => render(client, request)), ...badNames.map(badLine)].join(''),
      requests,
      outcome: 'on its way',
      answeredMs: Infinity,
      isLost: false,
    };
    sent.push(message);
    note(message);
    message.outcome = await broker.publish(message.payload);
    message.answeredMs = world.nowMs();
  }

  /** Simulates a client's mistake: it reuses the key for another request, longer, shorter or changed. */
  function spoil(own: readonly string[]): readonly string[] {
    world.count('keysReused');
    const how = random.pick(['longer', 'shorter', 'changed'] as const);
    if (how === 'longer') return [...own, ...newNames(random.integer(1, 2))];
    if (how === 'shorter' && own.length > 1) return own.slice(0, random.integer(1, own.length - 1));
    return [...own.slice(0, -1), ...newNames(1)];
  }

  async function sendKeyed(): Promise<void> {
    const client = newClient(true);
    const first = newNames(random.integer(1, 3));
    const times = random.integer(1, 4);
    for (let time = 0; time < times; time += 1) {
      const next = (): readonly string[] => (time > 0 && random.chance(0.3) ? spoil(first) : first);
      // Two attempts of a client may be in one group commit.
      await publish(client, random.chance(0.2) ? [next(), next()] : [next()]);
      await world.sleep(random.integer(1, 5000));
    }
  }

  return {
    sent,
    isQuiet: () => busy === 0,
    find: (payload) => byPayload.get(Buffer.from(payload).toString()) ?? [],
    send() {
      clients += 1;
      const isKeyed = random.chance(0.3);
      const count = random.integer(1, 5);
      const badCount = random.chance(0.1) ? 1 : 0;
      busy += 1;
      world.start(`client ${clients}`, async () => {
        await (isKeyed ? sendKeyed() : publish(newClient(false), [newNames(count)], newNames(badCount)));
        busy -= 1;
      });
    },
  };
}
