import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { basic, type Credentials } from '../helpers/export-area.ts';
import { findFilesWith } from '../helpers/find-bytes.ts';
import { testFolder } from '../helpers/folder.ts';
import { inTurn } from '../helpers/in-turn.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { startAnsweringReceiver } from '../helpers/webhook-receiver.ts';
import facts from '../fixtures/data-folder-0.3.0.json' with { type: 'json' };

/** Data folders of version 0.3.0 after a kill, made by test/fixtures/data-folder-0.3.0.mjs. */
type Name = 'killed' | 'seal' | 'erasure';

const hour = 3600;
const webhookHost = new URL(facts.killed.webhook.url);

/** Starts a service on a folder of 0.3.0 at a time after the kill. */
async function startOn(name: Name, afterSeconds: number): Promise<TestService> {
  const folder = testFolder();
  execFileSync('tar', [
    '-xzf',
    path.join(import.meta.dirname, `../fixtures/data-folder-0.3.0-${name}.tar.gz`),
    '-C',
    folder,
  ]);
  const offset = facts[name].leftAt + afterSeconds - Math.floor(Date.now() / 1000);
  const service = await startTestService({
    dataDir: path.join(folder, 'data'),
    settings: {
      TRIBUTARY_CLOCK_OFFSET_SECONDS: String(offset),
      TRIBUTARY_WEBHOOKS_ALLOW: webhookHost.hostname,
      TRIBUTARY_QUOTA_USER: 'off',
    },
  });
  onTestFinished(() => service.destroy());
  return service;
}

async function send(
  service: TestService,
  name: Name,
  body: unknown,
  { key, method = 'customEvent' }: { readonly key?: string; readonly method?: string } = {},
): Promise<void> {
  const answer = await fetch(`${service.s2s}/v1/${method}/?idApp=1`, {
    method: 'POST',
    headers: { authorization: facts[name].token, ...(key === undefined ? {} : { 'idempotency-key': key }) },
    body: JSON.stringify(body),
  });
  expect(await answer.json()).toEqual({ message: 'Ok' });
}

/** Retries of an event and a batch that 0.3 has stored. */
async function sendAgain(service: TestService, name: Name): Promise<void> {
  const start = { customUserId: 'ben', customEventName: 'start', customEventParams: { level: '1' } };
  await send(service, name, { ...start, eventTimestamp: facts[name].at }, { key: 'key-1' });
  const batch = [
    { customUserId: 'cem', customEventName: 'shop', customEventParams: { item: 'sword, "long"' } },
    { customUserId: 'dan', customEventName: 'level_up', customEventParams: { level: '2' } },
  ];
  await send(service, name, batch, { key: 'key-2', method: 'customEventBatch' });
}

async function readLake(service: TestService, sql: string): Promise<unknown[]> {
  const lake = await openLakeReader(service.dataDir);
  try {
    return (await lake.query(sql)).map(({ row }) => row);
  } finally {
    lake.close();
  }
}

const readEvents = (service: TestService): Promise<unknown[]> =>
  readLake(service, "SELECT concat_ws(' ', custom_user_id, kind, custom_event_name) AS row FROM events ORDER BY ALL");

const readInstalls = (service: TestService): Promise<unknown[]> =>
  readLake(service, 'SELECT event_id AS row FROM installs ORDER BY ALL');

/** Expects a lake without damage and a service without problems. */
async function expectSound(service: TestService): Promise<void> {
  expect(await service.command('lake', 'check')).toMatchObject({ ok: true });
  expect(await service.status()).toMatchObject({ problems: [] });
}

interface Export {
  readonly idRawExport: string;
  readonly idSchedule?: string;
  readonly status: string;
}

