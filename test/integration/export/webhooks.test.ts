import { createHmac } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startNotifier } from '../../../src/export/notify/notifier.ts';
import type { TellerOptions } from '../../../src/export/notify/teller.ts';
import { readDeliveries } from '../../../src/reports/deliveries-file.ts';
import { openReportStore } from '../../../src/reports/store.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { createOutgoingRules, type OutgoingRules } from '../../../src/runtime/http/outgoing-rules.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { addWebhook, listWebhooks, removeWebhook } from '../../../src/webhooks/webhook-store.ts';
import { createExportArea } from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';
import { startReceiver, type Received } from '../../helpers/webhook-receiver.ts';

const clock = createClock(0);
const logger = createLogger('silent');
const local = createOutgoingRules(['127.0.0.0/8']) as OutgoingRules;
const fast: TellerOptions = { timeoutMs: 2000, pausesMs: [20, 40] };

/** A store with webhooks, on which a notifier can be started, stopped and started again. */
async function openPlace(...urls: string[]) {
  const folder = testFolder();
  const paths = { webhooks: `${folder}/webhooks`, keys: `${folder}/keys` };
  const secrets: string[] = [];
  for (const url of urls)
    secrets.push((await addWebhook(paths, { idAccount: 1, url }, { nowMs: clock.nowMs(), most: 10 })).secret);
  const store = await openReportStore(clock, logger, { reportsDir: `${folder}/reports`, linkTtlSeconds: 3600 });
  const start = (rules = local) => startNotifier({ store, paths, rules, clock, logger }, fast);
  async function endReport(idAccount = 1): Promise<number> {
    const { id } = await store.create({ idUser: '1', idAccount, event: 'customEvents', request: {} });
    const { folder: attempt } = await store.beginAttempt(id);
    await store.end(id, { state: 'success', files: [] }, attempt);
    return id;
  }
  return { paths, secrets, store, start, endReport };
}

describe('webhooks', () => {
  it('Each webhook of the account is told once of an export that has ended, in a message that it can verify', async () => {
    const [one, two] = [await startReceiver(200), await startReceiver(204)];
    const { secrets, start, endReport } = await openPlace(one.url, two.url);
    const notifier = start();
    const id = await endReport();
    notifier.look(id);
    notifier.look(id);
    notifier.look(await endReport(2));
    await waitFor('both are told', () => one.received.length > 0 && two.received.length > 0);
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

  it('A message is sent again under the same id until it is taken, over stops of the service too', async () => {
    const { url, received } = await startReceiver(500, 302, 503, 200);
    const { start, endReport } = await openPlace(url);
    const id = await endReport();
    const first = start();
    first.look(id);
    await waitFor('it was tried', () => received.length >= 2);
    await first.stop();
    const tries = received.length;
    const second = start();
    await second.lookAtAll();
    await waitFor('it is taken', () => received.length >= 4);
    await second.stop();
    expect(tries).toBeGreaterThanOrEqual(2);
    expect(new Set(received.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
    const third = start();
    await third.lookAtAll();
    await third.stop();
    expect(received.length).toBe(4);
  });

  it('A receiver that is gone for good, and a webhook that is removed, are told no more', async () => {
    const [gone, removed] = [await startReceiver(410), await startReceiver(500)];
    const { paths, start, endReport } = await openPlace(gone.url, removed.url);
    const notifier = start();
    const id = await endReport();
    notifier.look(id);
    await waitFor('both were tried', () => gone.received.length > 0 && removed.received.length > 0);
    const { idWebhook } = (await listWebhooks(paths, 1)).find(({ url }) => url === removed.url) ?? { idWebhook: '' };
    expect(await removeWebhook(paths, 1, idWebhook)).toBe(true);
    expect(await removeWebhook(paths, 1, idWebhook)).toBe(false);
    await waitFor('nobody is left to tell', async () => {
      const tries = removed.received.length;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return tries === removed.received.length;
    });
    await notifier.stop();
    expect(gone.received.length).toBe(1);
  });

  it('A webhook whose address the rules forbid is not connected to, and one of later is not told of earlier exports', async () => {
    const { url, received } = await startReceiver(200);
    const { paths, store, start, endReport } = await openPlace(url);
    const id = await endReport();
    const strict = start(createOutgoingRules([]) as OutgoingRules);
    strict.look(id);
    await waitFor('it was tried', async () => (await readDeliveries(store.folderOf(id)))[0]?.attempts === 1);
    await strict.stop();
    expect(received).toEqual([]);
    const later = await startReceiver(200);
    await addWebhook(paths, { idAccount: 1, url: later.url }, { nowMs: clock.nowMs() + 10, most: 10 });
    const notifier = start();
    notifier.look(id);
    await waitFor('the first is told', () => received.length === 1);
    await notifier.stop();
    expect(later.received).toEqual([]);
  });

  it('A user adds, lists and removes webhooks by the API, and is told of an export', async () => {
    const { url, received } = await startReceiver(200);
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
    await waitFor('the webhook is told', () => received.length === 1);
    expect((await post(`/api/webhook/v1/delete.json?idWebhook=${idWebhook}`)).status).toBe(200);
    expect((await post(`/api/webhook/v1/delete.json?idWebhook=${idWebhook}`)).status).toBe(404);
    for (let n = 0; n < 10; n += 1)
      expect((await post(`/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`)).status).toBe(200);
    expect((await post(`/api/webhook/v1/create.json?url=${encodeURIComponent(url)}`)).status).toBe(400);
  });
});
