import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { naturalKeyEventIds } from '../../src/datasets/event-id.ts';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { testFolder } from '../helpers/folder.ts';
import { oneTestIn } from '../helpers/in-turn.ts';
import { isStopped, signalProcess } from '../helpers/processes.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { runCommand, startTestService } from '../helpers/service.ts';
import { noCurl } from '../helpers/shell.ts';
import { createRandom } from '../../src/demo/random.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(3));

type Answer = Readonly<{ state: string; events: readonly Readonly<Record<string, unknown>>[] }>;

const event = (customUserId: string) => ({ customUserId, customEventName: 'level_start' });

/** Returns the UTF-8 bytes of a key as characters of a header. */
const inUtf8 = (key: string): string => Buffer.from(key).toString('latin1');

const namesOf = (text: string): unknown => Object.keys((JSON.parse(text) as Answer).events[0] ?? {});

it('The documented example reports where its event is', async (ctx) => {
  if (noCurl !== false) ctx.skip(noCurl);
  const dataDir = path.join(testFolder(), 'data');
  const token = await addTestApp(dataDir);
  const service = await startTestService({ dataDir });
  onTestFinished(() => service.destroy());
  const page = readFileSync(path.resolve(import.meta.dirname, '../../docs/api.md'), 'utf8');
  const [, example = ''] = /```sh\n([^`]*\/v1\/event[^`]*)```/.exec(page) ?? [];
  const commands = example.replaceAll('http://127.0.0.1:8080', service.s2s);
  let last = '';
  await waitFor('the response of the example', async () => {
    const { stdout } = await promisify(execFile)('sh', ['-c', commands], { env: { ...process.env, TOKEN: token } });
    last = stdout.slice(stdout.indexOf('{"state'));
    return last.startsWith('{"state":"in_lake"');
  });
  const [, shown = ''] = /^# (.*)$/m.exec(example) ?? [];
  expect(namesOf(last)).toEqual(namesOf(shown));
});

