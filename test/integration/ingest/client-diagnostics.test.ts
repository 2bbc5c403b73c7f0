import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../helpers/folder.ts';
import { ask, startTestIngest, testApps, type ImportAnswer, type TestIngest } from '../../helpers/ingest.ts';

const all = { prefer: 'errors=all' };

const faultsOf = ({ body }: ImportAnswer): unknown => (JSON.parse(body) as { readonly errors?: unknown }).errors;

describe('answers that help the sender', () => {
  const folder = temporaryFolder();
  let service: TestIngest;
  beforeAll(async () => {
    service = await startTestIngest(folder);
  });
  afterAll(() => service.stop());

  function validate(query: string, body: string): Promise<ImportAnswer> {
    return ask(`${service.url}/v1/login/?idApp=${testApps.web}&${query}`, {
      method: 'POST',
      headers: { authorization: service.tokens.web },
      body,
    });
  }

  it('A number with a fraction gets no hint to use quotes', async () => {
    const answer = await service.post('web', 'loginBatch', [{ customUserId: 'u', age: 30.5 }], all);
    expect(faultsOf(answer)).toEqual([{ pointer: '/0/age', reason: 'must be integer' }]);
  });

  it('Every fault of a batch is listed in addition to the one error if the client asks for it', async () => {
    const batch = [
      { customUserId: 'good' },
      { customUserId: 5, age: 200, idGender: 7 },
      'no event',
      { eventTimestamp: 1_700_000_000_000, customUserId: 'u' },
      { age: 3 },
    ];
    const answer = await service.post('web', 'loginBatch', batch, all);
    expect(answer.status).toBe(400);
    expect(answer.headers.get('preference-applied')).toBe('errors=all');
    expect(answer.headers.get('x-error-detail')).toContain('/1/');
    expect(JSON.parse(answer.body)).toMatchObject({ error: 'Bad Request' });
    expect(faultsOf(answer)).toEqual([
      { pointer: '/1/customUserId', reason: 'must be string', hint: 'write it in quotes' },
      { pointer: '/1/idGender', reason: 'must be one of 0, 1, 2' },
      { pointer: '/1/age', reason: 'must be <= 128' },
      { pointer: '/2', reason: 'must be an object' },
      {
        pointer: '/3/eventTimestamp',
        reason: 'must be <= 4294967295',
        hint: 'it looks like milliseconds: give seconds',
      },
      { pointer: '/4/customUserId', reason: 'is required' },
    ]);
    expect(await service.newLines()).toEqual([]);
  });

  it('Every missing identifier of an event is listed', async () => {
    expect(faultsOf(await service.post('mini-app', 'loginBatch', [{ age: 200 }], all))).toEqual([
      { pointer: '/0/age', reason: 'must be <= 128' },
      { pointer: '/0/customPlatformUserId', reason: 'is required' },
      { pointer: '/0/xPlatform', reason: 'is required' },
    ]);
    const one = await service.post('mini-app', 'customEvent', { customPlatformUserId: 'u', customEventName: 'e' }, all);
    expect(faultsOf(one)).toEqual([{ pointer: '/xPlatform', reason: 'is required' }]);
    expect(faultsOf(await service.post('game', 'customEvent', { customUserId: 'u' }, all))).toEqual([
      { pointer: '/customEventName', reason: 'is required' },
      { pointer: '', reason: 'needs one of sezamUserId, lvid' },
    ]);
  });

  it('Faults outside of the events are listed with those of the events', async () => {
    const keyed = { ...all, 'idempotency-key': 'k'.repeat(256) };
    expect(faultsOf(await service.post('web', 'login', { customUserId: 'u', age: 'x' }, keyed))).toEqual([
      { pointer: '/age', reason: 'must be integer' },
      { pointer: '', reason: 'Idempotency-Key must have 1 to 255 characters' },
    ]);
  });

  it('A request that is rejected before its events are checked has the list, too', async () => {
    const large = await service.post('web', 'login', `{"customUserId":"u","x":"${'x'.repeat(10_240)}"}`, all);
    const coded = await service.post('web', 'login', '{}', { ...all, 'content-encoding': 'br' });
    const unsure = await ask(`${service.url}/v1/login/?idApp=${testApps.web}&validate=2`, {
      method: 'POST',
      headers: { authorization: service.tokens.web, ...all },
      body: '{}',
    });
    const old = await ask(`${service.url}/v2/login/?idApp=${testApps.web}`, {
      method: 'POST',
      headers: all,
      body: '{}',
    });
    for (const answer of [large, coded, unsure, old]) {
      expect([answer.status, answer.headers.get('preference-applied')]).toEqual([400, 'errors=all']);
      expect(faultsOf(answer)).toEqual([{ pointer: '', reason: answer.headers.get('x-error-detail') }]);
    }
    const foreign = await service.post('web', 'login', '{}', { ...all, authorization: 'none' });
    expect([foreign.body, foreign.headers.get('preference-applied')]).toEqual(['{"error":"Forbidden"}', null]);
  });

  it('A truncated list has the number of further faults', async () => {
    const params = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`p${n}`, n]));
    const event = { customUserId: 'u', customEventName: 'e', customEventParams: params };
    const answer = await service.post('web', 'customEventBatch', [event, event], all);
    expect(faultsOf(answer)).toHaveLength(100);
    expect(JSON.parse(answer.body)).toMatchObject({ errorsOmitted: 20, leftOut: 20 });
    const whole = await service.post('web', 'customEventBatch', [event], all);
    expect([(faultsOf(whole) as unknown[]).length, 'errorsOmitted' in (JSON.parse(whole.body) as object)]).toEqual([
      60,
      false,
    ]);
  });

  it('A long name in a pointer does not push the rule out of the header', async () => {
    for (const name of ['n'.repeat(255), 'уровень'.repeat(20), '\r\n'.repeat(100)]) {
      const event = { customUserId: 'u', customEventName: 'e', customEventParams: { [name]: 5 } };
      const answer = await service.post('web', 'customEvent', event);
      const detail = answer.headers.get('x-error-detail') ?? '';
      expect(detail).toMatch(
        /^\/customEventParams\/(?:n|\\u[0-9a-f]{4})+\.\.\.(?:n|\\u[0-9a-f]{4})+ must be string \(write it in quotes\)$/,
      );
      expect(detail.length).toBeLessThanOrEqual(200);
    }
  });

  it.each([
    [1_700_000_000_000, 'it looks like milliseconds: give seconds'],
    [1_700_000_000_000.5, 'it looks like milliseconds: give seconds'],
    ['1700000000000', 'it looks like milliseconds: give seconds'],
    [1_700_000_000_000_000, 'it looks like microseconds: give seconds'],
    ['1700000000000000000', 'it looks like nanoseconds: give seconds'],
    [1_700_000_000.5, 'give whole seconds'],
    ['2026-03-01T12:00:00Z', 'give Unix seconds, such as 1767225600'],
    [5_000_000_000, undefined],
    [5, undefined],
    [null, undefined],
  ])('The error of a time of %s names the format that it looks like', async (eventTimestamp, hint) => {
    const answer = await service.post('web', 'login', { customUserId: 'u', eventTimestamp }, all);
    expect((faultsOf(answer) as { readonly hint?: string }[]).map((fault) => fault.hint)).toEqual([hint]);
  });

  it('A custom parameter with the name of a time is not a time', async () => {
    const event = { customUserId: 'u', customEventName: 'e', customEventParams: { timestamp: '', eventTimestamp: 5 } };
    expect(faultsOf(await service.post('web', 'customEvent', event, all))).toEqual([
      { pointer: '/customEventParams/timestamp', reason: 'must NOT have fewer than 1 characters' },
      { pointer: '/customEventParams/eventTimestamp', reason: 'must be string', hint: 'write it in quotes' },
    ]);
  });

  it('A probable correction is named even if the client asks for nothing', async () => {
    const late = await service.post('web', 'login', { customUserId: 'u', eventTimestamp: 1_700_000_000_000 });
    expect(late.headers.get('x-error-detail')).toBe(
      '/eventTimestamp must be <= 4294967295 (it looks like milliseconds: give seconds)',
    );
  });

  it('Without being asked an error is one field, and a good request has no list', async () => {
    const bad = await service.post('web', 'login', { age: 'x' });
    expect(bad.body).toBe('{"error":"Bad Request"}');
    expect(bad.headers.get('preference-applied')).toBeNull();
    const good = await service.post('web', 'login', { customUserId: 'u' }, all);
    expect(good.body).toBe('{"message":"Ok"}');
    expect(await service.newLines()).toHaveLength(1);
  });

  it('The list is bounded, and includes faults of the entire request', async () => {
    const names = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`${'x'.repeat(300)}${n}`.slice(-256), 'v']));
    const events = Array.from({ length: 1 }, () => ({
      customEventName: 'e',
      customUserId: 'u',
      customEventParams: names,
    }));
    const wide = await service.post('web', 'customEventBatch', events, all);
    expect(wide.status).toBe(400);
    expect((faultsOf(wide) as unknown[]).length).toBeLessThanOrEqual(100);
    expect(faultsOf(await service.post('web', 'loginBatch', {}, all))).toEqual([
      { pointer: '', reason: 'must be an array of events' },
    ]);
    expect(faultsOf(await service.post('web', 'login', '{', all))).toEqual([
      { pointer: '', reason: 'the body is not valid JSON at line 1, column 2: the text ends too early' },
    ]);
    const keyed = { ...all, 'idempotency-key': 'k'.repeat(256) };
    expect(faultsOf(await service.post('web', 'login', { customUserId: 'u' }, keyed))).toEqual([
      { pointer: '', reason: 'Idempotency-Key must have 1 to 255 characters' },
    ]);
  });

  it('A request with validate=1 is checked and not stored', async () => {
    await service.newLines();
    const good = await validate('validate=1', '{"customUserId":"u","extra":1}');
    expect([good.status, good.body]).toEqual([200, '{"message":"Valid, nothing was stored"}']);
    expect(good.headers.get('x-unknown-parameters')).toBe('extra');
    const bad = await validate('validate=1', '{"customUserId":"u","age":"x"}');
    expect([bad.status, bad.headers.get('x-error-detail')]).toEqual([400, '/age must be integer']);
    expect(await service.newLines()).toEqual([]);
    expect((await validate('validate=0', '{"customUserId":"u"}')).body).toBe('{"message":"Ok"}');
    expect(await service.newLines()).toHaveLength(1);
  });

  it.each(['validate=true', 'validate=', 'validate=1&validate=1'])(
    'A request that says neither whether to store nor not is refused: %s',
    async (query) => {
      const answer = await validate(query, '{"customUserId":"u"}');
      expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([
        400,
        'the parameter validate must be 0 or 1',
      ]);
      expect(await service.newLines()).toEqual([]);
    },
  );

  it.each(['Validate=1', 'VALIDATE=1', 'valdate=1', 'validates=1', 'valide=1', 'idapp=5', 'idApp[]=5'])(
    'A query with a name near a known one is refused, and stores nothing: %s',
    async (query) => {
      const answer = await validate(query, '{"customUserId":"u"}');
      const [name] = query.split('=');
      const meant = query.startsWith('id') ? 'idApp' : 'validate';
      expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([
        400,
        `unknown parameter ${name}; did you mean ${meant}?`,
      ]);
      expect(await service.newLines()).toEqual([]);
    },
  );

  it('Other names of the query are named with those of the body', async () => {
    const good = await validate('dryRun=1&trace=x', '{"customUserId":"u","extra":1}');
    expect([good.status, good.headers.get('x-unknown-parameters')]).toEqual([200, 'dryRun, trace, extra']);
    expect(await service.newLines()).toHaveLength(1);
    const bad = await validate('dryRun=1', '{"customUserId":"u","age":"x"}');
    expect([bad.status, bad.headers.get('x-unknown-parameters')]).toEqual([400, 'dryRun']);
  });

  it('Parameters that are ignored are named, some of them, and counted by app', async () => {
    const before = await service.metric(`tributary_ingest_app_unknown_parameters_total{id_app="${testApps.web}"}`);
    const answer = await service.post('web', 'login', { customUserId: 'u', customuserid: 'v', 'zoë\n': 1 });
    expect(answer.status).toBe(200);
    expect(answer.headers.get('x-unknown-parameters')).toBe('customuserid, zo\\u00eb\\u000a');
    const after = await service.metric(`tributary_ingest_app_unknown_parameters_total{id_app="${testApps.web}"}`);
    expect(after - (Number.isNaN(before) ? 0 : before)).toBe(2);
    const many = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`unknown ${n}`, n]));
    const named = await service.post('web', 'login', { customUserId: 'u', ...many });
    expect(named.headers.get('x-unknown-parameters')?.split(', ')).toHaveLength(10);
    const odd = await service.post('web', 'login', { customUserId: 'u', ['x'.repeat(300)]: 1, 'a, b': 1, c: 1 });
    expect(odd.headers.get('x-unknown-parameters')).toBe(`${'x'.repeat(60)}..., a\\u002c b, c`);
  });

  it('A POST to a method of GET gets a hint', async () => {
    for (const name of ['event', 'live', 'receipt-key', 'refusals']) {
      const answer = await service.post('web', name, {});
      expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([404, 'the method is called by GET']);
    }
    expect((await service.post('web', 'receipts', {})).headers.get('x-error-detail')).toBe('no such method');
  });

  it('A refusal names what is ignored, which is often what is missing', async () => {
    const batch = [{ customUserId: 'u', extra: 1 }, 'no event', { customUserID: 'v' }];
    const answer = await service.post('web', 'loginBatch', batch);
    expect([answer.status, answer.headers.get('x-error-detail')]).toEqual([400, '/1 must be an object']);
    expect(answer.headers.get('x-unknown-parameters')).toBe('extra, customUserID');
    const misspelt = await service.post('web', 'login', { customUserID: 'u' });
    expect(misspelt.headers.get('x-error-detail')).toBe('/customUserId is required');
    expect(misspelt.headers.get('x-unknown-parameters')).toBe('customUserID');
    const known = await service.post('web', 'customEvent', { customUserId: 'u', customEventParams: { own: '1' } });
    expect([known.status, known.headers.get('x-unknown-parameters')]).toEqual([400, null]);
  });
});