/** The export area, as a user calls it. */
function openArea(service: TestService, user: Credentials) {
  async function call<T>(method: string, target: string): Promise<T> {
    const answer = await fetch(`${service.api}${target}`, { method, headers: { authorization: basic(user) } });
    const { data } = (await answer.json()) as { data: T };
    expect(answer.status, JSON.stringify(data)).toBe(200);
    return data;
  }
  const list = async (): Promise<readonly Export[]> =>
    (await call<{ exports: readonly Export[] }>('GET', '/api/raw/v1/export/list.json')).exports;
  /** Returns the text of a finished export. */
  async function readText(id: string): Promise<string> {
    const target = `/api/report/v1/file/get.json?idReportFile=${id}`;
    let files: readonly { readonly link: string }[] = [];
    await waitFor(`export ${id} is finished`, async () => {
      const report = await call<{ status: string; files?: typeof files }>('GET', target);
      files = report.files ?? [];
      return report.status === 'Success!';
    });
    return (await Promise.all(files.map(async ({ link }) => (await fetch(link)).text()))).join('');
  }
  return {
    call,
    list,
    readText,
    async export(event: string, more: string): Promise<string> {
      const target = `/api/raw/v1/export/create.json?event=${event}&timezone=UTC&${more}`;
      return readText((await call<Export>('POST', target)).idRawExport);
    },
  };
}

const { killed } = facts;
/** What `make test` tests: two of the four. */
const asked = inTurn(['killed', 'erased', 'seal', 'erasure'], 2);

it.runIf(asked.includes('killed'))(
  'The data folder of a killed version 0.3 works an hour later, with its jobs, schedules, webhooks, segments, titles, keys and erasure',
  async () => {
    const address = { host: webhookHost.hostname, port: Number(webhookHost.port) };
    const receiver = await startAnsweringReceiver(() => 200, address);
    const service = await startOn('killed', hour);
    const area = openArea(service, killed.user);

    const { timestampNextSlot: _next, nextSinceVersion: _since, ...schedule } = killed.schedule;
    expect(await area.call('GET', '/api/schedule/v1/list.json')).toMatchObject({ schedules: [schedule] });
    const { secret, ...webhook } = killed.webhook;
    expect(await area.call('GET', '/api/webhook/v1/list.json')).toMatchObject({ webhooks: [webhook] });

    // Repeats of an event of the lake, and of one that was only in the stream.
    const start = { customUserId: 'ben', customEventName: 'start', customEventParams: { level: '1' } };
    await send(service, 'killed', { ...start, eventTimestamp: killed.at }, { key: 'key-1' });
    await send(service, 'killed', { customUserId: 'eve', customEventName: 'late' }, { key: 'key-3' });
    await send(service, 'killed', { customUserId: 'new', customEventName: 'after' });
    await waitUntilWorkedOff(service);
    const rows = ['ben start', 'dan level_up', 'eve late', 'fay late', 'new after'];
    expect(await readEvents(service)).toEqual(rows.map((row) => row.replace(' ', ' custom_event ')));
    // The load was killed before its commit and can be repeated.
    expect(await readInstalls(service)).toEqual(['install-1']);
    const file = path.join(service.dataDir, '..', 'installs.csv');
    writeFileSync(
      file,
      `eventId,idApp,tsEvent,customUserId,idCampaign\ninstall-3,1,${killed.at},ben,66\ninstall-4,1,${killed.at},eve,66\n`,
    );
    expect(await service.command('load', 'installs', file)).toMatchObject({ rows: 2, stored: 2 });

    const finished = await fetch(service.api + killed.finished.link);
    expect([finished.status, await finished.text()]).toEqual([200, killed.finished.text]);
    const text = await area.readText(killed.unfinished);
    expect(text).toMatch(/^eventId,customUserId,eventName\n/);
    expect(text.match(/,(?:ben,start|dan,level_up)\n/g)).toHaveLength(2);
    expect(text).not.toContain('cem');

    // The slot of the full hour continues after the one of 0.3: each row is exported once.
    let ofSchedule: readonly Export[] = [];
    await waitFor('the next slot is exported', async () => {
      ofSchedule = (await area.list()).filter(({ idSchedule }) => idSchedule === killed.schedule.idSchedule);
      return ofSchedule.length === 2;
    });
    const [slot, earlier] = ofSchedule;
    const changes = [await area.readText(earlier?.idRawExport ?? ''), await area.readText(slot?.idRawExport ?? '')];
    const { nextSinceVersion } = await area.call<{ nextSinceVersion: string }>(
      'GET',
      `/api/raw/v1/export/get.json?idRawExport=${slot?.idRawExport}`,
    );
    changes.push(
      await area.export('customEvents', `selectors=customUserId,eventName&sinceVersion=${nextSinceVersion}`),
    );
    const changed = changes.join('').match(/(?:ben|dan|eve|fay|new),\w+\n/g);
    expect(changed?.map((row) => row.trim().replace(',', ' ')).toSorted()).toEqual(rows);

    const told = [killed.finished.id, killed.unfinished, ...ofSchedule.map(({ idRawExport }) => idRawExport)];
    const idOf = (body: string): string => (JSON.parse(body) as { data: Export }).data.idRawExport;
    await waitFor('each export was sent to the webhook', () =>
      told.every((id) => receiver.received.some(({ body }) => idOf(body) === id)),
    );
    const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
    for (const { headers, body } of receiver.received) {
      const signed = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
      expect(headers['webhook-signature']).toContain(createHmac('sha256', key).update(signed).digest('base64'));
    }

    expect(await service.command('segment', 'list', '--account', '1')).toMatchObject({ idSegment: '5', members: 2 });
    const installs = 'selectors=eventId,idCampaignTitle&dateFrom=2026-11-26&dateTo=2026-11-27';
    const titled = (await area.export('installs', `${installs}&idSegment=5`)).trim().split('\n');
    expect(titled.toSorted()).toEqual(['eventId,idCampaignTitle', 'install-1,Winter', 'install-3,Winter']);

    expect(await service.status()).toMatchObject({ lake: { erasure: { finishesAt: killed.erased.finishesAt } } });
    await expectSound(service);
  },
);

