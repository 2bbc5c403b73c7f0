import { expect, it } from 'vitest';
import { createStillness } from '../../../src/compact/position/stream-position.ts';
import type { Epoch } from '../../../src/lake/log/lake-state.ts';
import { waitFor } from '../../helpers/wait.ts';

const epoch: Epoch = { appId: 'S@1', streamId: 'S@1', position: 7, dedupeThrough: 0 };

/** A reader whose count of arrivals the test raises. */
function createReader(): { arrivals: () => number; arrive: () => void } {
  let count = 0;
  return { arrivals: () => count, arrive: () => void (count += 1) };
}

it('The stream is known to be unchanged until a message arrives', () => {
  const reader = createReader();
  const stillness = createStillness(reader);
  expect(stillness.holds()).toBe(false);
  stillness.begin(epoch, stillness.arrivals());
  expect([stillness.holds(), stillness.holds(epoch)]).toEqual([true, true]);
  reader.arrive();
  expect([stillness.holds(), stillness.holds(epoch)]).toEqual([false, false]);
});

it('A message that arrives during the comparison of the stream is noticed', () => {
  const reader = createReader();
  const stillness = createStillness(reader);
  const before = stillness.arrivals();
  reader.arrive();
  stillness.begin(epoch, before);
  expect(stillness.holds()).toBe(false);
});

it('The stream counts as changed at another position or epoch, after a failure, and for a reader that does not count', () => {
  const stillness = createStillness(createReader());
  stillness.begin(epoch, stillness.arrivals());
  expect(stillness.holds({ ...epoch, position: 8 })).toBe(false);
  expect(stillness.holds({ ...epoch, appId: 'S@1#2' })).toBe(false);
  stillness.end();
  expect(stillness.holds(epoch)).toBe(false);
  const blind = createStillness({});
  blind.begin(epoch, blind.arrivals());
  expect(blind.holds()).toBe(false);
});

it('The stream is compared again at intervals, even if no message arrives', async () => {
  const stillness = createStillness(createReader(), 20);
  stillness.begin(epoch, stillness.arrivals());
  await waitFor('it is to be compared again', () => !stillness.holds());
  expect(stillness.holds(epoch)).toBe(false);
});
