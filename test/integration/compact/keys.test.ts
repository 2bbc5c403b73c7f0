import { createHash } from 'node:crypto';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { listFailedFiles, readFailedFile } from '../../../src/lake/files/failed-events.ts';
import { identityPath } from '../../../src/lake/identity.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { keyedEventIds, maskOfLake } from '../../../src/datasets/event-id.ts';
import { findMissingRanges, joinRanges } from '../../../src/lake/batch/idempotency-keys.ts';
import { renderChecksummed } from '../../../src/runtime/files/checksummed-json.ts';
import { createExclusive, ensureFolder } from '../../../src/runtime/files/durable-file.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { linesOf, type TestRequest } from '../../helpers/keyed-requests.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(2));

type Line = Record<string, unknown>;

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const startMs = Date.UTC(2026, 2, 1, 12);
const lakeId = '5a1f0c1e-0f5b-4a34-9d2a-2f1f6a3c7d10';
const mask = maskOfLake(lakeId);

const request = (names: string, more: Partial<TestRequest> = {}): Line[] =>
  linesOf({ key: 'k', names: names.split(''), receivedMs: startMs, ...more });
const at = (names: string, afterMs: number, key = 'k'): Line[] =>
  request(names, { key, receivedMs: startMs + afterMs });

const hash = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Creates ids of earlier versions, with a fingerprint per event instead of one per request. */
function requestOfEarlierVersion(names: string, key: string): Line[] {
  return request(names, { method: 'customEvent' }).map((line, index) => {
    const hex = `${hash(`1\n${index}\n${key}`).slice(0, 20)}${hash(names.charAt(index)).slice(0, 12)}`;
    const variant = '89ab'.charAt(Number.parseInt(hex.charAt(16), 16) & 3);
    return {
      ...line,
      event_id: `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`,
    };
  });
}

const [badA = {}, goodB = {}] = request('ab').map((line, index) => (index === 0 ? { ...line, age: 'old' } : line));

/**
 * Messages, and their events that the lake must have in the end: one letter per event. Events that are neither
 * stored nor failed are duplicates.
 */
const cases: Readonly<Record<string, { messages: Line[][]; stored: string; reused?: string; bad?: string }>> = {
  'a longer batch, and one longer still, are not stored': {
    messages: [request('a'), request('ab'), request('abc')],
    stored: 'a',
    reused: 'aabbc',
  },
  'nor is a shorter batch': { messages: [request('ab'), request('a'), request('b')], stored: 'ab', reused: 'ab' },
  'nor the same events in another order': { messages: [request('ab'), request('ba')], stored: 'ab', reused: 'ab' },
  'nor an event of another kind': {
    messages: [request('a', { method: 'registration' }), request('b', { method: 'customEvent' })],
    stored: 'a',
    reused: 'b',
  },
  'a retry is a repeat, before and after another request': {
    messages: [request('ab'), request('ab'), request('abc'), request('ab')],
    stored: 'ab',
    reused: 'abc',
  },
  'another key is another matter': {
    messages: [request('a'), request('a', { key: 'other' }), request('ab', { key: 'third' })],
    stored: 'aaab',
  },
  'a batch whose first event fails has the key all the same': {
    messages: [[badA, goodB], request('c'), [badA, goodB]],
    stored: 'b',
    reused: 'c',
    bad: 'aa',
  },
  'an event that failed is stored by a retry that can be written': {
    messages: [[badA, goodB], request('ab')],
    stored: 'ab',
    bad: 'a',
  },
  'a single event that an earlier version stored': {
    messages: [requestOfEarlierVersion('a', 'k'), request('a', { method: 'customEvent' })],
    stored: 'a',
  },
  'retries across the upgrade to ids with the mask of the lake, and back': {
    messages: [request('ab'), request('ab', { mask }), request('ab'), request('c', { mask })],
    stored: 'ab',
    reused: 'c',
  },
  'another lake has other keys': { messages: [request('a', { mask }), request('a', { mask: 7 })], stored: 'aa' },
  'a batch that an earlier version stored': {
    messages: [
      requestOfEarlierVersion('ab', 'k'),
      request('ab'),
      request('abc'),
      request('ba', { mask }),
      request('ab'),
    ],
    stored: 'ab',
    reused: 'aabbc',
  },
  'a batch of one that an earlier version stored': {
    messages: [requestOfEarlierVersion('a', 'k'), request('a', { mask }), request('b')],
    stored: 'a',
    reused: 'b',
  },
  'an event that was sent alone, and then as a batch': {
    messages: [request('a', { method: 'customEvent' }), request('a'), request('ab')],
    stored: 'a',
    reused: 'ab',
  },
  'a repeat in the last millisecond of the day, and at its end': {
    messages: [at('a', 0), at('a', 2 * hourMs), at('a', dayMs - 1), at('a', dayMs), at('b', dayMs - 1)],
    stored: 'a',
    reused: 'b',
  },
  'the first after a day is another event, and its day begins': {
    messages: [
      at('a', 0),
      at('a', 23 * hourMs),
      at('a', dayMs + 1),
      at('a', 2 * dayMs),
      at('b', 2 * dayMs),
      at('b', 2 * dayMs + 2),
      at('a', 2 * dayMs + 3),
    ],
    stored: 'aab',
    reused: 'ab',
  },
  'a repeat that another clock has received before the first': {
    messages: [at('a', 0), at('a', -5000), at('b', -hourMs)],
    stored: 'a',
    reused: 'b',
  },
  'a clock that jumps ahead for days, and back again': {
    messages: [
      at('a', 0),
      at('x', 3 * dayMs, 'x'),
      at('y', 400 * dayMs, 'y'),
      at('a', hourMs),
      at('y', 400 * dayMs + 1, 'y'),
      at('x', 3 * dayMs + 1, 'x'),
    ],
    stored: 'axy',
  },
  'a clock that is at 1970 for a while': {
    messages: [at('a', 0), at('x', -startMs, 'x'), at('x', 1 - startMs, 'x'), at('a', hourMs)],
    stored: 'ax',
  },
};