it('A lookup by event id or key reports pending, stored, failed and erased events, and nothing of another app', async () => {
  const dataDir = path.join(testFolder(), 'data');
  const tokens: Readonly<Record<string, string>> = {
    '1': await addTestApp(dataDir),
    '2': await addTestApp(dataDir, '2'),
  };
  const service = await startTestService({ dataDir, settings: { TRIBUTARY_FLUSH_AGE_MS: '1500' } });
  onTestFinished(() => service.destroy());
  const post = (method: string, body: unknown, key?: string): Promise<Response> =>
    fetch(`${service.s2s}/v1/${method}/?idApp=1`, {
      method: 'POST',
      headers: { authorization: tokens['1'] ?? '', ...(key === undefined ? {} : { 'idempotency-key': key }) },
      body: JSON.stringify(body),
    });
  const send = async (method: string, body: unknown, key?: string): Promise<void> =>
    expect(await (await post(method, body, key)).json()).toEqual({ message: 'Ok' });
  const request = (query: string, idApp = '1'): Promise<Response> =>
    fetch(`${service.s2s}/v1/event?idApp=${idApp}&${query}`, { headers: { authorization: tokens[idApp] ?? '' } });
  const ask = async (query: string, idApp = '1'): Promise<Answer> => {
    let answered = await request(query, idApp);
    await waitFor(`an answer to ${query}`, async () => {
      if (answered.status === 503 || answered.status === 429) answered = await request(query, idApp);
      return answered.ok;
    });
    return (await answered.json()) as Answer;
  };

  const requestMany = (body: unknown, idApp = '1'): Promise<Response> =>
    fetch(`${service.s2s}/v1/events?idApp=${idApp}`, {
      method: 'POST',
      headers: { authorization: tokens[idApp] ?? '' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  const askMany = async (body: unknown, idApp = '1'): Promise<Answer & { readonly unchecked?: unknown }> => {
    let answered = await requestMany(body, idApp);
    await waitFor('an answer to many lookups', async () => {
      if (answered.status === 503 || answered.status === 429) answered = await requestMany(body, idApp);
      return answered.ok;
    });
    return (await answered.json()) as Answer;
  };

  expect(await ask('key=first%20key')).toMatchObject({ state: 'never_seen', events: [] });
  await send('customEventBatch', [event('a'), event('b')], 'first key');
  const early = await ask('key=first%20key');
  expect(early.events.map(({ kind }) => kind)).toEqual(['custom_event', 'custom_event']);
  expect(['in_stream', 'in_lake']).toContain(early.state);
  await send('customEventBatch', [event('a'), event('b')], 'first key');
  expect((await post('customEvent', event('c'), 'first key')).status).toBe(400);
  await service.kill9('ingest', createRandom(1));
  // A new worker has no state of the key, but the compactor has.
  const isTaken = (): Promise<boolean> =>
    post('customEvent', event('c'), 'first key').then(
      ({ status }) => status === 200,
      () => false,
    );
  await waitFor('another request under the key is accepted', isTaken);
  await send('customEvent', event('plain'));
  await send('customRevenue', { customUserId: 'a', idTransaction: 't-1', currency: 'USD', total: 1 });
  await waitUntilWorkedOff(service);

  const found = await ask('key=first%20key');
  expect(found.events.map(({ state, reason }) => reason ?? state)).toEqual(['in_lake', 'in_lake', 'key_reused']);
  expect(found.events.slice(0, 2).map(({ eventId }) => eventId)).toEqual(early.events.map(({ eventId }) => eventId));
  const [first] = found.events;
  expect(first).toMatchObject({ table: 'events', kind: 'custom_event', version: expect.any(Number) });
  expect(await ask(`eventId=${String(first?.['eventId'])}`)).toEqual({ state: 'in_lake', events: [first] });
  const reader = await openLakeReader(dataDir);
  const [row] = await reader.query(
    "SELECT event_id, strftime(available_at, '%Y-%m-%dT%H:%M:%S.%gZ') AS at FROM custom_event WHERE custom_user_id = 'plain'",
  );
  reader.close();
  const plainId = String(row?.['event_id']);
  const plain = await ask(`eventId=${plainId}`);
  expect(plain.events).toMatchObject([{ state: 'in_lake', eventId: plainId, availableAt: row?.['at'] }]);
  expect(await service.command('event', plainId)).toEqual(plain);
  expect(await service.command('event', '--key', 'first key', '--app', '1')).toEqual(found);
  const paid = naturalKeyEventIds('revenue', 1, [{ idTransaction: 't-1' }])(0);
  expect(await ask(`eventId=${paid}`)).toMatchObject({
    state: 'in_lake',
    events: [{ kind: 'revenue', eventId: paid }],
  });
  expect(await ask('idTransaction=t-1')).toEqual(await ask(`eventId=${paid}`));
  const refusals = await fetch(`${service.s2s}/v1/refusals?idApp=1`, { headers: { authorization: tokens['1'] ?? '' } });
  const [newest] = ((await refusals.json()) as { refusals: object[] }).refusals;
  expect(newest).toMatchObject({ method: 'customEvent', status: 200, requests: 1 });

  const idsOfAll = [
    { key: 'first key' },
    { eventId: plainId.toUpperCase() },
    { idTransaction: 't-1' },
    { key: 'none' },
  ];
  const many = await askMany(idsOfAll);
  expect(many.events).toMatchObject([
    { state: 'in_lake', kind: 'custom_event', events: { in_lake: 2, failed: 1 } },
    { state: 'in_lake', eventId: plainId, availableAt: row?.['at'], table: 'events' },
    { state: 'in_lake', eventId: paid, kind: 'revenue', table: 'payments' },
    { state: 'never_seen' },
  ]);
  expect(many.unchecked).toBeUndefined();
  const listFile = path.join(testFolder(), 'keys.txt');
  writeFileSync(listFile, '\nfirst key\r\n');
  expect(await service.command('event', '--file', listFile, '--by', 'key', '--app', '1')).toEqual(many.events[0]);
  expect((await askMany(idsOfAll, '2')).events.map(({ state }) => state)).toEqual(idsOfAll.map(() => 'never_seen'));
  const isTime = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]{12}Z$/);
  const unknown = { state: 'never_seen', events: [], watermark: isTime };
  const somebodys = [
    'eventId=0190a1b2-c3d4-7abc-8abc-0123456789ab',
    `eventId=${plainId}`,
    `eventId=${paid}`,
    'key=first%20key',
    'idTransaction=t-1',
  ];
  for (const query of somebodys) expect(await ask(query, '2')).toEqual(unknown);

  for (const user of ['a', 'plain']) await service.command('erase', '--user', user, '--yes');
  expect(await ask(`eventId=${plainId}`)).toEqual({ state: 'erased', events: [] });
  expect(await ask(`eventId=${paid}`)).toEqual({ state: 'erased', events: [] });
  expect(await ask(`eventId=${plainId}`, '2')).toEqual(unknown);
  expect((await ask('key=first%20key')).events.map(({ state }) => state)).toEqual(['in_lake', 'failed']);

  expect((await askMany(idsOfAll)).events.map(({ state }) => state)).toEqual([
    'in_lake',
    'erased',
    'erased',
    'never_seen',
  ]);
  for (const body of ['', '{}', '[]', '["x"]', [{}], [{ key: 'a', eventId: plainId }], [{ key: '' }], 'x']) {
    let { status } = await requestMany(body);
    await waitFor(`a response to ${JSON.stringify(body)}`, async () => {
      if (status === 429) ({ status } = await requestMany(body));
      return status !== 429;
    });
    expect([body, status]).toEqual([body, 400]);
  }
  const [backup, restored] = [path.join(testFolder(), 'backup'), path.join(testFolder(), 'restored')];
  await service.command('backup', backup);
  await runCommand(['restore', backup, '--data', restored]);
  expect(await runCommand(['event', plainId, '--app', '1', '--data', restored])).toEqual({
    state: 'erased',
    events: [],
  });

  for (const query of ['', 'eventId=x', 'key=', 'key=a&key=b', `eventId=${plainId}&key=a`, 'key=a&more=1'])
    expect([query, (await request(query)).status]).toEqual([query, 400]);
  expect((await fetch(`${service.s2s}/v1/event?idApp=1&key=a`)).status).toBe(403);
  const flood = await Promise.all(Array.from({ length: 60 }, () => request(`eventId=${plainId}`)));
  expect(flood.map(({ status }) => status)).toContain(429);
  expect(flood.every(({ status, headers }) => status === 200 || headers.get('retry-after') === '1')).toBe(true);
}, 120_000);

it('A key is found as Latin-1 or UTF-8, and on the host also while service and broker are stopped', async () => {
  const dataDir = path.join(testFolder(), 'data');
  const token = await addTestApp(dataDir);
  const service = await startTestService({ dataDir });
  onTestFinished(() => service.destroy());
  // A character is a byte of the header; the last byte of the second is not a space.
  const sent = { 'é 1': 'é 1', voilà: inUtf8('voilà'), ПАР: inUtf8('ПАР') };
  for (const key of Object.values(sent)) {
    const headers = { authorization: token, 'idempotency-key': key };
    const body = JSON.stringify(event('u'));
    expect((await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, { method: 'POST', headers, body })).status).toBe(200);
  }
  await waitUntilWorkedOff(service);
  const found = new Map<string, Answer>();
  for (const key of Object.keys(sent)) {
    const target = `${service.s2s}/v1/event?idApp=1&key=${encodeURIComponent(key)}`;
    await waitFor(`an answer to ${key}`, async () => {
      const answer = await fetch(target, { headers: { authorization: token } });
      if (answer.ok) found.set(key, (await answer.json()) as Answer);
      return answer.ok;
    });
    expect([key, found.get(key)?.state]).toEqual([key, 'in_lake']);
  }

  // While the compactor hangs, the log and the stream are searched without it.
  const compactor = service.processes().find(({ role }) => role === 'compact')?.pid ?? 0;
  signalProcess(compactor, 'SIGSTOP');
  const waiting = await fetch(`${service.s2s}/v1/customEvent/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token, 'idempotency-key': 'while it hangs' },
    body: JSON.stringify(event('u')),
  });
  expect(waiting.status).toBe(200);
  const states = { ПАР: 'in_lake', 'while it hangs': 'in_stream', 'never sent': 'never_seen' };
  for (const [key, state] of Object.entries(states))
    await waitFor(`the answer that ${key} is ${state}`, async () => {
      const target = `${service.s2s}/v1/event?idApp=1&key=${encodeURIComponent(key)}`;
      const answer = await fetch(target, { headers: { authorization: token } });
      return answer.ok && ((await answer.json()) as Answer).state === state;
    });
  expect(isStopped(compactor)).toBe(true);
  signalProcess(compactor, 'SIGCONT');
  await service.stop();
  const away = { TRIBUTARY_NATS_URL: 'nats://127.0.0.1:1' };
  for (const [key, answer] of found)
    expect(await runCommand(['event', '--key', key, '--app', '1', '--data', dataDir], away)).toEqual(answer);
  await expect(runCommand(['event', '--key', 'é 2', '--app', '1', '--data', dataDir], away)).rejects.toThrow(
    'the stream cannot be searched',
  );
});
