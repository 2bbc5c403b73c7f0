import { array, assert, nat, property, tuple } from 'fast-check';
import { expect, test } from 'vitest';
import { keyedEventIds, keyWindowMs } from '../../../src/datasets/event-id.ts';
import { createUsedKeys, findKeyedId } from '../../../src/ingest/used-keys.ts';

const lineOf = (id: string): Buffer => Buffer.from(`{"event_id":"${id}","kind":"login"}\n`);
const idOf = (key: string, given: string, idApp = 1): string =>
  keyedEventIds({ idApp, key, method: 'login', given: [given] })(0);

test('A key stands for its request for a day from its receipt, however often it is retried', () => {
  const keys = createUsedKeys();
  expect(keys.isOfOther(idOf('k', 'a'), 0)).toBe(false);
  expect(keys.claim(idOf('k', 'a'), 0)).toBe(true);
  expect(keys.claim(idOf('k', 'a'), keyWindowMs - 1)).toBe(false);
  expect([-1000, 0, keyWindowMs].map((ms) => keys.isOfOther(idOf('k', 'b'), ms))).toEqual([true, true, true]);
  expect(keys.isOfOther(idOf('k', 'a'), keyWindowMs)).toBe(false);
  expect(keys.isOfOther(idOf('l', 'b'), 0)).toBe(false);
  expect(keys.isOfOther(idOf('k', 'b', 2), 0)).toBe(false);
  expect(keys.isOfOther(idOf('k', 'b'), keyWindowMs + 1)).toBe(false);
  expect(keys.claim(idOf('k', 'b'), keyWindowMs + 1)).toBe(true);
  expect(keys.isOfOther(idOf('k', 'a'), keyWindowMs + 1)).toBe(true);
});

test('A released key stands for nothing, and is not released by another request', () => {
  const keys = createUsedKeys();
  keys.claim(idOf('k', 'a'), 5);
  keys.release(idOf('k', 'b'));
  expect(keys.isOfOther(idOf('k', 'b'), 5)).toBe(true);
  keys.release(idOf('k', 'a'));
  expect(keys.isOfOther(idOf('k', 'b'), 5)).toBe(false);
});

test('A memory of few keys refuses no request that it should not, and knows the newest keys of those that came', () => {
  assert(
    property(array(tuple(nat(40), nat(2)), { maxLength: 200 }), (requests) => {
      const keys = createUsedKeys(16);
      const stands = new Map<number, number>();
      for (const [ms, [key, given]] of requests.entries()) {
        const id = idOf(String(key), String(given));
        // One that another request has is never taken for it.
        expect(keys.isOfOther(id, ms) && stands.get(key) === given).toBe(false);
        if (keys.claim(id, ms)) stands.set(key, given);
        expect(keys.isOfOther(idOf(String(key), 'never sent'), ms)).toBe(true);
      }
    }),
  );
});

test('Only the lines of a request under an Idempotency-Key have a keyed id', () => {
  const plain = '01900000-0000-7000-8000-000000000000';
  expect(findKeyedId(lineOf(idOf('k', 'a')))).toBe(idOf('k', 'a'));
  expect([plain, plain.replace('-7', '-5')].map((id) => findKeyedId(lineOf(id)))).toEqual([undefined, undefined]);
});
