import { randomFillSync } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { timeOrderedEventIds } from '../../src/datasets/event-id.ts';
import { maxMessageBytes, type StreamPublisher } from '../../src/stream/stream.ts';
import { renderLine } from '../helpers/render-line.ts';
import { readEvents } from './ingest-bodies.ts';

/**
 * Events published at a constant rate, each with its own id and the time at which it is sent: real ones if
 * `TRIBUTARY_SAMPLE_EVENTS` names a file.
 */
export interface SteadyStream {
  readonly eventsPerSecond: number;
  readonly seconds: number;
  /** One event in `keyedEvery` is stored under an Idempotency-Key. */
  readonly keyedEvery: number;
}

/** A message of event lines, with the offsets of the values that differ each time it is sent. */
interface Template {
  readonly bytes: Buffer;
  readonly idAt: readonly number[];
  readonly receivedAt: readonly number[];
}

const eventsOfMessage = 100;
const templates = 64;
const tickMs = 20;
const receivedDigits = 13;
const hexDigits = Buffer.from('0123456789abcdef');
const random = Buffer.alloc(16 * eventsOfMessage);

/** Returns the end offsets of a marker in a text. */
function endsOf(text: Buffer, marker: string): number[] {
  const ends: number[] = [];
  for (let at = text.indexOf(marker); at !== -1; at = text.indexOf(marker, at + 1)) ends.push(at + marker.length);
  return ends;
}

function makeTemplates(): Template[] {
  const { events } = readEvents(templates * eventsOfMessage);
  const ids = timeOrderedEventIds(Date.now());
  return Array.from({ length: templates }, (_, template) => {
    const lines = events.slice(template * eventsOfMessage, (template + 1) * eventsOfMessage).map((event, index) => {
      const context = { kind: 'custom_event', idApp: 1 + (index % 4), receivedAtMs: Date.now(), ids } as const;
      const { eventTimestamp: _then, ...fields } = event as Record<string, unknown>;
      return renderLine({ ...context, platform: 'web' }, fields, index);
    });
    const bytes = Buffer.from(lines.join(''));
    if (bytes.length > maxMessageBytes) throw new Error(`a message of ${bytes.length} bytes`);
    return { bytes, idAt: endsOf(bytes, '"event_id":"'), receivedAt: endsOf(bytes, '"received_at":') };
  });
}

/** Sets a new id and the present time in each event of a message. */
function stamp({ bytes, idAt, receivedAt }: Template, first: number, keyedEvery: number): Buffer {
  const stamped = Buffer.from(bytes);
  const now = String(Date.now());
  for (const at of receivedAt) stamped.write(now, at, receivedDigits, 'latin1');
  randomFillSync(random);
  for (const [index, at] of idAt.entries()) {
    // The dashes, the version and the variant of a UUID stay.
    for (let digit = 0; digit < 32; digit += 1) {
      const place = at + digit + (digit >= 20 ? 4 : digit >= 16 ? 3 : digit >= 12 ? 2 : digit >= 8 ? 1 : 0);
      const half = (random[index * 16 + (digit >> 1)] ?? 0) >> ((digit & 1) * 4);
      if (digit !== 12 && digit !== 16) stamped[place] = hexDigits[half & 0xf] ?? 0;
    }
    stamped[at + 14] = (first + index) % keyedEvery === 0 ? 0x38 : 0x37;
  }
  return stamped;
}

/** Publishes the events; returns the number of acknowledged ones, which are all. Errors: those of the publisher. */
export async function publishSteadily(publisher: StreamPublisher, stream: SteadyStream): Promise<number> {
  const made = makeTemplates();
  const total = stream.eventsPerSecond * stream.seconds;
  const startedAt = performance.now();
  const onTheirWay = new Set<Promise<unknown>>();
  let failure: unknown;
  let sent = 0;
  while (sent < total) {
    const due = Math.min(total, ((performance.now() - startedAt) / 1000) * stream.eventsPerSecond);
    for (; sent < due; sent += eventsOfMessage) {
      const template = made[(sent / eventsOfMessage) % made.length];
      if (template === undefined) break;
      const publishing = publisher
        .publish(stamp(template, sent, stream.keyedEvery), 60_000)
        .catch((error: unknown) => (failure ??= error))
        .finally(() => onTheirWay.delete(publishing));
      onTheirWay.add(publishing);
    }
    if (failure !== undefined) throw failure;
    await sleep(tickMs);
  }
  await Promise.all(onTheirWay);
  if (failure !== undefined) throw failure;
  return sent;
}
