import { describe, expect, it } from 'vitest';
import {
  keyedEventIds,
  makeRequestKey,
  plainEventIds,
  receivedAtOf,
  requestKeyOf,
} from '../../../src/datasets/event-id.ts';
import { parseQuestion } from '../../../src/ingest/event-look-up.ts';

const eventId = plainEventIds(1_700_000_000_123)(0);

describe('a question after an event', () => {
  it('An id of version 7 says when its event was received, and no other does', () => {
    const keyed = keyedEventIds({ idApp: 1, key: 'k', method: 'login', given: ['{}'] })(0);
    expect([eventId, keyed].map(receivedAtOf)).toEqual([1_700_000_000_123, undefined]);
  });

  it('The key stands for the ids of every request under it, of its own app', () => {
    for (const method of ['login', 'customEventBatch'])
      expect(requestKeyOf(keyedEventIds({ idApp: 1, key: 'k', method, given: ['{}'] })(0))).toBe(
        makeRequestKey(1, 'k'),
      );
    expect(makeRequestKey(2, 'k')).not.toBe(makeRequestKey(1, 'k'));
  });

  it('An id in capital letters is that id, and a key is read as a header that was sent in UTF-8', () => {
    expect(parseQuestion({ idApp: '1', eventId: eventId.toUpperCase() }, 1)).toEqual([{ idApp: 1, eventId }]);
    const sent = Buffer.from('käse').toString('latin1');
    expect(parseQuestion({ key: ' käse ' }, 1)).toContainEqual({ idApp: 1, requestKey: makeRequestKey(1, sent) });
  });

  it.each([
    ['order-1', ['order-1']],
    ['\t order 1 ', ['order 1']],
    ['käse', ['kÃ¤se', 'käse']],
    // The last byte of these letters in UTF-8 is a space in Latin-1, and belongs to the key.
    ['voilà', ['voilÃ\u00a0', 'voilà']],
    ['ПАР', ['Ð\u009fÐ\u0090Ð\u00a0']],
    ['é'.repeat(200), ['é'.repeat(200)]],
  ])('The key %j is looked for as clients send it in a header, byte for byte', (key, texts) => {
    expect(parseQuestion({ key }, 1)).toEqual(texts.map((text) => ({ idApp: 1, requestKey: makeRequestKey(1, text) })));
  });

  it.each([
    {},
    { eventId, key: 'k' },
    { eventId: 'x' },
    { eventId: [eventId, eventId] },
    { eventId: eventId.replace('-7', '-4') },
    { key: '' },
    { key: ' ' },
    { key: ['a', 'b'] },
    { key: 'k'.repeat(256) },
    { key: 'k', more: '1' },
  ])('The question %j is refused with the rule', (query) => {
    expect(parseQuestion(query, 1)).toMatchObject({ reason: 'rules', detail: expect.any(String) });
  });
});
