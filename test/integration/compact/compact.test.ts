import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { readFailedFile, listFailedFiles } from '../../../src/lake/files/failed-events.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import type { Totals } from '../../../src/lake/log/lake-state.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

async function totals(folder: string): Promise<Totals | undefined> {
  return (await readSnapshot(lakePaths(path.join(folder, 'lake')).table)).lake?.totals;
}

/** Waits until the lake has read this many events from the stream. */
async function waitForStreamed(folder: string, events: number): Promise<Totals> {
  await waitFor(`${events} events are committed`, async () => ((await totals(folder))?.streamed ?? 0) >= events);
  const found = await totals(folder);
  if (found === undefined) throw new Error('no totals');
  expect(found.streamed).toBe(found.stored + found.failed + found.repeats + found.erased);
  return found;
}

async function readFailed(folder: string) {
  const paths = lakePaths(path.join(folder, 'lake'));
  return (await Promise.all((await listFailedFiles(paths.failed, paths.table)).map(readFailedFile))).flat();
}

/** Returns a keyed id of a key, a fingerprint of the request, and the index of the event. */
function keyedId(key: number, request: number, place = 0): string {
  return `${String(key).padStart(8, '0')}-0000-8000-8000-${String(request).padStart(10, '0')}${String(place).padStart(2, '0')}`;
}

test('Every column has the same value in the lake as in the stream', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const params = {
    a: '1',
    'quote"\'\\': 'line\nbreak',
    nul: 'x\u0000y',
    '\u0000': 'nul',
    '': 'empty',
    'é😀': '\u2028',
  };
  const odd = JSON.parse('{"__proto__":"p","constructor":"c"}') as unknown;
  stream.publish([
    eventLine({
      event_id: '0188a0c0-0000-7000-8000-000000000001',
      kind: 'custom_event',
      id_app: 9007199254740991,
      event_time: 1_700_000_000,
      received_at: 1_700_000_000_123,
      custom_event_name: 'x',
      custom_event_params: params,
      hwid: '18446744073709551615',
      sezam_user_id: '-9223372036854775808',
      age: 128,
    }),
    eventLine({
      event_id: '0188a0c0-0000-7000-8000-000000000002',
      kind: 'custom_event',
      event_time: 4_294_967_295,
      custom_event_name: '',
      custom_event_params: odd,
    }),
    eventLine({ event_id: '0188a0c0-0000-7000-8000-000000000003', custom_event_params: {} }),
  ]);
  await waitForStreamed(folder, 3);
  await compactor.stop();
  const rows = await readRows(
    folder,
    'event_id, kind, date::VARCHAR AS date, id_app, event_time, received_at, available_at, hwid::VARCHAR AS hwid, sezam_user_id, age, custom_event_params, custom_user_id',
  );
  expect(rows[0]).toMatchObject({
    kind: 'custom_event',
    date: '2023-11-14',
    id_app: 9007199254740991n,
    event_time: new Date('2023-11-14T22:13:20.000Z'),
    received_at: new Date('2023-11-14T22:13:20.123Z'),
    hwid: '18446744073709551615',
    sezam_user_id: -9223372036854775808n,
    age: 128,
    custom_user_id: 'u1',
    custom_event_params: Object.entries(params).map(([key, value]) => ({ key, value })),
  });
  expect(rows[1]).toMatchObject({
    date: '2106-02-07',
    custom_event_params: [
      { key: '__proto__', value: 'p' },
      { key: 'constructor', value: 'c' },
    ],
  });
  expect(rows[2]).toMatchObject({ custom_event_params: [], age: null, hwid: null });
  expect(new Set(rows.map((row) => Number(row['available_at']))).size).toBe(1);
});

test('A restart continues after the last commit, and the stream keeps only the anchor', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  for (let round = 1; round <= 3; round += 1) {
    const compactor = await startTestCompact(folder, stream);
    stream.publish([eventLine(), eventLine()]);
    stream.publish([eventLine()]);
    await waitForStreamed(folder, round * 3);
    await waitFor('the stream is purged', () => stream.sequences.length === 1);
    await compactor.stop();
    expect(stream.sequences).toEqual([round * 2]);
  }
  expect(await totals(folder)).toEqual({ streamed: 9, stored: 9, failed: 0, repeats: 0, erased: 0 });
  expect((await readRows(folder)).length).toBe(9);
});

test('An event that cannot be written is kept with its reason and delays no other', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const good = eventLine();
  stream.publishRaw(`{"event_id":\n${JSON.stringify(good)}\n[1]\n{"event_id":"\\ud800"}\n`);
  await waitForStreamed(folder, 4);
  stream.publish([
    eventLine({ age: 'old' }),
    eventLine({ id_app: undefined }),
    eventLine({ kind: 'other' }),
    eventLine({ event_id: 'short' }),
    eventLine({ event_time: 1.5 }),
    eventLine({ received_at: 9e17 }),
  ]);
  expect(await waitForStreamed(folder, 10)).toEqual({ streamed: 10, stored: 1, failed: 9, repeats: 0, erased: 0 });
  await compactor.stop();
  const failed = await readFailed(folder);
  expect(failed.map((event) => event.reason).toSorted()).toEqual([
    ...Array<string>(2).fill('bad_json'),
    ...Array<string>(7).fill('bad_value'),
  ]);
  expect(failed.map((event) => event.line)).toEqual(
    expect.arrayContaining(['{"event_id":', '[1]', '{"event_id":"\\ud800"}']),
  );
  expect(failed.some((event) => event.line.includes('"age":"old"'))).toBe(true);
  expect((await readRows(folder)).map((row) => row['event_id'])).toEqual([good['event_id']]);
});

