import { expect, test } from 'vitest';
import type { EventLookupResult } from '../../../src/event-lookup/lookup-result.ts';
import { findEvent, type LookupSources, type ReadBacklog } from '../../../src/event-lookup/find-event.ts';
import type { FoundFailed } from '../../../src/lake/event-index/failed-index.ts';
import type { Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { eventLine } from '../../helpers/lake.ts';

const noEngine = { rows: () => Promise.reject(new Error('no file is read')) } as unknown as Duckdb;

interface Stage {
  /** The failed events at each search. */
  readonly failed?: () => readonly FoundFailed[];
  /** Number of failed events in the log. */
  readonly counted?: number;
  readonly readTail?: ReadBacklog;
}

/** A lake without rows, with a given stream and given failed events. */
function placesOf({
  failed = () => [],
  counted = 0,
  readTail: readBacklog = async () => 'complete',
}: Stage): LookupSources {
  return {
    duckdb: noEngine,
    tables: {
      read: async () => [],
      readPosition: async () => ({ version: 1, streamId: 'S@1', position: 5, failed: counted }),
    },
    index: {
      find: async () => ({ candidates: [], unindexed: [] }),
      add: async () => undefined,
      keepOnly: async () => 0,
    },
    versions: new Map(),
    failed: { find: async () => [...failed()], count: () => failed().length, readOn: async () => undefined },
    erasedIds: async () => ({ file: undefined, isComplete: true }),
    readWatermarkMs: async () => 1_700_000_000_000,
    readBacklog,
  } as unknown as LookupSources;
}

const find = (lookupSources: LookupSources, eventId: string, idApp = 1): Promise<EventLookupResult> =>
  findEvent(lookupSources, { target: { eventId, idApp }, idApps: [idApp], deadlineMs: performance.now() + 20_000 });

const idOf = (line: Readonly<Record<string, unknown>>): string => String(line['event_id']);

const failedEvent = (eventId: string): FoundFailed => ({ eventId, reason: 'bad_value', failedAt: '' });

test('An event in the stream is reported to its own app, and is never seen for other apps', async () => {
  const line = eventLine({ id_app: 1 });
  const readBacklog: ReadBacklog = async (_from, _limits, see) => {
    see(Buffer.from(`${JSON.stringify(line)}\n`));
    return 'complete';
  };
  const lookupSources = placesOf({ readTail: readBacklog });
  expect(await find(lookupSources, idOf(line), 1)).toMatchObject({
    state: 'in_stream',
    events: [{ eventId: idOf(line) }],
  });
  const foreign = await find(lookupSources, idOf(line), 2);
  expect(foreign).toEqual(await find(lookupSources, idOf(eventLine()), 2));
  expect(foreign).toEqual({ state: 'never_seen', events: [], watermark: '2023-11-14T22:13:20.000Z' });
});

test('An event that leaves the stream during the lookup is found in its new place', async () => {
  const eventId = idOf(eventLine());
  let hasMoved = false;
  const lookupSources = placesOf({
    failed: () => (hasMoved ? [failedEvent(eventId)] : []),
    counted: 1,
    async readTail() {
      if (hasMoved) return 'complete';
      hasMoved = true;
      return 'purged';
    },
  });
  expect(await find(lookupSources, eventId)).toMatchObject({ state: 'failed', events: [{ eventId }] });
});

test('No event is reported as never seen if fewer failed events are kept than the log counts', async () => {
  const lookupSources = placesOf({ failed: () => [], counted: 1 });
  await expect(find(lookupSources, idOf(eventLine()))).rejects.toMatchObject({ code: 'file_damaged' });
});

test.for(['limited', 'otherStream'] as const)(
  'No event is reported as never seen if the stream could not be searched (%s)',
  async (end) => {
    await expect(find(placesOf({ readTail: async () => end }), idOf(eventLine()))).rejects.toMatchObject({
      code: 'overloaded',
    });
  },
);
