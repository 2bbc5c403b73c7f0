import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { skipGap } from '../../../src/compact/position/stream-position.ts';
import { checkLake } from '../../../src/lake/check.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import type { StreamReader } from '../../../src/stream/stream.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { createMemoryStream, type MemoryStream } from '../../helpers/memory-stream.ts';
import { eventLine, readRows, startTestCompact } from '../../helpers/lake.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';

beforeEach(oneTestIn(3));

const facts = (compact: { facts(): Readonly<Record<string, unknown>> }) =>
  (compact.facts()['streamFaults'] as { fault: string }[]).map(({ fault }) => fault);

async function waitForStored(folder: string, events: number): Promise<void> {
  await waitFor(
    `${events} events are stored`,
    async () => (await readSnapshot(path.join(folder, 'lake', 'events'))).lake?.totals.stored === events,
  );
}

/** Compacts two messages of one event, so that the position is 2 and the anchor is message 2. */
async function withTwoEvents(): Promise<{ folder: string; stream: MemoryStream; first: Record<string, unknown> }> {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream);
  const first = eventLine();
  stream.publish([first]);
  await waitForStored(folder, 1);
  stream.publish([eventLine()]);
  await waitForStored(folder, 2);
  await waitFor('the purge', () => stream.sequences.length === 1);
  await compactor.stop();
  return { folder, stream, first };
}

test.for(['before the start', 'while it runs'])(
  'Messages that reuse acknowledged sequences %s are stored, with an alarm',
  async (when) => {
    const { folder, stream } = await withTwoEvents();
    const damage = (): void => {
      stream.truncate(1);
      stream.publish([eventLine()]);
      stream.publish([eventLine()]);
    };
    if (when === 'before the start') damage();
    const compactor = await startTestCompact(folder, stream);
    if (when !== 'before the start') damage();
    await waitForStored(folder, 4);
    expect(facts(compactor)).toEqual(['replaced']);
    await compactor.stop();
    expect((await readRows(folder)).length).toBe(4);
  },
);

test.for([
  ['with', 3],
  ['without', 1],
] as const)(
  'Messages with reused sequences are stored, with an alarm, before the lake has a message of a new epoch that began %s messages',
  async ([, messages]) => {
    const { folder, stream } = await withTwoEvents();
    const { table: tableDir } = lakePaths(path.join(folder, 'lake'));
    for (let n = 0; n < messages; n += 1) stream.publish([eventLine()]);
    stream.lose(3);
    // The state after a compactor was killed between the epoch after the gap and its first flush.
    const table = await openTable(tableDir, { clock: createClock(0), crashPoint: noCrashPoint });
    const { epoch, writer = '' } = table.lake();
    if (epoch === undefined) throw new Error('the lake follows no stream');
    await skipGap({ table, reader: stream, writer, alarm: () => undefined }, epoch);
    expect(table.lake().epoch?.position).toBe(3);
    stream.truncate(0);
    for (let n = 0; n < 5; n += 1) stream.publish([eventLine()]);
    const compactor = await startTestCompact(folder, stream);
    await waitForStored(folder, 7);
    expect(facts(compactor)).toContain('replaced');
    await compactor.stop();
  },
);

test('A stream whose last messages are missing, and whose end still counts them, is reported and read after them', async () => {
  const { folder, stream } = await withTwoEvents();
  for (let n = 0; n < 3; n += 1) stream.publish([eventLine()]);
  for (const sequence of [3, 4, 5]) stream.lose(sequence);
  const compactor = await startTestCompact(folder, stream);
  await waitFor('the position is at the end', () => Number(compactor.facts()['position']) === 5);
  expect(facts(compactor)).toEqual(['gap']);
  stream.publish([eventLine()]);
  await waitForStored(folder, 3);
  await compactor.stop();
  expect(facts(compactor)).toEqual(['gap']);
});

test('A stream that ends before the position is read from its end, with an alarm', async () => {
  const { folder, stream } = await withTwoEvents();
  stream.truncate(0);
  const compactor = await startTestCompact(folder, stream);
  await waitFor('the alarm', () => facts(compactor).length === 1);
  stream.publish([eventLine()]);
  stream.publish([eventLine()]);
  stream.publish([eventLine()]);
  await waitForStored(folder, 5);
  expect(facts(compactor)).toEqual(['shortened']);
  await compactor.stop();
});

test('A recreated stream is read from its start, and an event that the lake has is not stored again', async () => {
  const { folder, stream, first } = await withTwoEvents();
  stream.recreate();
  stream.publish([first, eventLine()]);
  const compactor = await startTestCompact(folder, stream);
  await waitForStored(folder, 3);
  expect(facts(compactor)).toEqual(['recreated']);
  await compactor.stop();
  const { lake } = await readSnapshot(path.join(folder, 'lake', 'events'));
  expect(lake?.totals).toEqual({ streamed: 4, stored: 3, failed: 0, repeats: 1, erased: 0 });
});

test('A lost message in the middle is reported, and its neighbours are stored', async () => {
  const { folder, stream } = await withTwoEvents();
  for (let n = 0; n < 5; n += 1) stream.publish([eventLine()]);
  stream.lose(5);
  const compactor = await startTestCompact(folder, stream);
  await waitForStored(folder, 6);
  expect(facts(compactor)).toEqual(['gap']);
  await compactor.stop();
});

