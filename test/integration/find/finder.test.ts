import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { keyedEventIds, requestKeyOf } from '../../../src/datasets/event-id.ts';
import type { EventLookupResult } from '../../../src/event-lookup/lookup-result.ts';
import {
  openTailedTables,
  findEvent,
  type LookupSources,
  type ReadBacklog,
} from '../../../src/event-lookup/find-event.ts';
import { createEventFinder, type EventFinder } from '../../../src/event-lookup/finder.ts';
import { createErasedIdsSearch } from '../../../src/lake/event-index/erased-ids.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { findRows } from '../../../src/lake/event-index/find-rows.ts';
import { openIdIndex, type IdIndex } from '../../../src/lake/event-index/id-index.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, readTotals, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

const keyOf = (key: string): string =>
  requestKeyOf(keyedEventIds({ idApp: 1, key, method: 'login', eventTexts: ['x'] })(0));
const keyed = (key: string): Readonly<Record<string, unknown>> =>
  eventLine({ event_id: keyedEventIds({ idApp: 1, key, method: 'login', eventTexts: ['x'] })(0) });

const idOf = (line: Readonly<Record<string, unknown>>): string => String(line['event_id']);

const bad = { event_time: 'never' };

/** Publishes lines, and waits until the lake has them as rows or failed events. */
async function publish(
  folder: string,
  stream: MemoryStream,
  lines: readonly Readonly<Record<string, unknown>>[],
  streamed: number,
): Promise<void> {
  stream.publish([...lines]);
  await waitFor('the lines are in the lake', async () => {
    return (await readTotals(path.join(folder, 'lake')))?.streamed === streamed;
  });
}

function openFinder(
  folder: string,
  readBacklog: ReadBacklog = async () => 'complete',
  maxIndexedBytes = Number.POSITIVE_INFINITY,
): EventFinder {
  const eventFinder = createEventFinder({
    lakeDir: path.join(folder, 'lake'),
    indexDir: path.join(folder, 'event-index'),
    workDir: path.join(testFolder(), 'find'),
    readBacklog,
    maxIndexedBytes,
  });
  onTestFinished(() => eventFinder.close());
  return eventFinder;
}

const ask = (eventFinder: EventFinder, eventId: string): Promise<EventLookupResult> =>
  eventFinder.find({ target: { eventId, idApp: 1 }, idApps: [1], deadlineMs: performance.now() + 20_000 });

test('A failed event that was stored later is in the lake, and is returned once', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const line = eventLine();
  const eventId = String(line['event_id']);
  await publish(folder, stream, [{ ...line, ...bad }], 1);
  const eventFinder = openFinder(folder);
  expect(await ask(eventFinder, eventId)).toMatchObject({ state: 'failed', events: [{ reason: 'bad_value' }] });
  await publish(folder, stream, [line], 2);
  expect(await ask(eventFinder, eventId)).toMatchObject({ state: 'in_lake', events: [{ state: 'in_lake', eventId }] });
});

test('No event is reported as never seen while failed events are missing or damaged', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const [stored, line] = [eventLine(), { ...eventLine(), ...bad }];
  await publish(folder, stream, [stored, line], 2);
  const { failed } = lakePaths(path.join(folder, 'lake'));
  const settled = (): string[] => readdirSync(failed).filter((name) => !name.startsWith('pending-'));
  await waitFor('the file has its final name', () => settled().length === 1);
  const file = path.join(failed, settled()[0] ?? '');
  const whole = readFileSync(file);
  const [known, unknown] = [idOf(line), idOf(eventLine())];
  expect(await ask(openFinder(folder), unknown)).toMatchObject({ state: 'never_seen' });
  const places = Array.from({ length: 12 }, (_, place) => place);
  for (const place of inTurn(places, 8)) {
    const bytes = Buffer.from(whole);
    const at = Math.floor((place * bytes.length) / 12);
    bytes.writeUInt8((bytes[at] ?? 0) ^ 1, at);
    writeFileSync(file, bytes);
    for (const id of [known, unknown])
      await expect(ask(openFinder(folder), id)).rejects.toMatchObject({ code: 'file_damaged' });
    expect(await ask(openFinder(folder), idOf(stored))).toMatchObject({ state: 'in_lake' });
    const { problems } = await checkLake(path.join(folder, 'lake'));
    expect(problems).toMatchObject([{ problem: 'damaged_file', path: path.join('failed', path.basename(file)) }]);
  }
  rmSync(file);
  await expect(ask(openFinder(folder), known)).rejects.toMatchObject({ code: 'file_damaged' });
  writeFileSync(file, whole);
  expect(await ask(openFinder(folder), known)).toMatchObject({ state: 'failed' });
});