test('An event under the same key is stored once, within a batch, across batches and across restarts', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const first = await startTestCompact(folder, stream);
  stream.publish([
    eventLine({ event_id: keyedId(1, 1) }),
    eventLine({ event_id: keyedId(1, 1) }),
    eventLine({ event_id: keyedId(2, 1) }),
  ]);
  await waitForStreamed(folder, 3);
  stream.publish([eventLine({ event_id: keyedId(1, 1) }), eventLine({ event_id: keyedId(2, 2) })]);
  await waitForStreamed(folder, 5);
  await first.stop();
  const second = await startTestCompact(folder, stream);
  stream.publish([
    eventLine({ event_id: keyedId(2, 1) }),
    eventLine({ event_id: keyedId(3, 1) }),
    eventLine({ event_id: keyedId(3, 9) }),
  ]);
  expect(await waitForStreamed(folder, 8)).toEqual({ streamed: 8, stored: 3, failed: 2, repeats: 3, erased: 0 });
  await second.stop();
  expect((await readRows(folder)).map((row) => row['event_id'])).toEqual([keyedId(1, 1), keyedId(2, 1), keyedId(3, 1)]);
  const failed = await readFailed(folder);
  expect(failed.map((event) => [event.reason, (JSON.parse(event.line) as { event_id: string }).event_id])).toEqual(
    expect.arrayContaining([
      ['key_reused', keyedId(2, 2)],
      ['key_reused', keyedId(3, 9)],
    ]),
  );
});

test('A key is forgotten after its window', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  let nowMs = Date.now();
  const clock = { nowMs: () => nowMs };
  const compactor = await startTestCompact(folder, stream, { clock });
  stream.publish([eventLine({ event_id: keyedId(1, 1), received_at: nowMs })]);
  await waitForStreamed(folder, 1);
  nowMs += 24 * 3600 * 1000 + 1;
  stream.publish([eventLine({ event_id: keyedId(1, 1), received_at: nowMs })]);
  expect(await waitForStreamed(folder, 2)).toMatchObject({ stored: 2, repeats: 0 });
  await compactor.stop();
});

test('The next available_at continues from the last one, a millisecond per flush, when the clock goes back', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  let nowMs = 1_800_000_000_000;
  const compactor = await startTestCompact(folder, stream, { clock: { nowMs: () => nowMs } });
  stream.publish([eventLine()]);
  await waitForStreamed(folder, 1);
  nowMs -= 60_000;
  stream.publish([eventLine()]);
  await waitForStreamed(folder, 2);
  await compactor.stop();
  const times = (await readRows(folder, 'event_id, available_at')).map((row) => Number(row['available_at']));
  expect(times).toEqual([1_800_000_000_000, 1_800_000_000_001]);
});

test('Sealed files hold the rows of their kind and date in order, and no row is lost or doubled', async () => {
  const folder = testFolder();
  const lake = path.join(folder, 'lake');
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 10 });
  const days = [1_700_000_000, 1_700_100_000, Math.floor(Date.now() / 1000)];
  for (let round = 0; round < 5; round += 1) {
    stream.publish(
      days.flatMap((day) => [
        eventLine({ event_time: day + 60 - round, id_app: 3 - (round % 3) }),
        eventLine({ event_time: day, kind: 'registration' }),
      ]),
    );
  }
  await waitForStreamed(folder, 30);
  await waitFor('all is sealed', async () =>
    (await readSnapshot(lakePaths(lake).table)).files.every((file) => !file.young),
  );
  await compactor.stop();
  expect((await readRows(folder)).length).toBe(30);
  const glob = path.join(lake, 'events', 'kind=*', 'date=*', '*.parquet');
  expect(
    await query(
      `SELECT count(*)::INT AS n, count(DISTINCT event_id)::INT AS d, count(DISTINCT (kind, date))::INT AS groups FROM read_parquet('${glob}')`,
    ),
  ).toEqual([{ n: 30, d: 30, groups: 6 }]);
  const [sorted] = await query(
    `SELECT bool_and(ok) AS ok FROM (SELECT (id_app, event_time) >= lag((id_app, event_time), 1, (id_app, event_time)) OVER (PARTITION BY filename ORDER BY file_row_number) AS ok FROM read_parquet('${glob}', filename = true, file_row_number = true))`,
  );
  expect(sorted).toEqual({ ok: true });
  expect(await readdir(lakePaths(lake).staging)).toEqual([]);
});

test('Rows of dates long past wait for each other, so that old history becomes one file per date', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  let nowMs = Date.now();
  const compactor = await startTestCompact(folder, stream, { sealAgeMs: 3_600_000, clock: { nowMs: () => nowMs } });
  const table = lakePaths(path.join(folder, 'lake')).table;
  for (let hour = 0; hour < 3; hour += 1) {
    stream.publish([
      ...Array.from({ length: 30 }, (_, n) => eventLine({ event_time: 1_100_000_000 + n * 86_400 })),
      eventLine({ event_time: Math.floor(nowMs / 1000) }),
    ]);
    await waitForStreamed(folder, (hour + 1) * 31);
    nowMs += 3_600_001;
    await waitFor(
      'this hour is sealed',
      async () => (await readSnapshot(table)).files.filter((file) => !file.young).length === hour + 1,
    );
  }
  await compactor.stop();
  nowMs += 86_400_000;
  const again = await startTestCompact(folder, stream, { sealAgeMs: 3_600_000, clock: { nowMs: () => nowMs } });
  await waitFor('the old dates are sealed', async () => (await readSnapshot(table)).files.every((file) => !file.young));
  await again.stop();
  expect((await readSnapshot(table)).files.length).toBe(33);
  expect((await readRows(folder)).length).toBe(93);
});
