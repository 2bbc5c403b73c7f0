import assert from 'node:assert/strict';
import { array, assert as check, nat, property, tuple } from 'fast-check';
import { expect, test } from 'vitest';
import { keyedEventIds, keyWindowMs } from '../../../src/datasets/event-id.ts';
import { createUsedKeys, findKeyUse, type KeyUse } from '../../../src/ingest/used-keys.ts';

const lineOf = (id: string): Buffer => Buffer.from(`{"event_id":"${id}","kind":"login"}\n`);
const keyedId = (key: string, given: string, idApp = 1): string =>
  keyedEventIds({ idApp, key, method: 'login', eventTexts: [given] })(0);

function useOf(key: string, given: string, idApp = 1): KeyUse {
  const use = findKeyUse(lineOf(keyedId(key, given, idApp)));
  assert(use !== undefined);
  return use;
}

test('A key stands for its request for a day from its receipt, however often it is retried', () => {
  const keys = createUsedKeys();
  expect(keys.isOfOther(useOf('k', 'a'), 0)).toBe(false);
  expect(keys.claim(useOf('k', 'a'), 0)).toBe(true);
  expect(keys.claim(useOf('k', 'a'), keyWindowMs - 1)).toBe(false);
  expect([-1000, 0, keyWindowMs].map((ms) => keys.isOfOther(useOf('k', 'b'), ms))).toEqual([true, true, true]);
  expect(keys.isOfOther(useOf('k', 'a'), keyWindowMs)).toBe(false);
  expect(keys.isOfOther(useOf('l', 'b'), 0)).toBe(false);
  expect(keys.isOfOther(useOf('k', 'b', 2), 0)).toBe(false);
  expect(keys.isOfOther(useOf('k', 'b'), keyWindowMs + 1)).toBe(false);
  expect(keys.claim(useOf('k', 'b'), keyWindowMs + 1)).toBe(true);
  expect(keys.isOfOther(useOf('k', 'a'), keyWindowMs + 1)).toBe(true);
});

test('A released key stands for nothing, and is not released by another request', () => {
  const keys = createUsedKeys();
  keys.claim(useOf('k', 'a'), 5);
  keys.release(useOf('k', 'b'));
  expect(keys.isOfOther(useOf('k', 'b'), 5)).toBe(true);
  keys.release(useOf('k', 'a'));
  expect(keys.isOfOther(useOf('k', 'b'), 5)).toBe(false);
});

test('A small record of keys rejects no other request, and has the newest keys', () => {
  check(
    property(array(tuple(nat(40), nat(2)), { maxLength: 200 }), (requests) => {
      const keys = createUsedKeys(16);
      const stands = new Map<number, number>();
      for (const [ms, [key, given]] of requests.entries()) {
        const use = useOf(String(key), String(given));
        // One that another request has is never taken for it.
        expect(keys.isOfOther(use, ms) && stands.get(key) === given).toBe(false);
        if (keys.claim(use, ms)) stands.set(key, given);
        expect(keys.isOfOther(useOf(String(key), 'never sent'), ms)).toBe(true);
      }
    }),
  );
});

test('Only the lines of a request under an Idempotency-Key use a key', () => {
  const plain = '01900000-0000-7000-8000-000000000000';
  const ids = [plain, plain.replace('-7', '-5'), plain.replace('-7', '-8')];
  expect(ids.map((id) => findKeyUse(lineOf(id)) !== undefined)).toEqual([false, false, true]);
});
