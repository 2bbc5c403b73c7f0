import { expect, it } from 'vitest';
import { createIdleStream } from '../../../src/compact/position/stream-position.ts';
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
  const idleStream = createIdleStream(reader);
  expect(idleStream.isIdle()).toBe(false);
  idleStream.markIdle(epoch, idleStream.arrivals());
  expect([idleStream.isIdle(), idleStream.isIdle(epoch)]).toEqual([true, true]);
  reader.arrive();
  expect([idleStream.isIdle(), idleStream.isIdle(epoch)]).toEqual([false, false]);
});

it('A message that arrives during the comparison of the stream is noticed', () => {
  const reader = createReader();
  const idleStream = createIdleStream(reader);
  const before = idleStream.arrivals();
  reader.arrive();
  idleStream.markIdle(epoch, before);
  expect(idleStream.isIdle()).toBe(false);
});

it('The stream counts as changed at another position or epoch, after a failure, and for a reader that does not count', () => {
  const idleStream = createIdleStream(createReader());
  idleStream.markIdle(epoch, idleStream.arrivals());
  expect(idleStream.isIdle({ ...epoch, position: 8 })).toBe(false);
  expect(idleStream.isIdle({ ...epoch, appId: 'S@1#2' })).toBe(false);
  idleStream.invalidate();
  expect(idleStream.isIdle(epoch)).toBe(false);
  const blind = createIdleStream({});
  blind.markIdle(epoch, blind.arrivals());
  expect(blind.isIdle()).toBe(false);
});

it('The stream is compared again at intervals, even if no message arrives', async () => {
  const idleStream = createIdleStream(createReader(), 20);
  idleStream.markIdle(epoch, idleStream.arrivals());
  await waitFor('it is to be compared again', () => !idleStream.isIdle());
  expect(idleStream.isIdle(epoch)).toBe(false);
});
