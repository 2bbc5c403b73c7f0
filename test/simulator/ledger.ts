import { isKeyedId, requestKeyOf } from '../../src/model/event-id.ts';
import type { Broker, PublishOutcome } from './broker.ts';
import type { World } from './world.ts';

/** A message as it was published, and what may be expected of it. */
export interface SentMessage {
  readonly payload: string;
  /** Ids of events that a row can be made of. */
  readonly ids: readonly string[];
  /** Ids of events that must end among the failed ones. */
  readonly badIds: readonly string[];
  outcome: PublishOutcome | 'on its way';
  /** The broker has lost it before the lake had it for good. */
  isLost: boolean;
}

/** What was sent to the stream: the truth that the lake is held against. */
export interface Ledger {
  readonly sent: readonly SentMessage[];
  /** Publishes a message of some events; a keyed request is repeated, as clients repeat what they got no answer to. */
  send(): void;
  /** Every client has had its last answer. */
  isQuiet(): boolean;
  find(payload: Uint8Array): SentMessage | undefined;
}

/** What an event is known by: its id, or its key and place when it came under an Idempotency-Key. */
export function identityOf(id: string): string {
  return isKeyedId(id) ? requestKeyOf(id) + id.slice(-2) : id;
}

const daySeconds = 86_400;

/** Creates the ledger of a world's clients. */
export function createLedger(world: World, broker: Broker): Ledger {
  const { random, clock } = world;
  const sent: SentMessage[] = [];
  const byPayload = new Map<string, SentMessage>();
  let clients = 0;
  let busy = 0;

  const newId = (): string => `0190${random.hex(4)}-${random.hex(4)}-7${random.hex(3)}-8${random.hex(3)}-${random.hex(12)}`;
  const newKey = (): string => `${random.hex(8)}-${random.hex(4)}-8${random.hex(3)}-8${random.hex(3)}-`;

  function line(id: string, members: object = {}): string {
    const nowMs = clock.nowMs();
    const event = { event_id: id, kind: random.pick(['login', 'custom_event']), id_app: random.integer(1, 3), event_time: Math.floor(nowMs / 1000) - random.pick([0, 0, daySeconds, 40 * daySeconds]), received_at: nowMs };
    return `${JSON.stringify({ ...event, custom_user_id: 'u', ...members })}\n`;
  }

  /** A bad event: a value that no column takes, or a line that is no JSON. */
  const badLine = (id: string): string => (random.chance(0.5) ? line(id, { age: 'x' }) : `{"event_id":"${id}",\n`);

  async function publish(ids: readonly string[], badIds: readonly string[]): Promise<PublishOutcome> {
    const payload = [...ids.map((id) => line(id)), ...badIds.map(badLine)].join('');
    const message: SentMessage = { payload, ids, badIds, outcome: 'on its way', isLost: false };
    sent.push(message);
    byPayload.set(payload, message);
    message.outcome = await broker.publish(payload);
    return message.outcome;
  }

  async function sendKeyed(): Promise<void> {
    const key = newKey();
    const request = { print: random.hex(10), events: random.integer(1, 3) };
    const repeats = random.integer(0, 3);
    for (let time = 0; time <= repeats; time += 1) {
      // Now and then the key comes back for another request, maybe a longer one, which is a mistake that has to be kept.
      const isOther = time > 0 && random.chance(0.2);
      const { print, events } = isOther ? { print: random.hex(10), events: random.integer(1, 3) } : request;
      await publish(Array.from({ length: events }, (_, place) => `${key}${print}0${place}`), []);
      await world.sleep(random.integer(1, 5000));
    }
  }

  return {
    sent,
    isQuiet: () => busy === 0,
    find: (payload) => byPayload.get(Buffer.from(payload).toString()),
    send() {
      clients += 1;
      const isKeyed = random.chance(0.3);
      const ids = Array.from({ length: random.integer(1, 5) }, newId);
      const badIds = random.chance(0.1) ? [newId()] : [];
      busy += 1;
      world.start(`client ${clients}`, async () => {
        await (isKeyed ? sendKeyed() : publish(ids, badIds));
        busy -= 1;
      });
    },
  };
}
