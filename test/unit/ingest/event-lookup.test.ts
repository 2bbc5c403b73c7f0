import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  keyedEventIds,
  makeRequestKeys,
  maskOfLake,
  naturalKeyEventIds,
  timeOrderedEventIds,
  receivedAtOf,
  requestKeyOf,
} from '../../../src/datasets/event-id.ts';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AccessReader } from '../../../src/access/access.ts';
import {
  createEventLookup,
  maxListedQueries,
  parseEventQuery,
  parseEventsBody,
} from '../../../src/ingest/event-lookup.ts';
import type { EventQuery, EventReply, EventsQuery } from '../../../src/stream/event-query-channel.ts';

const keyOf = (text: string): string => makeRequestKeys(1, text, 0)[0] ?? '';
const eventId = timeOrderedEventIds(1_700_000_000_123)(0);

/** Queries without their app. */
const readEach = (queries: ReturnType<typeof parseEventQuery>): unknown =>
  'reason' in queries
    ? queries
    : queries.map((query) => ('eventId' in query ? { eventId: query.eventId } : { requestKey: query.requestKey }));

describe('a question after an event', () => {
  it('An id of version 7 says when its event was received, and no other does', () => {
    const keyed = keyedEventIds({ idApp: 1, key: 'k', method: 'login', eventTexts: ['{}'] })(0);
    expect([eventId, keyed].map(receivedAtOf)).toEqual([1_700_000_000_123, undefined]);
  });

  it('The key stands for the ids of every request of its app under it', () => {
    for (const method of ['login', 'customEventBatch'])
      for (const mask of [maskOfLake('of a lake'), 0])
        expect(makeRequestKeys(1, 'k', maskOfLake('of a lake'))).toContain(
          requestKeyOf(keyedEventIds({ idApp: 1, key: 'k', method, eventTexts: ['{}'], mask })(0)),
        );
    expect(makeRequestKeys(2, 'k', 0)).not.toEqual(makeRequestKeys(1, 'k', 0));
  });

  it('An id in capital letters is that id, and a key is read as a header that was sent in UTF-8', () => {
    expect(parseEventQuery({ idApp: '1', eventId: eventId.toUpperCase() }, 1)).toEqual([{ idApp: 1, eventId }]);
    // A UUID of another's making is one that was never seen.
    const other = randomUUID();
    expect(parseEventQuery({ eventId: other }, 1)).toEqual([{ idApp: 1, eventId: other }]);
    const sent = Buffer.from('käse').toString('latin1');
    expect(parseEventQuery({ key: ' käse ' }, 1)).toContainEqual({ idApp: 1, requestKey: keyOf(sent) });
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
    expect(parseEventQuery({ key }, 1)).toEqual(texts.map((text) => ({ idApp: 1, requestKey: keyOf(text) })));
  });

  it('A transaction is looked for by the id that its own app gave it', () => {
    const id = naturalKeyEventIds('revenue', 1, [{ idTransaction: 't-1' }])(0);
    expect(parseEventQuery({ idTransaction: 't-1' }, 1)).toEqual([{ idApp: 1, eventId: id }]);
    expect(parseEventQuery({ idTransaction: 't-1' }, 2)).not.toEqual([{ idApp: 2, eventId: id }]);
  });

  it.each([
    { idTransaction: '' },
    { idTransaction: ['a', 'b'] },
    { idTransaction: 't', key: 'k' },
    {},
    { eventId, key: 'k' },
    { eventId: 'x' },
    { eventId: [eventId, eventId] },
    { eventId: `{${eventId}}` },
    { eventId: eventId.replaceAll('-', '') },
    { key: '' },
    { key: ' ' },
    { key: ['a', 'b'] },
    { key: 'k'.repeat(256) },
    { key: 'k', more: '1' },
  ])('The question %j is refused with the rule', (query) => {
    expect(parseEventQuery(query, 1)).toMatchObject({ reason: 'rules', detail: expect.any(String) });
  });
});

const parse = (value: unknown) => parseEventsBody(Buffer.from(JSON.stringify(value)), 1);