test('An event whose line is damaged after its head has failed with the reason, and waits before that', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const line = eventLine();
  const broken = `${JSON.stringify(line).slice(0, -3)}\n`;
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  await publish(folder, stream, [eventLine()], 1);
  const waiting = openFinder(folder, async (_from, _limits, see) => {
    see(Buffer.from(broken));
    return 'complete';
  });
  expect(await ask(waiting, idOf(line))).toMatchObject({ state: 'in_stream', events: [{ kind: 'login' }] });
  stream.publishRaw(broken);
  await publish(folder, stream, [eventLine()], 3);
  const eventFinder = openFinder(folder);
  expect(await ask(eventFinder, idOf(line))).toMatchObject({
    state: 'failed',
    events: [{ reason: 'bad_json', eventId: idOf(line), kind: 'login', receivedAt: expect.any(String) }],
  });
  const foreign = { target: { eventId: idOf(line), idApp: 2 }, idApps: [2], deadlineMs: performance.now() + 20_000 };
  expect(await eventFinder.find(foreign)).toMatchObject({ state: 'never_seen' });
});

test('Events of a reused key are returned from stream and lake together, and a repeat only once', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const [stored = '', other = ''] = ['x', 'y'].map((given) =>
    keyedEventIds({ idApp: 1, key: 'k', method: 'loginBatch', eventTexts: [given] })(0),
  );
  await publish(folder, stream, [eventLine({ event_id: stored })], 1);
  const waits = [other, stored, other].map((id) => `${JSON.stringify(eventLine({ event_id: id }))}\n`).join('');
  let end: 'complete' | 'limited' = 'complete';
  const eventFinder = openFinder(folder, async (_from, _limits, see) => {
    see(Buffer.from(waits));
    return end;
  });
  const find = async (sought: { readonly requestKey: string } | { readonly eventId: string }) => {
    const deadlineMs = performance.now() + 20_000;
    const found = await eventFinder.find({ target: { ...sought, idApp: 1 }, idApps: [1], deadlineMs });
    return [found.state, ...found.events.map(({ eventId, state }) => [eventId, state])];
  };
  const both = ['in_lake', [stored, 'in_lake'], [other, 'in_stream']];
  expect(await find({ requestKey: keyOf('k') })).toEqual(both);
  expect(await find({ eventId: other })).toEqual(['in_stream', [other, 'in_stream']]);
  expect(await find({ eventId: stored })).toEqual(['in_lake', [stored, 'in_lake']]);
  end = 'limited';
  expect(await find({ requestKey: keyOf('k') })).toEqual(both);
});

test("A lookup by key of another app's event reads none of that app's files", async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const line = keyed('k');
  await publish(folder, stream, [line, { ...keyed('other'), id_app: 3 }], 2);
  await compactor.stop();
  const eventFinder = openFinder(folder);
  const eventId = String(line['event_id']);
  expect(await ask(eventFinder, eventId)).toMatchObject({ state: 'in_lake' });
  // Reading a missing file fails.
  const { young } = lakePaths(path.join(folder, 'lake'));
  for (const name of readdirSync(young)) rmSync(path.join(young, name));
  const foreign = { target: { eventId, idApp: 2 }, idApps: [2], deadlineMs: performance.now() + 20_000 };
  expect(await eventFinder.find(foreign)).toMatchObject({ state: 'never_seen' });
  await expect(ask(eventFinder, eventId)).rejects.toMatchObject({ code: 'sql' });
});

test('After the first lookup, every process indexes the ids of new files, and before it none does', async () => {
  const folder = testFolder();
  const index = path.join(folder, 'event-index');
  const { signal } = new AbortController();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const [first, second] = [keyed('first'), keyed('second')];
  await publish(folder, stream, [first], 1);
  await openFinder(folder).maintain(signal);
  expect(existsSync(index)).toBe(false);

  expect(await ask(openFinder(folder), String(first['event_id']))).toMatchObject({ state: 'in_lake' });
  const [ofFirst] = readdirSync(index);
  await publish(folder, stream, [second], 2);
  const eventFinder = openFinder(folder);
  await eventFinder.maintain(signal);
  const names = readdirSync(index);
  expect([names.length, names.includes(ofFirst ?? '')]).toEqual([2, true]);
  expect(await ask(eventFinder, String(second['event_id']))).toMatchObject({ state: 'in_lake' });
});

