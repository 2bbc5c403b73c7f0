import { describe, expect, it } from 'vitest';
import {
  fingerprintOf,
  fingerprintSql,
  isKeyedId,
  isKeyedSql,
  keyedEventIds,
  maskOfLake,
  otherFormOf,
  requestIndexSql,
  timeOrderedEventIds,
  requestKeyOf,
  requestKeySql,
  type KeyedRequest,
} from '../../../src/datasets/event-id.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const request: KeyedRequest = { idApp: 1, key: 'k', method: 'customEventBatch', eventTexts: ['["a"]', '["b"]'] };
const idsOf = (given: Partial<KeyedRequest>): string[] => {
  const ids = keyedEventIds({ ...request, ...given });
  return [0, 1, 19].map(ids);
};

describe('the id of an event without a key', () => {
  it('The id of an event without a key is a UUID of version 7 that sorts by the time of its receipt and is never repeated', () => {
    const ids = Array.from({ length: 2000 }, (_, index) => timeOrderedEventIds(1_700_000_000_000 + index)(0));
    for (const id of ids) expect(id).toMatch(uuid);
    expect(ids.some(isKeyedId)).toBe(false);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.toSorted()).toEqual(ids);
  });
});

describe('the id of an event with an Idempotency-Key', () => {
  it('The id of an event with an Idempotency-Key is a UUID of version 8, the same for every retry of the request, another for each of its events', () => {
    for (const id of idsOf({})) expect(id).toMatch(uuid);
    expect(idsOf({}).every(isKeyedId)).toBe(true);
    expect(idsOf({})).toEqual(idsOf({}));
    expect(new Set(idsOf({})).size).toBe(3);
  });

  it('The id of an event with an Idempotency-Key has one key for every request under it, and a fingerprint of each', () => {
    const others = [{ method: 'loginBatch' }, { eventTexts: ['["b"]', '["a"]'] }, { eventTexts: ['["a"]'] }];
    for (const other of others) {
      expect(idsOf(other).map(requestKeyOf)).toEqual(idsOf({}).map(requestKeyOf));
      expect(new Set([...idsOf(other), ...idsOf({})].map(fingerprintOf)).size).toBe(2);
    }
  });

  it('The id of an event with an Idempotency-Key has another key for another app, or another text', () => {
    const keys = [{}, { idApp: 2 }, { key: 'l' }].map((given) => requestKeyOf(idsOf(given)[0] ?? ''));
    expect(new Set(keys).size).toBe(3);
  });

  it('The id of an event with an Idempotency-Key differs between lakes, and converts to that of earlier versions', () => {
    const masks = ['one lake', 'another lake'].map(maskOfLake);
    const [none, one, other] = [0, ...masks].map((mask) => idsOf({ mask }));
    expect(new Set([none, one, other].flat()).size).toBe(9);
    for (const id of one ?? []) expect(id).toMatch(uuid);
    expect(one?.map((id) => otherFormOf(id, masks[0] ?? 0))).toEqual(none);
    expect(none?.map((id) => otherFormOf(id, masks[1] ?? 0))).toEqual(other);
  });

  it('The id of an event with an Idempotency-Key is read by SQL as by the program, with or without the mask of its lake', async () => {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      const mask = maskOfLake('of the lake');
      const foreign = idsOf({ mask: maskOfLake('of another') });
      const all = [
        ...idsOf({}),
        ...idsOf({ mask }),
        ...idsOf({ eventTexts: ['["c"]'] }),
        timeOrderedEventIds(1)(0),
        ...foreign,
      ];
      const values = all.map((id) => `('${id}')`).join(', ');
      const rows = await duckdb.rows(
        `SELECT id, ${isKeyedSql('id')} AS keyed, ${requestKeySql('id', mask)}::VARCHAR AS key, ${fingerprintSql('id')} AS print, ${requestIndexSql('id')} AS place FROM (VALUES ${values}) t(id)`,
      );
      for (const row of rows) {
        const id = String(row['id']);
        expect(row['keyed']).toBe(isKeyedId(id));
        if (!isKeyedId(id)) continue;
        expect(Number(row['print'])).toBe(Number.parseInt(fingerprintOf(id), 16));
      }
      expect(rows.slice(0, 3).map((row) => Number(row['place']))).toEqual([0, 1, 19]);
      const keys = rows.filter((row) => row['keyed'] === true).map((row) => String(row['key']));
      expect(new Set(keys.slice(0, 9)).size).toBe(1);
      expect([new Set(keys.slice(9)).size, keys.slice(9).includes(keys[0] ?? '')]).toEqual([1, false]);
    } finally {
      duckdb.close();
    }
  });
});