it.runIf(asked.includes('erased'))(
  'An erasure of version 0.3 finishes in time, and no byte of the person is left',
  async () => {
    const service = await startOn('killed', 26 * hour);
    await waitUntilWorkedOff(service);
    await waitFor(
      'no file has the person',
      async () => (await findFilesWith(service.dataDir, 'secret-of-cem')).length === 0,
      100_000,
    );
    expect(await readEvents(service)).toEqual(
      ['ben start', 'dan level_up', 'eve late', 'fay late'].map((row) => row.replace(' ', ' custom_event ')),
    );
    expect(await readInstalls(service)).toEqual(['install-1']);
    await waitFor('nothing is to be erased', async () => {
      const { erasure } = (await service.status())['lake'] as { erasure?: unknown };
      return erasure === undefined;
    });
    await expectSound(service);
  },
  180_000,
);

it.runIf(asked.includes('seal'))(
  'A seal of version 0.3 that was killed between its files is finished, with each row once',
  async () => {
    const service = await startOn('seal', 60);
    await sendAgain(service, 'seal');
    await waitUntilWorkedOff(service);
    expect(await readEvents(service)).toEqual([
      'ben custom_event start',
      'cem custom_event secret-of-cem',
      'cem custom_event shop',
      'dan custom_event level_up',
      'gil registration',
    ]);
    // Readers of the folders, too.
    const sealed = path.join(service.dataDir, 'lake/events/kind=*/date=*/*.parquet');
    const names = await readLake(service, `SELECT custom_user_id AS row FROM read_parquet('${sealed}') ORDER BY ALL`);
    expect(names).toEqual(['ben', 'cem', 'cem', 'dan', 'gil']);
    await expectSound(service);
  },
);

it.runIf(asked.includes('erasure'))(
  'An erasure of version 0.3 that was killed between two tables is finished when it is repeated, and nothing else is lost',
  async () => {
    const service = await startOn('erasure', 60);
    await sendAgain(service, 'erasure');
    await waitUntilWorkedOff(service);
    expect(await service.command('erase', '--user', 'cem', '--yes', '--now')).toMatchObject({
      tables: { installs: { rows: 1 } },
    });
    expect(await readEvents(service)).toEqual(['ben custom_event start', 'dan custom_event level_up']);
    expect(await readInstalls(service)).toEqual(['install-1']);
    expect(await findFilesWith(service.dataDir, 'secret-of-cem')).toEqual([]);
    await expectSound(service);
  },
);