test('An index that another process removes for a newer lake is rebuilt, and one that is being written stays', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const line = keyed('k');
  await publish(folder, stream, [line], 1);
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const indexDir = testFolder();
  const index = openIdIndex(indexDir);
  let added = 0;
  const removed: IdIndex = {
    ...index,
    async add(engine, file) {
      added += 1;
      await index.add(engine, file);
      if (added === 1) await index.keepOnly(engine, []);
    },
  };
  const snapshot = await readSnapshot(lakePaths(path.join(folder, 'lake')).table);
  const sought = { eventId: String(line['event_id']), idApp: 1 };
  const use = { index: removed, idApps: [1], deadlineMs: performance.now() + 20_000 };
  expect(await findRows(duckdb, { dataset: events, snapshot }, sought, use)).toMatchObject([
    { eventId: sought.eventId },
  ]);
  expect(added).toBe(2);

  const twoHoursAgo = Date.now() - 7_200_000;
  const [written, left] = [`${Date.now()}.a.tmp`, `${twoHoursAgo}.b.tmp`];
  for (const name of [written, left]) writeFileSync(path.join(indexDir, name), '');
  await index.keepOnly(duckdb, []);
  expect(readdirSync(indexDir)).toEqual([written]);
});

test('A lookup does not wait for the index of a large file, and finds the event at once in another file', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  onTestFinished(() => compactor.stop());
  const [first, second] = [keyed('first'), keyed('second')];
  await publish(folder, stream, [first], 1);
  expect(await ask(openFinder(folder), idOf(first))).toMatchObject({ state: 'in_lake' });
  await publish(folder, stream, [second], 2);
  const eventFinder = openFinder(folder, undefined, 100);
  expect(await ask(eventFinder, idOf(first))).toMatchObject({ state: 'in_lake' });
  await expect(ask(eventFinder, idOf(second))).rejects.toMatchObject({ code: 'overloaded' });
  await eventFinder.maintain(new AbortController().signal);
  expect(await ask(eventFinder, idOf(second))).toMatchObject({ state: 'in_lake' });
});

test('An event in the lake is found while failed events are unread, and other ids get no result', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const [plain, line] = [eventLine(), keyed('k')];
  await publish(folder, stream, [plain, line], 2);
  await compactor.stop();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const lakeDir = path.join(folder, 'lake');
  const busy = new AppError('overloaded', 'files of failed events are still to be read');
  const lookupSources: LookupSources = {
    duckdb,
    tables: openTailedTables(lakeDir),
    index: openIdIndex(testFolder()),
    versions: new Map(),
    failed: {
      find: () => Promise.reject(busy),
      findEach: () => Promise.reject(busy),
      count: () => 0,
      readOn: async () => undefined,
    },
    erasedIds: createErasedIdsSearch(lakePaths(lakeDir)),
    readWatermarkMs: async () => undefined,
    readBacklog: async () => 'complete',
  };
  const find = (sought: { readonly requestKey: string } | { readonly eventId: string }): Promise<EventLookupResult> =>
    findEvent(lookupSources, { target: { ...sought, idApp: 1 }, idApps: [1], deadlineMs: performance.now() + 20_000 });
  for (const one of [plain, line]) expect(await find({ eventId: idOf(one) })).toMatchObject({ state: 'in_lake' });
  await expect(find({ eventId: idOf(eventLine()) })).rejects.toBe(busy);
  // A request may have failed events too, so these are unchecked.
  expect(await find({ requestKey: keyOf('k') })).toMatchObject({ state: 'in_lake', unchecked: ['failed'] });
  await expect(find({ requestKey: keyOf('none') })).rejects.toBe(busy);
});

