import { expect, test } from 'vitest';
import type { EventAnswer } from '../../../src/find/event-answer.ts';
import { findEvent, type Places, type ReadTail } from '../../../src/find/find-event.ts';
import type { FoundFailed } from '../../../src/lake/find/failed-index.ts';
import type { Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { eventLine } from '../../helpers/lake.ts';

const noEngine = { rows: () => Promise.reject(new Error('no file is read')) } as unknown as Duckdb;

interface Stage {
  /** What the failed events are, at each look. */
  readonly failed?: () => readonly FoundFailed[];
  /** How many events the log counts as failed. */
  readonly counted?: number;
  readonly readTail?: ReadTail;
}

/** A lake without rows, whose stream and failed events are what a test says. */
function placesOf({ failed = () => [], counted = 0, readTail = async () => 'whole' }: Stage): Places {
  return {
    duckdb: noEngine,
    tables: {
      read: async () => [],
      readPosition: async () => ({ version: 1, streamId: 'S@1', position: 5, failed: counted }),
    },
    index: { find: async () => ({ candidates: [], missing: [] }), add: async () => undefined, keepOnly: async () => 0 },
    versions: new Map(),
    failed: { find: async () => [...failed()], count: () => failed().length, readOn: async () => undefined },
    erasedIds: async () => ({ file: undefined, isComplete: true }),
    readWatermarkMs: async () => 1_700_000_000_000,
    readTail,
  } as unknown as Places;
}

const find = (places: Places, eventId: string, idApp = 1): Promise<EventAnswer> =>
  findEvent(places, { sought: { eventId, idApp }, idApps: [idApp], deadlineMs: performance.now() + 20_000 });

const idOf = (line: Readonly<Record<string, unknown>>): string => String(line['event_id']);

const failedEvent = (eventId: string): FoundFailed => ({ eventId, reason: 'bad_value', failedAt: '' });

test('An event that waits in the stream is told of to its own app, and is as good as never seen to another', async () => {
  const line = eventLine({ id_app: 1 });
  const readTail: ReadTail = async (_from, _limits, see) => {
    see(Buffer.from(`${JSON.stringify(line)}\n`));
    return 'whole';
  };
  const places = placesOf({ readTail });
  expect(await find(places, idOf(line), 1)).toMatchObject({ state: 'in_stream', events: [{ eventId: idOf(line) }] });
  const foreign = await find(places, idOf(line), 2);
  expect(foreign).toEqual(await find(places, idOf(eventLine()), 2));
  expect(foreign).toEqual({ state: 'never_seen', events: [], watermark: '2023-11-14T22:13:20.000Z' });
});

test('An event that leaves the stream while it is looked for is found where it has gone to', async () => {
  const eventId = idOf(eventLine());
  let hasMoved = false;
  const places = placesOf({
    failed: () => (hasMoved ? [failedEvent(eventId)] : []),
    counted: 1,
    async readTail() {
      if (hasMoved) return 'whole';
      hasMoved = true;
      return 'moved';
    },
  });
  expect(await find(places, eventId)).toMatchObject({ state: 'failed', events: [{ eventId }] });
});

test('No event has never come where fewer events are kept as failed than the log counts', async () => {
  const places = placesOf({ failed: () => [], counted: 1 });
  await expect(find(places, idOf(eventLine()))).rejects.toMatchObject({ code: 'file_damaged' });
});

test.for(['cut', 'other'] as const)(
  'No event has never come where the stream could not be looked through (%s)',
  async (end) => {
    await expect(find(placesOf({ readTail: async () => end }), idOf(eventLine()))).rejects.toMatchObject({
      code: 'overloaded',
    });
  },
);