test('A log that lost its newest entries is reported, and the young file that they named is quarantined instead of removed', async () => {
  const { folder, stream } = await withTwoEvents();
  const { table, young, quarantine } = lakePaths(path.join(folder, 'lake'));
  const log = path.join(table, '_delta_log');
  const newest =
    (await readdir(log))
      .filter((name) => name.endsWith('.json'))
      .toSorted()
      .at(-1) ?? '';
  const before = await readdir(young);
  await rm(path.join(log, newest));
  const compactor = await startTestCompact(folder, stream);
  await waitFor('the file is quarantined', async () => (await readdir(quarantine).catch(() => [])).length === 1);
  expect(facts(compactor)).toEqual(['anchor_gone']);
  await compactor.stop();
  expect([...(await readdir(young)), ...(await readdir(quarantine))].toSorted()).toEqual(
    expect.arrayContaining(before),
  );
  const again = await startTestCompact(folder, stream);
  stream.publish([eventLine()]);
  await waitForStored(folder, 3);
  await again.stop();
  expect((await checkLake(path.join(folder, 'lake'))).problems.map(({ problem }) => problem)).toEqual([
    'unreferenced_file',
  ]);
});

test('A young file that no commit names is removed if the stream still has its events', async () => {
  const { folder, stream } = await withTwoEvents();
  const { young, quarantine } = lakePaths(path.join(folder, 'lake'));
  await writeFile(path.join(young, 'leftover.parquet'), '');
  const compactor = await startTestCompact(folder, stream);
  await waitFor('the leftover is removed', async () => !(await readdir(young)).includes('leftover.parquet'));
  await compactor.stop();
  expect(await readdir(quarantine).catch(() => [])).toEqual([]);
});

test('A second compactor takes over, and the first can no longer commit', async () => {
  const { folder, stream } = await withTwoEvents();
  const first = await startTestCompact(folder, stream, { withoutLock: true, spoolDir: path.join(folder, 'spool-1') });
  const second = await startTestCompact(folder, stream, { withoutLock: true, spoolDir: path.join(folder, 'spool-2') });
  stream.publish([eventLine()]);
  await waitForStored(folder, 3);
  await expect(first.failed).rejects.toMatchObject({ code: 'fenced' });
  await first.stop();
  await second.stop();
  expect((await readRows(folder)).length).toBe(3);
});

test('A compactor refuses a lake that another one has locked, and names it', async () => {
  const { folder, stream } = await withTwoEvents();
  const first = await startTestCompact(folder, stream);
  await expect(startTestCompact(folder, stream, { lockWaitMs: 0 })).rejects.toThrow(/compactor.*pid/);
  await first.stop();
});

test('A tail that is lost before the lake has it is reported, even if its sequences are reused', async () => {
  const { folder, stream } = await withTwoEvents();
  for (let n = 0; n < 3; n += 1) stream.publish([eventLine()]);
  const first = await startTestCompact(folder, stream, { flushAgeMs: 600_000 });
  await waitFor('the end is seen', async () =>
    (await readFile(lakePaths(path.join(folder, 'lake')).streamEnd, 'utf8')).includes('"lastSequence":5'),
  );
  await first.stop();
  stream.truncate(3);
  for (let n = 0; n < 4; n += 1) stream.publish([eventLine()]);
  const second = await startTestCompact(folder, stream, { flushAgeMs: 600_000 });
  await waitFor('the alarm', () => facts(second).length > 0);
  expect(facts(second)).toEqual(['tail_lost']);
  await second.stop();
  const third = await startTestCompact(folder, stream);
  await waitForStored(folder, 7);
  expect(facts(third)).toEqual([]);
  await third.stop();
});

test('Messages that are purged while they are read are in the lake, without an alarm', async () => {
  const { folder, stream } = await withTwoEvents();
  let removed = false;
  const reader: StreamReader = {
    ...stream,
    async pull(after, limits) {
      const pulled = await stream.pull(after, limits);
      if (pulled.length > 0 && !removed) {
        removed = true;
        // As interest retention does, or an operator's purge: the anchor is removed too, and the last message stays.
        await stream.purgeBelow(5);
      }
      return pulled;
    },
  };
  for (let n = 0; n < 3; n += 1) stream.publish([eventLine()]);
  const compactor = await startTestCompact(folder, reader);
  await waitForStored(folder, 5);
  expect(facts(compactor)).toEqual([]);
  await compactor.stop();
});

test('Messages that were read are not stored if their sequences were reused meanwhile', async () => {
  const { folder, stream } = await withTwoEvents();
  let damaged = false;
  const reader: StreamReader = {
    ...stream,
    async pull(after, limits) {
      const pulled = await stream.pull(after, limits);
      if (pulled.length > 0 && !damaged) {
        damaged = true;
        stream.truncate(1);
        for (let n = 0; n < 4; n += 1) stream.publish([eventLine()]);
        await stream.purgeBelow(4);
      }
      return pulled;
    },
  };
  for (let n = 0; n < 3; n += 1) stream.publish([eventLine()]);
  const compactor = await startTestCompact(folder, reader);
  // The first two, and the two that the stream still has.
  await waitForStored(folder, 4);
  expect(facts(compactor)).toContain('gap');
  await compactor.stop();
});