test('An event in the stream is found while the lake is unreadable, and a request lists the lake as unchecked', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  // Many ids, so that their minimum and maximum may include any id.
  await publish(
    folder,
    stream,
    Array.from({ length: 32 }, (_, n) => keyed(`other ${n}`)),
    32,
  );
  await compactor.stop();
  const line = keyed('k');
  const see: ReadBacklog = async (_from, _limits, take) => {
    take(Buffer.from(`${JSON.stringify(line)}\n`));
    return 'complete';
  };
  const eventFinder = openFinder(folder, see, 1);
  const ofKey = (key: string): Promise<EventLookupResult> =>
    eventFinder.find({
      target: { requestKey: keyOf(key), idApp: 1 },
      idApps: [1],
      deadlineMs: performance.now() + 20_000,
    });
  const found = await ask(eventFinder, idOf(line));
  expect([found.state, found.unchecked]).toEqual(['in_stream', undefined]);
  expect(await ofKey('k')).toMatchObject({ state: 'in_stream', unchecked: ['lake'] });
  await expect(ofKey('none')).rejects.toMatchObject({
    code: 'overloaded',
    message: expect.stringContaining('indexed'),
  });
});

test('A lost file of the lake fails the lookup with the reason, and is not retryable', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const line = keyed('k');
  await publish(folder, stream, [line], 1);
  await compactor.stop();
  const { young } = lakePaths(path.join(folder, 'lake'));
  for (const name of readdirSync(young)) rmSync(path.join(young, name));
  await expect(ask(openFinder(folder), String(line['event_id']))).rejects.toMatchObject({ code: 'sql' });
});

test('Many lookups at once give the states of single ones, in their order, and name what was not searched', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const requests = Array.from({ length: 300 }, (_, n) =>
    Array.from({ length: 2 }, (__, index) =>
      eventLine({
        event_id: keyedEventIds({ idApp: 1, key: `k-${n}`, method: 'loginBatch', eventTexts: ['x', 'y'] })(index),
      }),
    ),
  );
  const plain = Array.from({ length: 300 }, () => eventLine());
  const broken = { ...eventLine(), ...bad };
  const foreign = eventLine({ id_app: 2 });
  await publish(folder, stream, [...requests.slice(0, 200).flat(), ...plain.slice(0, 200), broken], 601);
  await publish(folder, stream, [...requests.slice(200, 299).flat(), ...plain.slice(200, 299), foreign], 899);
  await compactor.stop();
  const waiting = [...(requests[299] ?? []), ...plain.slice(299)].map((line) => `${JSON.stringify(line)}\n`).join('');
  let end: 'complete' | 'limited' = 'complete';
  const see: ReadBacklog = async (_from, _limits, take) => {
    take(Buffer.from(waiting));
    return end;
  };
  const queries = [
    ...requests.map((_, n) => [{ requestKey: keyOf(`none-${n}`) }, { requestKey: keyOf(`k-${n}`) }]),
    ...plain.map((line) => [{ eventId: idOf(line) }]),
    [{ eventId: idOf(broken) }],
    [{ eventId: idOf(foreign) }],
    [{ eventId: idOf(eventLine()) }],
    [{ requestKey: keyOf('none') }],
  ].toReversed();
  const find = (limit?: number) =>
    openFinder(folder, see, limit).findMany({ idApp: 1, queries, deadlineMs: performance.now() + 60_000 });
  const found = await find();
  const states = found.events.map(({ state }) => state).toReversed();
  expect(states).toEqual([
    ...Array.from({ length: 299 }, () => 'in_lake'),
    'in_stream',
    ...Array.from({ length: 299 }, () => 'in_lake'),
    'in_stream',
    'failed',
    'never_seen',
    'never_seen',
    'never_seen',
  ]);
  expect(found.unchecked).toBeUndefined();
  expect(found.events.at(-1)).toMatchObject({ events: { in_lake: 2 }, table: 'events' });
  const single = openFinder(folder, see);
  for (const at of [0, 5, 203]) {
    const [first] = (await ask(single, idOf(plain[at] ?? {}))).events;
    const listed = found.events.toReversed()[300 + at];
    // The version of the table is only in a single result.
    expect(first === undefined ? [] : { ...listed, version: first.version }).toEqual(first ?? []);
  }
  end = 'limited';
  const limited = await find();
  expect(limited.unchecked).toEqual(['stream']);
  expect(limited.events.map(({ state }) => state).toReversed()).toEqual(
    states.map((state) => (state === 'never_seen' ? 'unknown' : state)),
  );
  // Without an index, keys are not found in the lake; ids with their time are.
  rmSync(path.join(folder, 'event-index'), { recursive: true });
  const unindexed = await find(1);
  expect(unindexed.unchecked).toEqual(['lake', 'stream']);
  expect(unindexed.events.at(-1)).toEqual({ state: 'unknown' });
  expect(unindexed.events.toReversed()[300]).toMatchObject({ state: 'in_lake' });
});
