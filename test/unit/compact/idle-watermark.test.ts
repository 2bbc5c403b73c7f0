import { rmSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { pino } from 'pino';
import { createIdleWatermark } from '../../../src/compact/position/idle-watermark.ts';
import { findWatermarkMs } from '../../../src/lake/watermark.ts';
import type { Epoch } from '../../../src/lake/log/lake-state.ts';
import type { StreamState } from '../../../src/stream/stream.ts';
import { testFolder } from '../../helpers/folder.ts';

const epoch: Epoch = { appId: 'S@1', streamId: 'S@1', position: 7, dedupeThrough: 0, watermarkMs: 1000 };
const clock = { nowMs: () => 1_000_000 };

/** A state of a stream that ends at the position, read between two times of the broker's clock. */
const look = (fromMs: number, toMs: number, changed: Partial<StreamState> = {}): StreamState => ({
  id: 'S@1',
  firstSequence: 7,
  lastSequence: 7,
  messages: 1,
  bytes: 1,
  clock: { fromMs, toMs },
  ...changed,
});

function create(lakeDir = testFolder(), lines: string[] = []) {
  const logger = pino({ base: null }, { write: (line: string) => void lines.push(line) });
  return createIdleWatermark({ lakeDir, assertFolder: () => undefined, logger, clock });
}

it.each<[string, StreamState, number]>([
  ['a stream that ends at the position', look(2000, 2005), 2000],
  ['a stream that continues', look(2000, 2005, { lastSequence: 8 }), 1000],
  ['a stream that ends before it', look(2000, 2005, { lastSequence: 6 }), 1000],
  ['another stream', look(2000, 2005, { id: 'S@2' }), 1000],
  ['a broker that does not say its time', look(2000, 2005, { clock: undefined }), 1000],
  ['an answer that took long, and began before what is known', look(900, 1100), 1000],
  ['a clock that was set back', look(500, 505), 500],
])('The watermark follows the state of %s', async (_what, state, watermarkMs) => {
  const lakeDir = testFolder();
  const watermark = create(lakeDir);
  await watermark.take(epoch, state);
  expect([watermark.find(epoch), await findWatermarkMs(lakeDir, epoch, clock)]).toEqual([watermarkMs, watermarkMs]);
});

it('The reading of one position is not used for the next', async () => {
  const watermark = create();
  await watermark.take(epoch, look(2000, 2005));
  const { watermarkMs: _, ...unmarked } = epoch;
  const next: Epoch[] = [
    { ...epoch, position: 8, watermarkMs: 1500 },
    { ...unmarked, appId: 'S@1#2' },
  ];
  expect(next.map((each) => watermark.find(each))).toEqual([1500, undefined]);
  expect(watermark.find(undefined)).toBeUndefined();
});

it('The file is written at most once a second, and one that cannot be written is logged once', async () => {
  const lakeDir = testFolder();
  const watermark = create(lakeDir);
  expect(watermark.isDue()).toBe(true);
  await watermark.take(epoch, look(2000, 2005));
  await watermark.take(epoch, look(2010, 2015));
  expect([watermark.isDue(), watermark.find(epoch), await findWatermarkMs(lakeDir, epoch, clock)]).toEqual([
    false,
    2010,
    2000,
  ]);
  const lines: string[] = [];
  const gone = path.join(testFolder(), 'gone');
  rmSync(gone, { recursive: true, force: true });
  await create(gone, lines).take(epoch, look(2000, 2005));
  expect(lines).toEqual([expect.stringContaining('cannot write watermark, will retry')]);
});

it('A clock of the broker that is ahead shows in each reading, also of a stream that continues', async () => {
  const watermark = create();
  const aheads: number[] = [];
  for (const fromMs of [2000, 1_003_000, 999_000, 1_005_000]) {
    await watermark.take(epoch, look(fromMs, fromMs + 5, { lastSequence: 8 }));
    aheads.push(watermark.brokerAheadMs());
  }
  await watermark.take(epoch, look(0, 0, { clock: undefined }));
  expect([...aheads, watermark.brokerAheadMs()]).toEqual([0, 3000, 0, 5000, 0]);
});
