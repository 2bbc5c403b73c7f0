import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../helpers/folder.ts';
import { ask, startTestIngest, testApps, type ImportAnswer, type TestIngest } from '../../helpers/ingest.ts';

const folder = temporaryFolder();
let service: TestIngest;
beforeAll(async () => {
  service = await startTestIngest(folder);
});
afterAll(() => service.stop());

const uuid = (version: 7 | 8): RegExp =>
  new RegExp(`^[0-9a-f]{8}-[0-9a-f]{4}-${version}[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`);

describe('an import', () => {
  it('A full custom event is in the stream, field for field, when the 200 arrives', async () => {
    const event = {
      customEventName: 'level_up',
      customEventParams: { level: '7', __proto_: 'x', имя: '💰' },
      eventTimestamp: '1700000000',
      customUserId: 'u-1',
      age: '33',
      sezamUserId: '9223372036854775807',
      hwid: '18446744073709551615',
      unknown: [1, 2],
    };
    const answer = await service.post('game', 'customEvent', event);
    expect(answer).toMatchObject({ status: 200, body: '{"message":"Ok"}' });
    expect(answer.headers.get('content-type')).toBe('application/json; charset=utf-8');
    const [line] = await service.newLines();
    expect(line).toEqual({
      event_id: expect.stringMatching(uuid(7)) as string,
      kind: 'custom_event',
      id_app: 5,
      event_time: 1_700_000_000,
      received_at: expect.closeTo(Date.now(), -4) as number,
      custom_event_name: 'level_up',
      custom_event_params: { level: '7', __proto_: 'x', имя: '💰' },
      custom_user_id: 'u-1',
      age: 33,
      connection_type: 0,
      bluetooth_enabled: 0,
      sezam_user_id: '9223372036854775807',
      hwid: '18446744073709551615',
    });
  });

  it('A batch is stored completely or not at all', async () => {
    const events = Array.from({ length: 20 }, (_, index) => ({ customUserId: `u-${index}` }));
    expect((await service.post('web', 'loginBatch', events)).status).toBe(200);
    expect((await service.newLines()).map((line) => line['custom_user_id'])).toEqual(
      events.map((event) => event.customUserId),
    );
    const refused = await service.post('web', 'loginBatch', [...events.slice(1), { customUserId: 1 }]);
    expect(refused).toMatchObject({ status: 400, body: '{"error":"Bad Request"}' });
    expect(refused.headers.get('x-error-detail')).toBe('/19/customUserId must be string (write it in quotes)');
    expect(await service.newLines()).toEqual([]);
  });

  it('A retry under an Idempotency-Key has the same ids, and another request under the key is refused', async () => {
    const headers = { 'idempotency-key': 'order-1' };
    const post = (method: string, body: object): Promise<ImportAnswer> => service.post('web', method, body, headers);
    const events = [{ customUserId: 'a' }, { customUserId: 'b', age: '5' }];
    const [a = {}, b = {}] = events;
    expect((await post('registrationBatch', events)).status).toBe(200);
    expect((await post('registrationBatch', [{ customUserId: 'a' }, { age: 5, customUserId: 'b' }])).status).toBe(200);
    const ids = (await service.newLines()).map((line) => String(line['event_id']));
    expect(ids[0]).toMatch(uuid(8));
    expect([new Set(ids).size, ids.slice(0, 2)]).toEqual([2, ids.slice(2)]);
    const others = [
      ['registrationBatch', [a]],
      ['registrationBatch', [a, { customUserId: 'c' }]],
      ['registrationBatch', [...events, { customUserId: 'c' }]],
      ['registrationBatch', [b, a]],
      ['loginBatch', events],
      ['registration', a],
    ] as const;
    for (const [method, body] of others) {
      const refused = await post(method, body);
      expect([method, refused.status, refused.body]).toEqual([method, 400, '{"error":"Bad Request"}']);
      expect(refused.headers.get('x-error-detail')).toMatch(/^the Idempotency-Key was used for another request/);
    }
    expect((await post('registrationBatch', events)).status).toBe(200);
    expect((await service.newLines()).map((line) => line['event_id'])).toEqual(ids.slice(0, 2));
    const elsewhere = await service.post('mobile-a', 'registrationBatch', [a], headers);
    expect([elsewhere.status, (await service.newLines()).length]).toEqual([200, 1]);
  });

  it('Of two requests that come at once under one key one is stored, and a check alone claims no key', async () => {
    const headers = { 'idempotency-key': 'at-once' };
    const check = (customUserId: string): Promise<ImportAnswer> =>
      ask(`${service.url}/v1/login/?idApp=${testApps.web}&validate=1`, {
        method: 'POST',
        headers: { authorization: service.tokens.web, ...headers },
        body: JSON.stringify({ customUserId }),
      });
    expect((await check('a')).status).toBe(200);
    const sent = ['x', 'y', 'x', 'y'].map((customUserId) => service.post('web', 'login', { customUserId }, headers));
    const [x1, y1, x2, y2] = (await Promise.all(sent)).map(({ status }) => status);
    expect(
      [
        [x1, x2],
        [y1, y2],
      ].toSorted(([a = 0], [b = 0]) => a - b),
    ).toEqual([
      [200, 200],
      [400, 400],
    ]);
    expect(new Set((await service.newLines()).map((line) => line['event_id'])).size).toBe(1);
    expect((await check('a')).status).toBe(400);
  });

  it('An import may be gzipped', async () => {
    const body = JSON.stringify({ customEventName: 'x', customUserId: 'u', customEventParams: { a: 'b'.repeat(255) } });
    expect(await service.post('web', 'customEvent', gzipSync(body), { 'content-encoding': 'gzip' })).toMatchObject({
      status: 200,
    });
    expect(await service.newLines()).toHaveLength(1);
  });

  it('An import of a gzip bomb is refused without unpacking it', async () => {
    const bomb = gzipSync(Buffer.alloc(5_000_000, 32));
    expect(await service.post('web', 'customEvent', bomb, { 'content-encoding': 'gzip' })).toMatchObject({
      status: 400,
      body: '{"error":"Bad Request"}',
    });
  });
});

