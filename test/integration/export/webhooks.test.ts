import { createHmac } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { removeUser } from '../../../src/access/users.ts';
import type { CommandContext } from '../../../src/cli/command.ts';
import { webhookCommand } from '../../../src/cli/webhook.ts';
import { startNotifier } from '../../../src/export/notify/notifier.ts';
import type { DeliveryOptions } from '../../../src/export/notify/retry-schedule.ts';
import { readDeliveries } from '../../../src/reports/report-records.ts';
import { openReportStore } from '../../../src/reports/store.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { createEgressPolicy, type EgressPolicy } from '../../../src/runtime/http/egress-policy.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { openStore } from '../../../src/runtime/store/open-store.ts';
import { addWebhook, openWebhooks, removeWebhook } from '../../../src/webhooks/webhook-store.ts';
import { backUp, restore } from '../../helpers/backup.ts';
import { createExportArea } from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { inWholeRun, oneTestIn } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { runCommandHere } from '../../helpers/run-command.ts';
import { waitFor } from '../../helpers/wait.ts';
import { startHangingReceiver, startReceiver, type Received, type Receiver } from '../../helpers/webhook-receiver.ts';

beforeEach(oneTestIn(2));

const realClock = createClock(0);
const logger = createLogger('silent');
const local = createEgressPolicy(['127.0.0.0/8']) as EgressPolicy;
const fast: DeliveryOptions = { timeoutMs: 2000, retryScheduleMs: [20, 40] };

/** A store with webhooks, on which a notifier can be started, stopped and started again. */
async function openPlace(...urls: string[]) {
  const folder = testFolder();
  const paths = { webhooks: `${folder}/webhooks`, keys: `${folder}/keys` };
  const secrets: string[] = [];
  /** Real time plus an offset that the test sets. */
  const clock = { aheadMs: 0, nowMs: () => realClock.nowMs() + clock.aheadMs };
  async function add(url: string, idAccount = 1): Promise<string> {
    const { secret, webhook } = await addWebhook(paths, { idAccount, url, createdMs: clock.nowMs() });
    secrets.push(secret);
    return webhook.idWebhook;
  }
  for (const url of urls) await add(url);
  const store = await openReportStore(clock, logger, { reportsDir: `${folder}/reports`, linkTtlSeconds: 3600 });
  const start = (rules = local, options = fast) => {
    const notifier = startNotifier({ store, paths, rules, clock, logger }, options);
    onTestFinished(() => notifier.stop());
    return notifier;
  };
  async function endReport(idAccount = 1): Promise<number> {
    const { id } = await store.create({ idUser: '1', idAccount, event: 'customEvents', request: {} });
    const { folder: attempt } = await store.beginAttempt(id);
    await store.end(id, { state: 'success', files: [] }, attempt);
    return id;
  }
  return { paths, secrets, clock, add, store, start, endReport };
}

const idsOf = ({ received }: Receiver): string[] => received.map(({ headers }) => String(headers['webhook-id']));