describe('a list of questions', () => {
  it('Each question has the targets of a single one, in the order of the list', () => {
    const key = { key: 'é' };
    expect(parse([key, { eventId }, { idTransaction: 't' }])).toEqual([
      readEach(parseEventQuery(key, 1)),
      [{ eventId }],
      readEach(parseEventQuery({ idTransaction: 't' }, 1)),
    ]);
  });

  it('A list that is too long, and a bad question in it, are refused with the place', () => {
    expect(parse(Array.from({ length: maxListedQueries }, () => ({ eventId })))).toHaveLength(maxListedQueries);
    expect(parse(Array.from({ length: maxListedQueries + 1 }, () => ({ eventId })))).toMatchObject({ reason: 'rules' });
    expect(parse([{ eventId }, { key: '' }])).toMatchObject({
      reason: 'rules',
      detail: expect.stringMatching(/^\/1 key/) as string,
    });
    expect(parse([{ eventId, idApp: 2, more: 1 }])).toMatchObject({
      detail: expect.stringMatching(/^\/0 unknown parameter more/) as string,
    });
    expect(parse({})).toMatchObject({ reason: 'rules' });
    expect(parseEventsBody(Buffer.from('x'), 1)).toMatchObject({ reason: 'json' });
  });
});

describe('many questions', () => {
  const access = {
    // Ten apps of each account.
    current: () => ({ findAppByToken: (idApp: number) => ({ idApp, idAccount: Math.floor(idApp / 10) }) }),
    mayMissApps: () => false,
  } as unknown as AccessReader;

  /** A lookup whose queries are answered on demand. */
  function createTestLookUp() {
    const asked: (EventQuery | EventsQuery)[] = [];
    const outcomes: string[] = [];
    const open: ((reply: EventReply) => void)[] = [];
    const lookUp = createEventLookup({
      access,
      importResponses: {
        accept: () => undefined,
        send: (_response, body) => void outcomes.push(body),
        refuse: (_response, { reason }) => void outcomes.push(reason),
      },
      queryEvent: (question) => {
        asked.push(question);
        return new Promise((resolve) => open.push(resolve));
      },
      fail: (error) => void outcomes.push(String(error)),
    });
    return {
      asked,
      outcomes,
      open,
      request: (query: Readonly<Record<string, unknown>>) =>
        lookUp.handle(query, { headers: { authorization: 't' } } as IncomingMessage, {} as ServerResponse),
    };
  }

  it('An app whose queries wait does not block another app, and gets Retry-After', async () => {
    const { asked, outcomes, open, request } = createTestLookUp();
    const requests = Array.from({ length: 10 }, () => request({ idApp: '1', eventId }));
    requests.push(request({ idApp: '2', eventId }));
    expect(asked.map(({ idApp }) => idApp)).toEqual([1, 1, 1, 1, 2]);
    expect(outcomes).toEqual(Array.from({ length: 6 }, () => 'busy'));
    for (const end of open) end({ answer: { state: 'in_lake' } });
    await Promise.all(requests);
    void request({ idApp: '1', eventId });
    expect(asked.at(-1)).toEqual({ idApp: 1, eventId });
  });

  it('An account with many apps leaves places to the others', async () => {
    const { asked, outcomes, request } = createTestLookUp();
    for (let idApp = 10; idApp < 20; idApp += 1)
      for (let times = 0; times < 2; times += 1) void request({ idApp: String(idApp), eventId });
    void request({ idApp: '20', eventId });
    await new Promise((resolve) => void setImmediate(resolve));
    expect([asked.length, asked.at(-1)?.idApp, outcomes.length]).toEqual([13, 20, 8]);
  });

  it('A key that was never seen as one client sends it is asked for as another does', async () => {
    const { asked, outcomes, open, request } = createTestLookUp();
    const requested = request({ idApp: '1', key: 'é' });
    open[0]?.({ answer: { state: 'never_seen' } });
    await new Promise((resolve) => void setImmediate(resolve));
    open[1]?.({ answer: { state: 'in_lake' } });
    await requested;
    expect(asked).toEqual(parseEventQuery({ key: 'é' }, 1));
    expect(outcomes).toEqual(['{"state":"in_lake"}']);
  });
});
