import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { generateGameSessions } from '../../src/demo/game-sessions.ts';
import { timeOrderedEventIds } from '../../src/datasets/event-id.ts';
import { renderLine } from '../helpers/render-line.ts';
import type { StreamPublisher } from '../../src/stream/stream.ts';

const apps = 4;
const eventsOfRequest = 10;
/** End of the sessions: a fixed time, so that every run has the same events. */
const until = 1_750_000_000;
/** Size of a message that ingest publishes under some load. */
const messageBytes = 64 * 1024;
const publishesInFlight = 16;
const newline = 0x0a;

/** Returns the fields to override in the event with this index. */
type Vary = (index: number) => Readonly<Record<string, unknown>>;

function* renderSessions(rows: number, days: number, vary: Vary): Generator<string, void, void> {
  let [made, text] = [0, ''];
  let ids = timeOrderedEventIds(0);
  for (const event of generateGameSessions({ seed: 1, events: rows, until, days })) {
    const receivedAtMs = (event.eventTimestamp + 1) * 1000;
    if (made % eventsOfRequest === 0) ids = timeOrderedEventIds(receivedAtMs);
    const customEventParams = { ...event.customEventParams, build: '1.42.0' };
    text += renderLine(
      { kind: 'custom_event', idApp: 1 + (made % apps), platform: 'web', receivedAtMs, ids },
      { ...event, customEventParams, ...vary(made) },
      made % eventsOfRequest,
    );
    made += 1;
    if (text.length < 1024 * 1024) continue;
    yield text;
    text = '';
  }
  yield text;
}

/** Writes game sessions as the event lines that ingest would publish, into one NDJSON file. */
export async function writeEventSpool(
  file: string,
  rows: number,
  days: number,
  vary: Vary = () => ({}),
): Promise<void> {
  await pipeline(Readable.from(renderSessions(rows, days, vary)), createWriteStream(file));
}

/**
 * Publishes the lines of a spool as messages of complete lines, a few in flight at once. Repeats the spool until the
 * stream has `bytes`.
 */
export async function publishSpool(file: string, bytes: number, publisher: StreamPublisher): Promise<void> {
  let onTheirWay: Promise<unknown>[] = [];
  for (let published = 0; published < bytes;) {
    let rest: Buffer = Buffer.alloc(0);
    for await (const block of createReadStream(file, { highWaterMark: messageBytes, end: bytes - published })) {
      const buffer = Buffer.concat([rest, block as Buffer]);
      const end = buffer.lastIndexOf(newline) + 1;
      rest = buffer.subarray(end);
      if (end > 0) onTheirWay.push(publisher.publish(buffer.subarray(0, end), 60_000));
      if (onTheirWay.length < publishesInFlight) continue;
      await Promise.all(onTheirWay);
      onTheirWay = [];
    }
    published += (await stat(file)).size;
  }
  await Promise.all(onTheirWay);
}
