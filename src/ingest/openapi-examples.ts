import type { OpenApiExample } from '../runtime/http/openapi.ts';

const given = { idApp: 1 };
/** Adds a key, a different one per example: another request under the same key is refused. */
const under = (key: string) => ({ ...given, 'Idempotency-Key': key });
const answer = { message: 'Ok' };
const registration = { customUserId: 'u-1', idGender: 2, age: 33 };
const login = { customUserId: 'u-1', eventTimestamp: 1_767_225_600 };
const customEvent = { customUserId: 'u-1', customEventName: 'level_up', customEventParams: { level: '3' } };
const revenue = { customUserId: 'u-1', idTransaction: 't-4711', currency: 'EUR', total: 9.99 };

const eventId = '019b75a0-1c00-7000-8000-0242ac120002';
const key = 'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a';
const refusals = [
  {
    time: '2026-01-01T00:00:00.000Z',
    method: 'customEvent',
    status: 400,
    error: 'Bad Request',
    detail: '/customEventName is required',
    errors: [{ pointer: '/customEventName', reason: 'is required' }],
    bytes: 20,
    hasIdempotencyKey: false,
    isValidation: false,
    requests: 1,
  },
];
const live = `event: event\ndata: {"kind":"custom_event","custom_event_name":"level_up"}\n\nevent: refusal\ndata: ${JSON.stringify(refusals[0])}\n\n`;

/** Examples of the import area by path; a test validates them. */
const storedEvent = {
  state: 'in_lake',
  eventId,
  kind: 'custom_event',
  eventTime: '2026-01-01T00:00:00.000Z',
  receivedAt: '2026-01-01T00:00:01.234Z',
  availableAt: '2026-01-01T00:00:06.500Z',
  table: 'events',
};

export const importExamples: Readonly<Record<string, OpenApiExample>> = {
  '/v1/registration/': { given: under('signup-1'), body: registration, answer },
  '/v1/registrationBatch/': { given: under('signups-1'), body: [registration, { customUserId: 'u-2' }], answer },
  '/v1/login/': { given: under('login-1'), body: login, answer },
  '/v1/loginBatch/': { given: under('logins-1'), body: [login, { customUserId: 'u-2' }], answer },
  '/v1/customEvent/': { given: under('order-4711'), body: customEvent, answer },
  '/v1/customEventBatch/': {
    given: under('orders-4711'),
    body: [customEvent, { ...customEvent, customUserId: 'u-2' }],
    answer,
  },
  '/v1/customRevenue/': { given: under('payment-4711'), body: revenue, answer },
  '/v1/customRevenueBatch/': {
    given: under('payments-4711'),
    body: [revenue, { ...revenue, idTransaction: 't-4712' }],
    answer,
  },
  '/v1/event': {
    given: { ...given, key: 'order-4711' },
    answer: {
      state: 'in_lake',
      events: [{ ...storedEvent, version: 812 }],
    },
  },
  '/v1/events': {
    given,
    body: [{ key: 'order-4711' }, { eventId }, { idTransaction: 't-4711' }],
    answer: {
      events: [{ ...storedEvent, events: { in_lake: 1 } }, storedEvent, { state: 'never_seen' }],
      watermark: '2026-01-01T00:00:06.000Z',
    },
  },
  '/v1/version': { answer: { version: '0.3.0' } },
  '/v1/receipt-key': { answer: { algorithm: 'Ed25519', key, keys: [key] } },
  '/v1/test-app-access/': { given, body: true, answer },
};

export const senderExamples: Readonly<Record<string, OpenApiExample>> = {
  '/v1/refusals': { given: { ...given, limit: 10 }, answer: { refusals } },
  '/v1/live': { given, answer: live },
};
