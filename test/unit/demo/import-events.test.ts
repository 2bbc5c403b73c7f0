import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type DemoEvent, batchEvents } from '../../../src/demo/demo-client.ts';

async function bodiesOf(events: readonly DemoEvent[]): Promise<string[]> {
  const bodies: string[] = [];
  for await (const batch of batchEvents(events)) bodies.push(batch.body);
  return bodies;
}

const eventOf = (text: string): DemoEvent => ({
  json: JSON.stringify({ customEventName: text }),
  name: text,
  timestamp: undefined,
});

describe('batches of the demo', () => {
  it('Batches of the demo have every event once, in order, and are as large as 20 events and 10,240 bytes allow', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ maxLength: 3000, unit: 'grapheme', size: 'max' }).map(eventOf), { maxLength: 60 }),
        async (events) => {
          const bodies = await bodiesOf(events);
          const batches = bodies.map((body) => JSON.parse(body) as { customEventName: string }[]);
          expect(batches.flat().map((event) => event.customEventName)).toEqual(events.map((event) => event.name));
          const sizes = bodies.map((body) => Buffer.byteLength(body));
          expect(batches.every((batch) => batch.length >= 1 && batch.length <= 20)).toBe(true);
          expect(batches.every((batch, index) => batch.length === 1 || (sizes[index] ?? 0) <= 10_240)).toBe(true);
          const couldTakeMore = batches.slice(1).filter((batch, index) => {
            const grown = (sizes[index] ?? 0) + 1 + Buffer.byteLength(JSON.stringify(batch[0]));
            return (batches[index] ?? []).length < 20 && grown <= 10_240;
          });
          expect(couldTakeMore).toEqual([]);
        },
      ),
      { numRuns: 50 },
    );
  });

  it('The demo makes no empty batch', async () => {
    expect(await bodiesOf([])).toEqual([]);
  });
});
