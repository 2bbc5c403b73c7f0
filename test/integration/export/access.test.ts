import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dictionaries, dictionaryNames } from '../../../src/datasets/dictionaries.ts';
import { authHmac, createExportArea, send, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';

const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const event = (id: string, idApp: number): FixtureEvent => ({
  event_id: id,
  kind: 'custom_event',
  id_app: idApp,
  event_time: time,
  available_at: time,
  custom_event_name: 'n',
});
const query = 'event=customEvents&selectors=eventId&dateFrom=2025-05-01&dateTo=2025-05-31';
const create = '/api/raw/v1/export/create.json';

/** Sends bytes on a separate connection; returns all received bytes. */
function talk(port: number, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    let answer = '';
    socket.on('data', (data) => void (answer += data.toString()));
    socket.once('close', () => resolve(answer));
    socket.once('error', reject);
  });
}

function refusal(detail: string): string {
  return JSON.stringify({ code: 400, message: 'Bad Request', data: { error: { detail } } });
}

describe('access to the export area', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let owner: Credentials;
  let colleague: Credentials;
  let owned: string;

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1, sdkKey: 'own', idProject: 5 });
    owner = await area.addUser({ idAccount: 1 });
    colleague = await area.addUser({ idAccount: 1 });
    await writeLake(area.tableDir, [[event('own', 7)]]);
    running = await area.start();
    owned = await running.create(owner, query);
    await running.waitForEnd(owner, owned);
  });
  afterAll(() => running.stop());

  it('A user may read a request of a colleague of the same account', async () => {
    expect((await running.waitForEnd(colleague, owned)).status).toBe('Success!');
  });

  it('A form body is authorized by AuthHMAC, and is part of the signed text', async () => {
    const url = `http://127.0.0.1:${running.port}${create}`;
    const body = `${query}&eventName[]=caf%C3%A9`;
    const accepted = await send(running.port, create, {
      method: 'POST',
      body,
      headers: { authorization: authHmac(owner, 'POST', url, body) },
    });
    const refused = await send(running.port, create, {
      method: 'POST',
      body: `${body}1`,
      headers: { authorization: authHmac(owner, 'POST', url, body) },
    });
    expect([accepted.status, refused.status]).toEqual([200, 403]);
  });

  it.each([...dictionaryNames])('Anyone may read the dictionary %s without authorization', async (name) => {
    const answer = await send(running.port, `/api/dictionary/v1/${name}.json`);
    expect(answer.json).toEqual({ code: 200, message: 'Ok', data: dictionaries[name] });
  });

  it('Bytes that are not HTTP, or a head that is too large, are answered in an envelope', async () => {
    expect(await talk(running.port, 'rubbish\r\n\r\n')).toMatch(
      new RegExp(`^HTTP/1\\.1 400 Bad Request\r\n[^]*\r\n\r\n${refusal('The request is malformed')}$`),
    );
    expect(
      (await talk(running.port, `GET /?${'x'.repeat(70_000)} HTTP/1.1\r\nHost: a\r\n\r\n`)).endsWith(
        refusal('The request has more than 2000 headers, or a head of more than 65536 bytes'),
      ),
    ).toBe(true);
    const afterAnother = await talk(
      running.port,
      'GET /api/dictionary/v1/rooted.json HTTP/1.1\r\nHost: a\r\n\r\nrubbish\r\n\r\n',
    );
    expect(afterAnother.startsWith('HTTP/1.1 400')).toBe(false);
  });

  it('An unknown path or a wrong method is answered in an envelope', async () => {
    for (const [target, method] of [
      ['/', 'GET'],
      ['/api/raw/v2/export/create.json', 'POST'],
      [create, 'DELETE'],
      ['/api/dictionary/v1/nothing.json', 'GET'],
      ['/%', 'GET'],
      ['/api/%ff', 'GET'],
    ] as const) {
      const answer = await send(running.port, target, { method });
      expect(answer.json?.code).toBe(answer.status);
      expect([400, 404]).toContain(answer.status);
    }
  });
});

async function statuses(count: number, call: () => Promise<{ status: number }>): Promise<number[]> {
  const seen: number[] = [];
  for (let index = 0; index < count; index += 1) seen.push((await call()).status);
  return seen;
}

describe('quotas', () => {
  it('A quota answers 429 with Retry-After: by user, by address, for mistakes and for callers without authorization', async () => {
    const area = createExportArea(testFolder());
    const [busy, clumsy] = [await area.addUser({}), await area.addUser({})];
    const running = await area.start({
      quotaUser: [{ limit: 100, windowMs: 3_600_000 }],
      quotaIp: [{ limit: 1000, windowMs: 3_600_000 }],
    });
    const list = '/api/report/v1/file/list.json';
    try {
      expect(await statuses(100, () => running.call(busy, list))).toEqual(Array.from({ length: 100 }, () => 200));
      const over = await running.call(busy, list);
      expect([over.status, over.json?.code, Number(over.headers['retry-after']) > 0]).toEqual([429, 429, true]);
      expect((await statuses(61, () => running.call(clumsy, create))).slice(-2)).toEqual([400, 429]);
      expect((await running.call(clumsy, list)).status).toBe(200);
      const anonymous = await statuses(40, () => send(running.port, list));
      expect(new Set(anonymous)).toEqual(new Set([403, 429]));
      const flood = await Promise.all(
        Array.from({ length: 900 }, () => send(running.port, '/api/dictionary/v1/rooted.json')),
      );
      expect(flood.some((answer) => answer.status === 429)).toBe(true);
    } finally {
      await running.stop();
    }
  });

  it('A quota that is off refuses no caller', async () => {
    const area = createExportArea(testFolder());
    const running = await area.start();
    try {
      const answers = await Promise.all(
        Array.from({ length: 60 }, () => send(running.port, '/api/report/v1/file/list.json')),
      );
      expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([403]));
    } finally {
      await running.stop();
    }
  });
});