/** Lists the names of a case's events among some, sorted. */
const namesOf = (some: readonly Line[], title: string): string =>
  some
    .filter((line) => line['custom_user_id'] === title)
    .map((line) => String(line['custom_event_name']))
    .toSorted()
    .join('');

/** Ways to read the messages: all at once, one of each case at a time, or each by a new compactor. */
const ways = ['in one flush', 'in a flush each', 'over restarts'] as const;
/** Leads of the compactor's clock over the time of receipt, ms: a backlog of a day, and wrong clocks. */
const clocks = { 'a day later': 25 * hourMs, 'two years ahead': 730 * dayMs, 'a week back': -7 * dayMs };
const rounds = ways.flatMap((way) =>
  inTurn(Object.entries(clocks), 3).map(([when, aheadMs]) => ({ way, when, aheadMs })),
);

/**
 * The messages of every case, in rounds: the first of each, the second of each, and so on. The lines carry the case's
 * name, also in the key.
 */
function messagesByRound(): Line[][][] {
  const all = Object.entries(cases).map(([title, { messages }], index) =>
    messages.map((lines) =>
      lines.map((line) => ({
        ...line,
        custom_user_id: title,
        event_id: String(line['event_id']).replace(/^(.{20})...(.*)$/, `$1${String(index).padStart(3, '0')}$2`),
      })),
    ),
  );
  return Array.from({ length: Math.max(...all.map((messages) => messages.length)) }, (_, round) =>
    all.flatMap((messages) => (messages[round] === undefined ? [] : [messages[round]])),
  );
}