describe('webhooks', () => {
  it('Each webhook of the account receives one message for a finished export, which it can verify', async () => {
    const [one, two] = [await startReceiver(200), await startReceiver(204)];
    const { secrets, start, endReport } = await openPlace(one.url, two.url);
    const notifier = start();
    const id = await endReport();
    notifier.deliver(id);
    notifier.deliver(id);
    notifier.deliver(await endReport(2));
    await waitFor('both receive a message', () => one.received.length > 0 && two.received.length > 0);
    await notifier.stop();
    expect([one.received.length, two.received.length]).toEqual([1, 1]);
    const [{ headers, body }] = one.received as [Received];
    const message = JSON.parse(body) as Record<string, unknown>;
    expect(message).toMatchObject({
      id: headers['webhook-id'],
      type: 'export.finished',
      data: { idRawExport: String(id), status: 'Success!', files: 0, rows: 0 },
    });
    expect(body).not.toContain('/files/');
    const key = Buffer.from((secrets[0] ?? '').slice('whsec_'.length), 'base64');
    const signed = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
    expect(headers['webhook-signature']).toBe(`v1,${createHmac('sha256', key).update(signed).digest('base64')}`);
  });

  it('A message is sent again under the same id until it is acknowledged, after stops of the service too', async () => {
    const { url, received } = await startReceiver(500, 302, 503, 200);
    const { start, endReport } = await openPlace(url);
    const id = await endReport();
    const first = start();
    first.deliver(id);
    await waitFor('it was tried', () => received.length >= 2);
    await first.stop();
    const tries = received.length;
    const second = start();
    await second.deliverMissed();
    await waitFor('it is taken', () => received.length >= 4);
    await second.stop();
    expect(tries).toBeGreaterThanOrEqual(2);
    expect(new Set(received.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
    const third = start();
    await third.deliverMissed();
    await third.stop();
    expect(received.length).toBe(4);
  });

  it('A receiver that answers 410, and a removed webhook, receive no further messages', async () => {
    const [gone, removed] = [await startReceiver(410), await startReceiver(500)];
    const { paths, start, endReport } = await openPlace(gone.url, removed.url);
    const notifier = start();
    const id = await endReport();
    notifier.deliver(id);
    await waitFor('both were tried', () => gone.received.length > 0 && removed.received.length > 0);
    const { idWebhook } = (await openWebhooks(paths).list(1)).known.find(({ url }) => url === removed.url) ?? {
      idWebhook: '',
    };
    expect(await removeWebhook(paths, 1, idWebhook)).toBe(true);
    expect(await removeWebhook(paths, 1, idWebhook)).toBe(false);
    await waitFor('no message is left to send', async () => {
      const tries = removed.received.length;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return tries === removed.received.length;
    });
    await notifier.stop();
    expect(gone.received.length).toBe(1);
  });

  it('A webhook whose address the rules forbid is not connected to, and a later one gets no messages of earlier exports', async () => {
    const { url, received } = await startReceiver(200);
    const { paths, store, start, endReport } = await openPlace(url);
    const id = await endReport();
    const strict = start(createEgressPolicy([]) as EgressPolicy);
    strict.deliver(id);
    await waitFor('it was tried', async () => (await store.readDeliveries(id))[0]?.attempts === 1);
    await strict.stop();
    expect(received).toEqual([]);
    const later = await startReceiver(200);
    await addWebhook(paths, { idAccount: 1, url: later.url, createdMs: realClock.nowMs() + 10 });
    const notifier = start();
    notifier.deliver(id);
    await waitFor('the first receives a message', () => received.length === 1);
    await notifier.stop();
    expect(later.received).toEqual([]);
  });

  it('A receiver that hangs keeps no other waiting, of its account or another', async () => {
    const [hangs, own, foreign] = [await startHangingReceiver(), await startReceiver(200), await startReceiver(200)];
    const { add, start, endReport } = await openPlace(hangs.url, own.url);
    await add(foreign.url, 2);
    const notifier = start(local, { timeoutMs: 600_000, retryScheduleMs: [600_000] });
    for (let n = 0; n < 20; n += 1) notifier.deliver(await endReport());
    await waitFor('it hangs', () => hangs.received.length > 0);
    notifier.deliver(await endReport(2));
    await waitFor(
      'the others receive their messages',
      () => own.received.length === 20 && foreign.received.length === 1,
    );
    // So that one account does not use all connections.
    expect(hangs.received.length).toBe(2);
  });

  it('A queued message is signed by the time of its attempt, and not sent after the webhook is removed', async () => {
    const { url, received, answer } = await startHangingReceiver();
    const { paths, store, clock, start, endReport } = await openPlace(url);
    const notifier = start(local, { timeoutMs: 600_000, retryScheduleMs: [600_000] });
    const endThree = async (): Promise<number[]> => {
      const ids = [await endReport(), await endReport(), await endReport()];
      for (const id of ids) notifier.deliver(id);
      return ids;
    };
    await endThree();
    await waitFor('two are on their way', () => received.length === 2);
    clock.aheadMs += 3_600_000;
    answer();
    await waitFor('the third is sent', () => received.length === 3);
    const [first = 0, , third = 0] = received.map(({ headers }) => Number(headers['webhook-timestamp']));
    expect(third - first).toBeGreaterThanOrEqual(3600);
    answer();
    const ids = await endThree();
    await waitFor('two more are on their way', () => received.length === 5);
    const [webhook] = (await openWebhooks(paths).list(1)).known;
    expect(await removeWebhook(paths, 1, webhook?.idWebhook ?? '')).toBe(true);
    answer();
    await waitFor('the last is given up', async () => {
      const deliveries = await Promise.all(ids.map((id) => store.readDeliveries(id)));
      return deliveries.flat().some(({ state }) => state === 'given_up');
    });
    expect(received.length).toBe(5);
  });

  it('A clock that is set back delays no message, and hides no export from an earlier webhook', async () => {
    const [failing, ahead] = [await startReceiver(500, 200), await startReceiver(200)];
    const { store, clock, add, start, endReport } = await openPlace(failing.url);
    const notifier = start(local, { timeoutMs: 2000, retryScheduleMs: [1000] });
    const id = await endReport();
    notifier.deliver(id);
    await waitFor('it was tried', async () => (await store.readDeliveries(id)).length === 1);
    clock.aheadMs -= 86_400_000;
    await waitFor('it is tried again', () => failing.received.length === 2);
    clock.aheadMs += 3 * 86_400_000;
    await add(ahead.url);
    clock.aheadMs = 0;
    notifier.deliver(await endReport());
    await waitFor('both receive their messages', () => ahead.received.length === 1 && failing.received.length === 3);
    expect(new Set(idsOf(failing)).size).toBe(2);
  });

  it('An account has at most ten webhooks, also after concurrent creates', async () => {
    const { add } = await openPlace();
    const added = await Promise.allSettled(
      Array.from({ length: 16 }, (_, n) => add(`https://hooks.example.com/${n}`, 3)),
    );
    expect(added.filter(({ status }) => status === 'fulfilled').length).toBe(10);
  });

  it('A webhook whose record is damaged is reported, can be deleted, and blocks no other webhook', async () => {
    const { url, received } = await startReceiver(200);
    const other = await startReceiver(200);
    const area = createExportArea(testFolder());
    const user = await area.addUser({});
    const running = await area.start({ webhooksAllow: ['127.0.0.0/8'] });
    onTestFinished(() => running.stop());
    const post = (target: string) => running.call(user, `/api/webhook/v1/${target}`, { method: 'POST' });
    const ids: string[] = [];
    for (const one of [url, other.url]) {
      const { body } = await post(`create.json?url=${encodeURIComponent(one)}`);
      ids.push((JSON.parse(body.toString('utf8')) as { data: { idWebhook: string } }).data.idWebhook);
    }
    const [broken = '', whole = ''] = ids;
    const record = path.join(area.dataDir, 'webhooks', '1', `${broken}.json`);
    writeFileSync(record, readFileSync(record, 'utf8').replace('http', 'hxxp'));
    const list = async () =>
      JSON.parse((await running.call(user, '/api/webhook/v1/list.json')).body.toString('utf8')) as unknown;
    expect(await list()).toMatchObject({ data: { webhooks: [{ idWebhook: whole }], damaged: [broken] } });
    await running.export(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1');
    await waitFor('the other receives a message', () => other.received.length === 1);
    await waitFor('it is reported', () => JSON.stringify(running.stage.facts()).includes('webhook_unreadable'));
    expect((await post(`delete.json?idWebhook=${broken}`)).status).toBe(200);
    expect(await list()).toMatchObject({ data: { webhooks: [{ idWebhook: whole }] } });
    await waitFor('all is well', () => !JSON.stringify(running.stage.facts()).includes('webhook_unreadable'));
    expect(received).toEqual([]);
  });

  it('The examples of the documents are accepted, show the message of a webhook, and distinguish its messages from others', async () => {
    const page = readFileSync(path.join(packageRoot, 'docs', 'api.md'), 'utf8');
    const section = page.slice(page.indexOf('### Webhooks'), page.indexOf('### Schedules'));
    const [, given = ''] = / -d '(url=[^']+)'/.exec(section) ?? [];
    const recipe =
      readFileSync(path.join(packageRoot, 'docs/verification.md'), 'utf8').split('\n## Webhooks\n')[1] ?? '';
    const [, code = ''] = /```js\n([^`]*(?:`[^`\n]+`[^`]*)*)```/.exec(recipe) ?? [];
    const [, shown = ''] = /```json\n(\{"id":"wh_[^`]+"export\.finished"[^`]+)```/.exec(section) ?? [];
    const { url, received } = await startReceiver(200);
    const area = createExportArea(testFolder());
    await writeLake(area.tableDir, [
      [{ event_id: 'e', kind: 'custom_event', id_app: 7, event_time: 0, available_at: 1 }],
    ]);
    const user = await area.addUser({});
    const running = await area.start({ webhooksAllow: ['127.0.0.0/8'] });
    onTestFinished(() => running.stop());
    const add = (body: string) => running.call(user, '/api/webhook/v1/create.json', { method: 'POST', body });
    expect((await add(given)).status).toBe(200);
    const { body: added } = await add(`url=${encodeURIComponent(url)}`);
    const { secret } = (JSON.parse(added.toString('utf8')) as { data: { secret: string } }).data;
    await running.export(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1');
    await waitFor('the message is received', () => received.length === 1);
    const [{ headers, body }] = received as [Received];

    type Message = { readonly id: string; readonly data: object };
    const keysOf = (text: string) => {
      const { data, ...message } = JSON.parse(text) as Message;
      return [Object.keys(message), Object.keys(data)];
    };
    expect(keysOf(shown)).toEqual(keysOf(body));
    expect((JSON.parse(shown) as Message).id).toMatch(/^wh_[0-9a-f]{16}\.ex_[0-9a-f]{16}$/);

    const file = path.join(testFolder(), 'receiver.mjs');
    writeFileSync(file, code);
    const { isGenuine } = (await import(/* @vite-ignore */ file)) as {
      isGenuine: (headers: Received['headers'], body: string, secret: string) => boolean;
    };
    expect(isGenuine(headers, body, secret)).toBe(true);
    expect(isGenuine(headers, `${body} `, secret)).toBe(false);
    expect(isGenuine(headers, body, `whsec_${Buffer.alloc(32).toString('base64')}`)).toBe(false);
    expect(isGenuine({ ...headers, 'webhook-id': 'wh_0.ex_0' }, body, secret)).toBe(false);
    const old = String(Number(headers['webhook-timestamp']) - 400);
    expect(isGenuine({ ...headers, 'webhook-timestamp': old }, body, secret)).toBe(false);
    expect(isGenuine({}, body, secret)).toBe(false);
  });

  it('A restored backup repeats no delivered message, and sends the others', async () => {
    const [told, failing] = [await startReceiver(200), await startReceiver(500)];
    const area = createExportArea(path.join(testFolder(), 'data'));
    const user = await area.addUser({});
    const webhooksAllow = ['127.0.0.0/8'];
    const running = await area.start({ webhooksAllow });
    for (const { url } of [told, failing])
      await running.call(user, `/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`, { method: 'POST' });
    await running.export(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1');
    const deliveries = () => readDeliveries(openStore(area.reportsDir), 1);
    await waitFor('both were tried', async () => (await deliveries()).length === 2);
    await running.stop();
    const [backup, copy] = ['backup', 'copy'].map((name) => path.join(area.dataDir, '..', name)) as [string, string];
    await backUp(area.dataDir, backup, undefined);
    await restore(backup, copy);
    const file = path.join(copy, 'reports', '1', 'webhooks.json');
    expect(readFileSync(file, 'utf8')).toBe(readFileSync(path.join(area.reportsDir, '1', 'webhooks.json'), 'utf8'));
    const before = failing.received.length;
    const restored = await createExportArea(copy).start({ webhooksAllow, clockOffsetSeconds: 60 });
    onTestFinished(() => restored.stop());
    await waitFor('the other is tried again', () => failing.received.length > before);
    expect(told.received.length).toBe(1);
  });

  it('Every export is sent to each webhook, each under one id, despite kills of the process', async ({ skip }) => {
    inWholeRun(skip);
    const [good, slow] = [await startReceiver(200), await startReceiver(500, 500, 500, 200)];
    const area = createExportArea(testFolder());
    const user = await area.addUser({});
    const start = () => area.startProcess({ webhooksAllow: ['127.0.0.0/8'] }, { runsHere: true });
    let stage = await start();
    for (const { url } of [good, slow])
      await stage.call(user, `/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`, { method: 'POST' });
    const reports: string[] = [];
    for (let kill = 1; kill <= 3; kill += 1) {
      const before = good.received.length;
      for (let n = 0; n < 4; n += 1)
        reports.push(await stage.create(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1'));
      await waitFor('some messages are received', () => good.received.length > before);
      await stage.kill();
      stage = await start();
    }
    await waitFor(
      'all messages are received',
      () => [good, slow].every((receiver) => new Set(idsOf(receiver)).size === reports.length),
      60_000,
    );
    for (const id of reports) expect((await stage.waitForEnd(user, id)).status).toBe('Success!');
    await stage.kill();
    for (const { received } of [good, slow]) {
      const told = new Map(
        received.map(({ headers, body }) => [
          String(headers['webhook-id']),
          (JSON.parse(body) as { readonly data: { readonly idRawExport: string } }).data.idRawExport,
        ]),
      );
      expect([...told.values()].toSorted()).toEqual(reports.toSorted());
    }
  });

  it('A user adds, lists and removes webhooks by the API, and receives a message for an export', async () => {
    const { url, received } = await startReceiver(503, 200);
    const area = createExportArea(testFolder());
    const user = await area.addUser({});
    const running = await area.start({ webhooksAllow: ['127.0.0.0/8'] });
    onTestFinished(() => running.stop());
    const post = (target: string) => running.call(user, target, { method: 'POST' });
    const refused = await post('/api/webhook/v1/create.json?url=http%3A%2F%2F10.0.0.1%2F');
    expect([refused.status, refused.json?.data?.error?.detail]).toEqual([
      400,
      'Argument url is invalid: "http://10.0.0.1/": 10.0.0.1 is not a public address',
    ]);
    const added = await post(`/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`);
    const { data } = JSON.parse(added.body.toString('utf8')) as { readonly data: Record<string, string> };
    const { idWebhook = '', secret = '' } = data;
    expect(secret).toMatch(/^whsec_/);
    const listed = await running.call(user, '/api/webhook/v1/list.json');
    expect(listed.body.toString()).toContain(idWebhook);
    expect(listed.body.toString()).not.toContain(secret);
    await running.export(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1');
    await waitFor('the webhook receives a message', () => received.length === 1);
    const lastOf = async () => {
      const { body } = await running.call(user, '/api/webhook/v1/list.json');
      const answer = JSON.parse(body.toString('utf8')) as { data: { webhooks: Readonly<Record<string, string>>[] } };
      return answer.data.webhooks;
    };
    await waitFor('its user sees why it was not taken', async () => (await lastOf())[0]?.['lastError'] !== undefined);
    const [{ timestampLastAttempt } = {}] = await lastOf();
    expect(timestampLastAttempt).toMatch(/^\d{10}$/);
    expect(await lastOf()).toMatchObject([
      {
        lastError: 'the receiver returned HTTP 503',
        timestampLastTry: timestampLastAttempt,
        lastProblem: 'the receiver returned HTTP 503',
      },
    ]);
    await running.export(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1');
    await waitFor('its user sees that it was taken', async () => (await lastOf())[0]?.['lastError'] === undefined);
    expect((await post(`/api/webhook/v1/delete.json?idWebhook=${idWebhook}`)).status).toBe(200);
    expect((await post(`/api/webhook/v1/delete.json?idWebhook=${idWebhook}`)).status).toBe(404);
    for (let n = 0; n < 10; n += 1)
      expect((await post(`/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`)).status).toBe(200);
    expect((await post(`/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`)).status).toBe(400);
  });

  it('A user tests a webhook, sees its last messages, sends one again, and rotates its secret by API and command', async () => {
    const { url, received } = await startReceiver(204, 503, 200);
    const area = createExportArea(path.join(testFolder(), 'data'));
    const [user, stranger] = [await area.addUser({}), await area.addUser({ idAccount: 2 })];
    const running = await area.start({ webhooksAllow: ['127.0.0.0/8'] });
    onTestFinished(() => running.stop());
    const ask = async (target: string, method = 'POST', as = user): Promise<Readonly<Record<string, never>>> => {
      const { body } = await running.call(as, `/api/webhook/v1/${target}`, { method });
      return (JSON.parse(body.toString('utf8')) as { readonly data: Readonly<Record<string, never>> }).data;
    };
    const { idWebhook, secret } = await ask(`create.json?url=${encodeURIComponent(url)}`);
    expect(await ask(`test.json?idWebhook=${String(idWebhook)}`)).toMatchObject({
      type: 'webhook.test',
      isDelivered: true,
      responseCode: 204,
      attempts: 1,
    });
    const id = await running.create(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1');
    await waitFor('the message of the export is refused', () => received.length === 2);
    const deliveries = `deliveries.json?idWebhook=${String(idWebhook)}`;
    const list = async (): Promise<readonly Readonly<Record<string, string>>[]> =>
      (await ask(deliveries, 'GET'))['deliveries'] ?? [];
    await waitFor('the refusal is recorded', async () => (await list()).length === 2);
    const [refused] = await list();
    expect(refused).toMatchObject({ type: 'export.finished', subject: id, isDelivered: false, responseCode: 503 });
    const rotated = await ask(`rotate.json?idWebhook=${String(idWebhook)}&hours=1`);
    expect(Number(rotated['timestampFormerSecretEnds']) * 1000 - Date.now()).toBeGreaterThan(3_500_000);
    const resend = `resend.json?idWebhook=${String(idWebhook)}&idMessage=${refused?.['idMessage']}`;
    expect(await ask(resend)).toMatchObject({ isDelivered: true, responseCode: 200, attempts: 2, subject: id });
    expect(received.at(-1)?.body).toBe(received.at(-2)?.body);
    const { headers, body } = received.at(-1) as Received;
    const signed = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
    const sign = (by: unknown): string =>
      `v1,${createHmac('sha256', Buffer.from(String(by).slice('whsec_'.length), 'base64'))
        .update(signed)
        .digest('base64')}`;
    expect(headers['webhook-signature']).toBe(`${sign(rotated['secret'])} ${sign(secret)}`);
    for (const target of [resend, deliveries, `test.json?idWebhook=${String(idWebhook)}`])
      expect(await ask(target, target === deliveries ? 'GET' : 'POST', stranger)).toHaveProperty('error');
    expect(await ask(`rotate.json?idWebhook=${String(idWebhook)}&hours=169`)).toHaveProperty('error');
    expect(await ask(resend.replace(/ex_\w+/, 'ex_0000000000000000'))).toHaveProperty('error');
    const answers: Readonly<Record<string, unknown>>[] = [];
    const context = {
      environment: { TRIBUTARY_WEBHOOKS_ALLOW: '127.0.0.0/8' },
      printResult: (value: Readonly<Record<string, unknown>>) => void answers.push(value),
    } as unknown as CommandContext;
    const run = (...words: string[]): Promise<number> =>
      runCommandHere(webhookCommand, [...words, '--account', '1', '--data', area.dataDir], context);
    expect(await run('test', String(idWebhook))).toBe(0);
    expect(await run('resend', String(idWebhook), String(refused?.['idMessage']))).toBe(0);
    expect(await run('rotate-secret', String(idWebhook), '--hours', '0')).toBe(0);
    expect(answers).toMatchObject([{ isDelivered: true }, { isDelivered: true, attempts: 3 }, { idWebhook }]);
    await run('test', String(idWebhook));
    expect(String(received.at(-1)?.headers['webhook-signature'])).not.toContain(' ');
    await run('deliveries', String(idWebhook));
    expect(answers).toHaveLength(8);
    await expect(run('test', 'wh_0000000000000000')).rejects.toThrow('has no webhook');
    const log = path.join(area.dataDir, 'webhooks', '1', `${String(idWebhook)}.deliveries.json`);
    expect(readFileSync(log, 'utf8')).not.toContain(String(secret));
    writeFileSync(log, 'damaged');
    expect(await list()).toEqual([]);
    expect(await ask(`test.json?idWebhook=${String(idWebhook)}`)).toMatchObject({ isDelivered: true });
    expect(await ask(`delete.json?idWebhook=${String(idWebhook)}`)).toEqual({ idWebhook });
    expect(readdirSync(path.dirname(log))).not.toContain(path.basename(log));
  });

  it('A webhook receives one message that a schedule has stopped', async () => {
    const { url, received } = await startReceiver(500, 200);
    const area = createExportArea(path.join(testFolder(), 'data'));
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
    const [user, other] = [await area.addUser({}), await area.addUser({})];
    const clock = { aheadMs: 0, nowMs: () => realClock.nowMs() + clock.aheadMs };
    const start = () => area.start({ webhooksAllow: ['127.0.0.0/8'], schedulesEveryMs: 20, clock });
    const first = await start();
    const post = (target: string) => first.call(user, target, { method: 'POST' });
    await post(`/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`);
    const made = await first.call(other, '/api/schedule/v1/create.json', {
      method: 'POST',
      body: 'every=hour&event=customEvents&selectors=eventId&name=Hourly',
    });
    const { idSchedule } = (made.json?.data ?? {}) as Readonly<Record<string, string>>;
    const paths = { access: path.join(area.dataDir, 'access.json'), keys: area.keysDir };
    await removeUser(paths, Number(other.idUser));
    clock.aheadMs = 3_600_000;
    await waitFor('the stop is refused once', () => received.length > 0, 20_000);
    clock.aheadMs += 60_000;
    await waitFor('the stop is received', () => received.length === 2, 20_000);
    await first.stop();
    const second = await start();
    await waitFor('the schedule is looked at again', async () => {
      const { body } = await second.call(user, '/api/schedule/v1/list.json');
      return body.toString('utf8').includes('"status":"Stopped"');
    });
    await second.stop();
    expect(received.map(({ body }) => JSON.parse(body) as unknown)).toMatchObject(
      Array.from({ length: 2 }, () => ({
        type: 'schedule.stopped',
        data: { idSchedule, name: 'Hourly', event: 'customEvents', reason: `user ${other.idUser} was removed` },
      })),
    );
  });
});
