import { expect, test } from 'vitest';
import { createFlushLimits } from '../../../src/compact/batch/flush-limits.ts';

/** Creates limits with a flush age of 5 s, and a clock that the test advances. */
function create() {
  let nowMs = 1_000_000;
  const limits = createFlushLimits({ bytes: 1, rows: 1, ageMs: 5000 }, () => nowMs);
  return { age: { ...limits, leftMs: () => limits.next().maxAgeMs }, pass: (ms: number) => (nowMs += ms) };
}

test('Messages that wait at the start may be of any age, and are flushed at once', () => {
  expect(create().age.leftMs()).toBe(500);
});

test('The age counts from the pull that has left nothing behind, and the flush in between counts as well', () => {
  const { age, pass } = create();
  age.pulled(true);
  expect(age.leftMs()).toBe(5000);
  pass(1500);
  age.flushed(1500);
  // The next flush will take as long: the events must be committed when the age has passed.
  expect(age.leftMs()).toBe(2000);
  pass(1900);
  expect(age.leftMs()).toBe(500);
});

test('Messages that a full batch has left have waited since the previous pull', () => {
  const { age, pass } = create();
  age.pulled(true);
  pass(4000);
  age.pulled(false);
  pass(100);
  expect(age.leftMs()).toBe(900);
});

test('Flushes that take longer than half of the age leave the other half to wait for more', () => {
  const { age, pass } = create();
  age.flushed(60_000);
  age.pulled(true);
  expect(age.leftMs()).toBe(2500);
  pass(60_000);
  expect(age.leftMs()).toBe(500);
});

test('A flush age that is shorter than a pull needs is the wait', () => {
  expect(createFlushLimits({ bytes: 1, rows: 1, ageMs: 20 }, () => 0).next().maxAgeMs).toBe(20);
});
