import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ImportMethod } from '../../../src/datasets/field-schema.ts';
import { parseImportRequest } from '../../../src/ingest/import-request.ts';
import { describeForLog, createRefusalRecorder, type RefusedRequest } from '../../../src/ingest/refusal-recorder.ts';
import type { BodyPolicy, RefusalRecord } from '../../../src/refusals/refusal-files.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { silentLogger } from '../../helpers/nats.ts';

function startKeeper(bodies: BodyPolicy, before = Promise.resolve()) {
  const written: { readonly idApp: number; readonly records: readonly RefusalRecord[] }[] = [];
  const keeper = createRefusalRecorder({
    clock: createClock(0),
    logger: silentLogger,
    bodies,
    async write(idApp, records) {
      await before;
      written.push({ idApp, records });
    },
  });
  onTestFinished(() => keeper.stop());
  return { keeper, written };
}

/** A request as import refuses it. */
function refused(method: ImportMethod, body: string | Buffer, headers = {}, idApp = 1): RefusedRequest {
  const request = {
    method,
    head: { headers, headersDistinct: {} },
    body: Buffer.from(body),
    app: { idApp, platform: 'web' as const },
    receivedAtMs: 0,
  };
  const refusal = parseImportRequest(request);
  if (!('reason' in refusal)) throw new Error('the request is good');
  return { ...request, refusal, target: { method }, isValidation: false };
}

async function keep(bodies: BodyPolicy, ...requests: RefusedRequest[]): Promise<RefusalRecord[]> {
  const { keeper, written } = startKeeper(bodies);
  for (const request of requests) keeper.add(request);
  await keeper.stop();
  return written.flatMap(({ records }) => records);
}

const secret = 'ivan@example.com';
const batch = JSON.stringify([
  { customUserId: 'u', customEventName: 'good' },
  { customUserId: secret, age: 'x', customEventParams: { [secret]: 5 }, [secret]: secret, customEventName: 'e' },
]);