describe('the other methods', () => {
  it('The version method reports the version without a token', async () => {
    for (const path of ['/v1/version', '/v1/version/']) {
      const answer = await ask(`${service.url}${path}`, { method: 'POST' });
      expect(answer.status).toBe(200);
      expect(JSON.parse(answer.body)).toEqual({ version: expect.stringMatching(/^\d+\.\d+\.\d+$/) as string });
    }
  });

  it('The token method reports whether a token belongs to an app', async () => {
    expect(await service.post('web', 'test-app-access', 'true')).toMatchObject({ status: 200 });
    expect(await service.post('web', 'test-app-access', 'true', { authorization: service.tokens.game })).toMatchObject({
      status: 403,
      body: '{"error":"Forbidden"}',
    });
  });

  it.each([
    ['/v1/login/', 'x', 'idApp is missing: add it to the address, as in ?idApp=1'],
    ['/v1/login/?idApp=1', '', "the header Authorization is missing: it must be the app's token"],
    ['/v1/login/?idApp=1', 'Bearer x', "the header Authorization must be the app's token without 'Bearer'"],
    ['/v1/login/?idApp=1', 'x', 'the token in the header Authorization is of no app: it is wrong or was revoked'],
    ['/v1/login/?idApp=999', 'x', 'the token in the header Authorization is of no app: it is wrong or was revoked'],
  ])(
    'What a request to %s with the token %j lacks is said, and not whether there is such an app',
    async (at, token, detail) => {
      const headers = token === '' ? new Headers() : { authorization: token };
      const answer = await ask(`${service.url}${at}`, { method: 'POST', headers, body: '{}' });
      expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([403, detail]);
    },
  );

  it('The token of an app is named as such for each other app, whether there is one or not', async () => {
    for (const idApp of [1, 999]) {
      const headers = { authorization: service.tokens.game };
      const answer = await ask(`${service.url}/v1/login/?idApp=${idApp}`, { method: 'POST', headers, body: '{}' });
      expect([answer.status, answer.body]).toEqual([403, '{"error":"Forbidden"}']);
      expect(answer.headers.get('x-error-detail')).toMatch(
        new RegExp(`^the token in the header Authorization is of app [0-9]+, not of app ${idApp}: check idApp$`),
      );
    }
  });

  it('A method of the import that is asked for instead of called says how it is called', async () => {
    const answer = await ask(`${service.url}/v1/login/?idApp=1`, { method: 'GET' });
    expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([404, 'the method is called by POST']);
  });
});
