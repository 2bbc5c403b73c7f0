import { expect, it } from 'vitest';
import { createHeartbeat } from '../../../../src/runtime/processes/heartbeat.ts';
import { waitFor } from '../../../helpers/wait.ts';

/** Passes each of the texts; returns those that were sent. */
function toldOf(texts: readonly string[], silenceMs?: number): string[] {
  const told: string[] = [];
  const heartbeat = createHeartbeat(silenceMs);
  for (const text of texts) heartbeat.send(text, () => void told.push(text));
  return told;
}

it('A changed state is sent at once, and an unchanged one is not sent again', () => {
  expect(toldOf(['a', 'a', 'b', 'b', 'a'])).toEqual(['a', 'b', 'a']);
});

it('An unchanged state is sent again when the last heartbeat is long ago', async () => {
  let told = 0;
  const heartbeat = createHeartbeat(20);
  await waitFor('a second heartbeat is sent', () => {
    heartbeat.send('the same', () => void (told += 1));
    return told === 2;
  });
  expect(told).toBe(2);
});

it('A state whose sending failed is sent again', () => {
  const heartbeat = createHeartbeat();
  expect(() =>
    heartbeat.send('a', () => {
      throw new Error('full disk');
    }),
  ).toThrow('full disk');
  let told = false;
  heartbeat.send('a', () => void (told = true));
  expect(told).toBe(true);
});