describe('what is kept of a refused request', () => {
  it('The record names the method, the answer, every fault with its hint, the size and whether there was a key', async () => {
    const [record] = await keep('on', refused('login', '{"customUserId":5,"age":200}', { 'idempotency-key': 'k' }));
    expect(record).toMatchObject({
      method: 'login',
      status: 400,
      error: 'Bad Request',
      detail: '/customUserId must be string',
      errors: [
        { pointer: '/customUserId', reason: 'must be string', hint: 'write it in quotes' },
        { pointer: '/age', reason: 'must be <= 128' },
      ],
      excerpt: '{"customUserId":5,"age":200}',
      bytes: 28,
      hasIdempotencyKey: true,
      isValidation: false,
      requests: 1,
    });
  });

  it('A redacted record has the shape of the event, and neither values nor names of the client', async () => {
    const [record] = await keep('redacted', refused('customEventBatch', batch));
    expect(JSON.stringify(record)).not.toContain('ivan');
    expect(record?.errors.map(({ pointer }) => pointer)).toContain('/1/customEventParams/*');
    expect(JSON.parse(record?.excerpt ?? '')).toEqual({
      customUserId: '<text of 16>',
      age: '<text of 1>',
      customEventParams: '<object of 1>',
      customEventName: '<text of 1>',
      '<unknown>': 1,
    });
    const [broken] = await keep('redacted', refused('login', `{"customUserId":"${secret}`));
    const detail =
      'the body is not valid JSON at line 1, column 17: the text has no closing quote, or a character that must be escaped';
    expect([broken?.detail, broken?.excerpt]).toEqual([detail, undefined]);
  });

  it('A redacted path has the version and a possible method name, and an unredacted one is complete', async () => {
    const paths = [
      '/v1/logn',
      '/v2/login/',
      '/custom-event',
      '/v1/ivan@example.com',
      '/v1/login/ivan',
      '/ivan/7',
      '/v1/79261234567',
    ];
    const to = (policy: BodyPolicy) =>
      keep(policy, ...paths.map((target) => ({ ...refused('login', '{}'), target: { path: target } })));
    const redacted = (await to('redacted')).map(({ method }) => method);
    expect(redacted).toEqual(['/v1/logn', '/v2/login/', '/custom-event', '/v1/*', '/v1/login/*', '/ivan/*', '/v1/*']);
    expect((await to('off')).map(({ method }) => method)).toEqual(redacted);
    expect((await to('on')).map(({ method }) => method)).toEqual(paths);
  });

  it('The text is shown if bodies are on, and nothing of it if they are off', async () => {
    const text = `{"customUserId":"${secret}`;
    const on = await keep(
      'on',
      refused('login', text),
      refused('login', gzipSync(text), { 'content-encoding': 'gzip' }),
    );
    expect(on.map(({ excerpt, requests }) => [excerpt, requests])).toEqual([[text, 2]]);
    const [off] = await keep('off', refused('customEventBatch', batch));
    expect(off?.excerpt).toBeUndefined();
    expect(JSON.stringify(off)).not.toContain('ivan');
  });

  it('A record stays small and is one line of JSON, regardless of the body', async () => {
    const bodies = [
      `{"${'x'.repeat(9000)}":1}`,
      `{"customUserId":"u","customEventName":"e","customEventParams":{"${'é\n'.repeat(2000).replaceAll('\n', '\\n')}":1}}`,
      `${'['.repeat(5000)}${']'.repeat(5000)}`,
      `{"customUserId":"\\ud800"}`,
      Buffer.from([0xff, 0xfe, 10, 13, 0]),
      '',
    ];
    for (const policy of ['on', 'redacted', 'off'] as const) {
      const records = await keep(policy, ...bodies.map((body) => refused('customEvent', body)));
      expect(records).toHaveLength(bodies.length);
      for (const record of records) {
        const line = JSON.stringify(record);
        expect(Buffer.byteLength(line)).toBeLessThan(8192);
        expect(line.includes('\n') || !line.isWellFormed()).toBe(false);
      }
    }
  });

  it('A request that was only checked does not share a record with one that was to be stored', async () => {
    const request = refused('login', '{}');
    const records = await keep('redacted', { ...request, isValidation: true }, request, request);
    expect(records.map(({ isValidation, requests }) => [isValidation, requests])).toEqual([
      [true, 1],
      [false, 2],
    ]);
  });

  it('The detail has the rule, however long the name before it is, and the log has no name of the sender', async () => {
    const request = refused(
      'customEvent',
      JSON.stringify({
        customUserId: 'u',
        customEventName: 'e',
        customEventParams: { [`${secret}${'x'.repeat(200)}`]: 5 },
      }),
    );
    const [record] = await keep('on', request);
    expect(record?.detail).toMatch(/^\/customEventParams\/ivan@example\.comx+\.\.\. must be string$/);
    expect(describeForLog(request.refusal)).toBe('/customEventParams/* must be string');
    expect(describeForLog(refused('loginBatch', '{}').refusal)).toBe('/ must be an array of events');
  });

  it('Of a long event the member that is wrong is shown', async () => {
    const event = { customUserId: 'u', filler: 'x'.repeat(700), age: 'old' };
    const [record] = await keep('on', refused('login', JSON.stringify(event)));
    expect([record?.detail, record?.excerpt]).toEqual(['/age must be integer', '{"age":"old"}']);
  });

  it('A flood becomes few records that count, an app with few is not pushed out, and what is left out is counted', async () => {
    const { keeper, written } = startKeeper('redacted');
    const [alike, other] = [refused('login', '{"age":"x"}'), refused('login', '{}')];
    for (let n = 0; n < 5000; n += 1) keeper.add(alike);
    for (let n = 0; n < 500; n += 1) keeper.add({ ...other, target: { path: `/v1/${n}` } });
    keeper.add(refused('login', '{}', {}, 2));
    await keeper.stop();
    const of = (id: number) => written.flatMap(({ idApp, records }) => (idApp === id ? records : []));
    expect(of(1)).toHaveLength(20);
    expect(of(1)[0]).toMatchObject({ requests: 5000, requestsNotRecorded: 481 });
    expect(of(2)).toMatchObject([{ requests: 1 }]);
  });
});
