import { expect, test } from 'vitest';
import { timeOrderedEventIds } from '../../src/datasets/event-id.ts';
import { createRandom } from '../../src/demo/random.ts';
import { compressLines, readLines } from '../../src/stream/message-compression.ts';
import { renderLine } from '../helpers/render-line.ts';
import { readEvents } from './ingest-bodies.ts';

const events = 6000;
const groups = [5, 20, 100, 1100];
const rounds = 25;

/** Returns event lines in random order: a message has events of many clients. */
function makeLines(): { readonly source: string; readonly lines: readonly Buffer[] } {
  const read = readEvents(events);
  const ids = timeOrderedEventIds(Date.now());
  const random = createRandom(1);
  const lines = read.events.map((event, index) => {
    const context = { kind: 'custom_event', idApp: 1 + (index % 4), receivedAtMs: Date.now() + index, ids } as const;
    const { eventTimestamp: _then, ...fields } = event as Record<string, unknown>;
    return { line: Buffer.from(renderLine({ ...context, platform: 'web' }, fields, index)), at: random.next() };
  });
  return { source: read.source, lines: lines.toSorted((a, b) => a.at - b.at).map(({ line }) => line) };
}

/** Compresses and expands messages of some events each. Returns the times of the fastest message, µs per event. */
async function measure(lines: readonly Buffer[], eventsOfMessage: number) {
  const sizes = { lines: 0, stored: 0 };
  let [compressMs, expandMs] = [Infinity, Infinity];
  for (let round = 0; round < rounds; round += 1)
    for (let at = 0; at + eventsOfMessage <= lines.length; at += eventsOfMessage) {
      const message = Buffer.concat(lines.slice(at, at + eventsOfMessage));
      const startedMs = performance.now();
      const payload = await compressLines(message);
      const compressedMs = performance.now();
      if (payload === undefined) throw new Error(`a message of ${message.length} bytes was not compressed`);
      const read = await readLines({ sequence: 1, payload, linesBytes: message.length });
      expandMs = Math.min(expandMs, performance.now() - compressedMs);
      compressMs = Math.min(compressMs, compressedMs - startedMs);
      expect(read.length).toBe(message.length);
      sizes.lines += message.length;
      sizes.stored += payload.length;
    }
  const perEvent = (ms: number): string => ((1000 * ms) / eventsOfMessage).toFixed(1);
  return { ratio: sizes.lines / sizes.stored, compress: perEvent(compressMs), expand: perEvent(expandMs) };
}

test('Messages of the stream are compressed to a part of their size', { timeout: 600_000 }, async () => {
  const { source, lines } = makeLines();
  const bytes = lines.reduce((sum, { length }) => sum + length, 0) / lines.length;
  process.stderr.write(`${source} events of ${bytes.toFixed(0)} bytes; times in µs per event\n`);
  for (const eventsOfMessage of groups) {
    const { ratio, ...times } = await measure(lines, eventsOfMessage);
    process.stderr.write(`${JSON.stringify({ eventsOfMessage, ratio: ratio.toFixed(1), ...times })}\n`);
    expect(ratio).toBeGreaterThan(2);
  }
});
