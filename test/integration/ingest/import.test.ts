import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../helpers/folder.ts';
import { ask, startTestIngest, type TestIngest } from '../../helpers/ingest.ts';

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

  it('A batch is stored whole or not at all', async () => {
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

  it('An import with an Idempotency-Key gives a retry the same ids, and another request the same key with another fingerprint in every event', async () => {
    const headers = { 'idempotency-key': 'order-1' };
    const send = async (method: string, body: object): Promise<string[]> => {
      expect((await service.post('web', method, body, headers)).status).toBe(200);
      return (await service.newLines()).map((line) => String(line['event_id']));
    };
    const first = await send('registrationBatch', [{ customUserId: 'a' }, { customUserId: 'b', age: '5' }]);
    expect(first[0]).toMatch(uuid(8));
    expect(new Set(first).size).toBe(2);
    expect(await send('registrationBatch', [{ customUserId: 'a' }, { age: 5, customUserId: 'b' }])).toEqual(first);
    const others = [
      ...(await send('registrationBatch', [{ customUserId: 'a' }])),
      ...(await send('registrationBatch', [{ customUserId: 'a' }, { customUserId: 'c' }])),
      ...(await send('registrationBatch', [
        { customUserId: 'a' },
        { customUserId: 'b', age: '5' },
        { customUserId: 'c' },
      ])),
      ...(await send('registrationBatch', [{ customUserId: 'b', age: '5' }, { customUserId: 'a' }])),
      ...(await send('loginBatch', [{ customUserId: 'a' }])),
      ...(await send('registration', { customUserId: 'a' })),
    ];
    expect(new Set([...first, ...others].map((id) => id.slice(0, 24))).size).toBe(1);
    expect(others.filter((id) => id.slice(24, 34) === first[0]?.slice(24, 34))).toEqual([]);
    expect(new Set(others).size).toBe(others.length);
  });

  it('An import with the same key for another app or another method gets other ids', async () => {
    const headers = { 'idempotency-key': 'same' };
    for (const [platform, method] of [
      ['web', 'login'],
      ['mobile-a', 'login'],
      ['web', 'registration'],
    ] as const)
      await service.post(platform, method, { customUserId: 'a' }, headers);
    const [first, otherApp, otherMethod] = (await service.newLines()).map((line) => String(line['event_id']));
    expect(otherApp?.slice(0, 24)).not.toBe(first?.slice(0, 24));
    expect(otherMethod?.slice(0, 24)).toBe(first?.slice(0, 24));
    expect(otherMethod).not.toBe(first);
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
    ['/v1/login/', 'x', 'idApp is missing: it stands in the address, as in ?idApp=1'],
    ['/v1/login/?idApp=1', '', "the header Authorization is missing: it holds the app's token"],
    ['/v1/login/?idApp=1', 'Bearer x', "the header Authorization holds the app's token as it is, without 'Bearer'"],
    ['/v1/login/?idApp=1', 'x', 'the token does not suit the app named by idApp'],
    ['/v1/login/?idApp=999', 'x', 'the token does not suit the app named by idApp'],
  ])(
    'What a request to %s with the token %j lacks is said, and not whether there is such an app',
    async (at, token, detail) => {
      const headers = token === '' ? new Headers() : { authorization: token };
      const answer = await ask(`${service.url}${at}`, { method: 'POST', headers, body: '{}' });
      expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([403, detail]);
    },
  );

  it('A method of the import that is asked for instead of called says how it is called', async () => {
    const answer = await ask(`${service.url}/v1/login/?idApp=1`, { method: 'GET' });
    expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([404, 'the method is called by POST']);
  });
});