test.each(rounds)('A key means one request for a day from its receipt: read $way, $when', async ({ way, aheadMs }) => {
  const folder = testFolder();
  const paths = lakePaths(path.join(folder, 'lake'));
  const stream = createMemoryStream();
  const options = { clock: { nowMs: () => startMs + aheadMs } };
  await ensureFolder(path.join(folder, 'lake'));
  await createExclusive(identityPath(path.join(folder, 'lake')), renderChecksummed({ id: lakeId }));
  const all = messagesByRound();
  let sent = 0;
  const publish = (messages: readonly Line[][]): void => {
    for (const lines of messages) sent += stream.publish(lines) > 0 ? lines.length : 0;
  };
  if (way === 'in one flush') all.splice(0).forEach(publish);
  let compactor = await startTestCompact(folder, stream, options);
  for (const messages of [[], ...all]) {
    if (way === 'over restarts') {
      await compactor.stop();
      compactor = await startTestCompact(folder, stream, options);
    }
    publish(messages);
    await waitFor(
      `${sent} events are committed`,
      async () => (await readSnapshot(paths.table)).lake?.totals.streamed === sent,
    );
  }
  await compactor.stop();

  const rows = await readRows(folder, 'event_id, custom_user_id, custom_event_name');
  const failed = (await Promise.all((await listFailedFiles(paths.failed, paths.table)).map(readFailedFile)))
    .flat()
    .map(({ reason, line }) => ({ reason, ...(JSON.parse(line) as Line) }));
  const found = Object.keys(cases).map((title) => [
    title,
    {
      stored: namesOf(rows, title),
      reused: namesOf(
        failed.filter(({ reason }) => reason === 'key_reused'),
        title,
      ),
      bad: namesOf(
        failed.filter(({ reason }) => reason === 'bad_value'),
        title,
      ),
    },
  ]);
  expect(Object.fromEntries(found)).toEqual(
    Object.fromEntries(
      Object.entries(cases).map(([title, { stored, reused = '', bad = '' }]) => [title, { stored, reused, bad }]),
    ),
  );
  const repeats = sent - rows.length - failed.length;
  expect((await readSnapshot(paths.table)).lake?.totals).toEqual({
    streamed: sent,
    stored: rows.length,
    failed: failed.length,
    repeats,
    erased: 0,
  });
});

test('A single event under a key has the id that earlier versions gave it', () => {
  expect(keyedEventIds({ idApp: 1, key: 'k', method: 'customEvent', eventTexts: ['a'] })(0)).toBe(
    requestOfEarlierVersion('a', 'k')[0]?.['event_id'],
  );
});

test('A failed event is kept as it was in the stream, byte for byte', async () => {
  const folder = testFolder();
  const paths = lakePaths(path.join(folder, 'lake'));
  const stream = createMemoryStream();
  const first = JSON.stringify(request('a')[0]);
  // an unknown member, members in another order, digits that a double has not
  const second = JSON.stringify({ unknown: { deep: 1.5 }, ...request('b')[0], hwid: '18446744073709551615' }).replace(
    '"id_app":1',
    '"id_app":1 ,  "sezam_user_id":9223372036854775807',
  );
  const bad = JSON.stringify(eventLine({ age: 'old', custom_event_params: { quote: '"', nul: '\u0000' } })).replace(
    '"id_app":1',
    '"id_app": 1',
  );
  stream.publishRaw(`${first}\n${second}\n${bad}\n`);
  const compactor = await startTestCompact(folder, stream);
  await waitFor('the events are committed', async () => (await readSnapshot(paths.table)).lake?.totals.streamed === 3);
  await compactor.stop();
  const failed = (await Promise.all((await listFailedFiles(paths.failed, paths.table)).map(readFailedFile))).flat();
  expect(Object.fromEntries(failed.map(({ reason, line }) => [reason, line]))).toEqual({
    bad_value: bad,
    key_reused: second,
  });
  expect(failed).toHaveLength(2);
});

test('Covered time ranges are not loaded again, and none between them is left out', () => {
  const covered = [
    { fromMs: 0, toMs: 9 },
    { fromMs: 20, toMs: 29 },
  ];
  expect(findMissingRanges({ fromMs: -5, toMs: 35 }, covered)).toEqual([
    { fromMs: -5, toMs: -1 },
    { fromMs: 10, toMs: 19 },
    { fromMs: 30, toMs: 35 },
  ]);
  expect(findMissingRanges({ fromMs: 5, toMs: 25 }, covered)).toEqual([{ fromMs: 10, toMs: 19 }]);
  expect(findMissingRanges({ fromMs: 21, toMs: 29 }, covered)).toEqual([]);
  expect(findMissingRanges({ fromMs: 29, toMs: 30 }, covered)).toEqual([{ fromMs: 30, toMs: 30 }]);
  expect(
    joinRanges([
      { fromMs: 20, toMs: 29 },
      { fromMs: 0, toMs: 9 },
      { fromMs: 10, toMs: 12 },
      { fromMs: 5, toMs: 6 },
    ]),
  ).toEqual([
    { fromMs: 0, toMs: 12 },
    { fromMs: 20, toMs: 29 },
  ]);
});
