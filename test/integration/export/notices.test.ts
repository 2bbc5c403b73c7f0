import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openAccessReader } from '../../../src/access/store.ts';
import { describeWebhookApi } from '../../../src/export/api/webhook-openapi.ts';
import { startNoticeNotifier } from '../../../src/export/notify/notice-notifier.ts';
import { readNotices, writeNotices, type Notice } from '../../../src/lake/catalogue/catalogue-files.ts';
import { createEgressPolicy, type EgressPolicy } from '../../../src/runtime/http/egress-policy.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { addWebhook, removeWebhook } from '../../../src/webhooks/webhook-store.ts';
import { createExportArea } from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { waitFor } from '../../helpers/wait.ts';
import { startAnsweringReceiver, startReceiver, type Receiver } from '../../helpers/webhook-receiver.ts';

beforeEach(oneTestIn(2));

const logger = createLogger('silent');
const local = createEgressPolicy(['127.0.0.0/8']) as EgressPolicy;
const dayMs = 86_400_000;
const startMs = Date.parse('2026-06-10T12:00:00Z');

function noticeOf(n: number, idApp: number, foundMs: number): Notice {
  return {
    id: `nt_${n.toString(16).padStart(16, '0')}`,
    kind: 'parameter_new',
    idApp,
    customEventName: 'level_complete',
    parameter: `secretly-named-${n}`,
    date: '2026-06-09',
    foundAt: new Date(foundMs).toISOString(),
    what: `parameter "secretly-named-${n}" is new: 30 of 60 sampled events have it`,
  };
}

/** App 7 of account 1, app 8 of account 2, and a clock that the test sets. */
async function openPlace() {
  const area = createExportArea(testFolder());
  await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
  await area.addApp({ idApp: 8, platform: 'web', idAccount: 2 });
  const { dataDir, keysDir } = area;
  const lakeDir = path.join(dataDir, 'lake');
  const paths = { webhooks: path.join(dataDir, 'webhooks'), keys: keysDir };
  mkdirSync(path.join(lakeDir, 'catalogue'), { recursive: true });
  const clock = { now: startMs, nowMs: () => clock.now };
  const access = await openAccessReader({ access: path.join(dataDir, 'access.json'), keys: keysDir }, logger);
  onTestFinished(() => access.close());
  /** Adds notices to the existing ones, newest first. */
  async function find(...notices: readonly Notice[]): Promise<void> {
    await writeNotices(lakeDir, [...notices.toReversed(), ...(await readNotices(lakeDir))]);
  }
  const listen = async (idAccount: number, { url }: Receiver): Promise<string> =>
    (await addWebhook(paths, { idAccount, url, createdMs: clock.now })).webhook.idWebhook;
  const start = () => {
    const options = { timeoutMs: 2000, retryScheduleMs: [1000, 60_000], everyMs: 5 };
    const notifier = startNoticeNotifier({ lakeDir, access, paths, rules: local, clock, logger }, options);
    onTestFinished(() => notifier.stop());
    return notifier;
  };
  /** Waits while time passes, so that the delays after failures end. */
  const waitPassing = (what: string, isSo: () => boolean): Promise<void> =>
    waitFor(what, () => {
      clock.now += 1000;
      return isSo();
    });
  const record = (idAccount: number): string =>
    readFileSync(path.join(paths.webhooks, String(idAccount), 'notices.json'), 'utf8');
  return { area, lakeDir, paths, clock, find, listen, start, record, waitPassing };
}

interface Described {
  readonly post: {
    readonly requestBody: { readonly content: { readonly 'application/json': { readonly schema: object } } };
  };
}

const idsOf = ({ received }: Receiver): string[] =>
  received.map(({ body }) => (JSON.parse(body) as { readonly data: { readonly id: string } }).data.id);

describe('notices of the catalogue', () => {
  it("Each webhook of the app's account that existed then receives a notice once", async () => {
    const { clock, find, listen, start, record } = await openPlace();
    const [own, later, foreign] = [await startReceiver(200), await startReceiver(204), await startReceiver(200)];
    const idWebhook = await listen(1, own);
    await listen(2, foreign);
    const [first, second, other] = [
      noticeOf(1, 7, startMs + 5),
      noticeOf(2, 7, startMs + 20),
      noticeOf(3, 8, startMs + 20),
    ];
    await find(first);
    clock.now += 10;
    await listen(1, later);
    clock.now += 10;
    const notifier = start();
    await waitFor('the first notice is received', () => own.received.length === 1);
    await find(second, other);
    await waitFor('all webhooks receive a notice', () =>
      [own, later, foreign].every(({ received }) => received.length > 0),
    );
    await waitFor('the second notice is received', () => own.received.length === 2);
    await notifier.stop();
    const again = start();
    await find(noticeOf(4, 7, startMs + 20));
    await waitFor('the next notice is received', () => own.received.length === 3);
    await again.stop();
    expect(idsOf(own)).toEqual([first.id, second.id, noticeOf(4, 7, 0).id]);
    expect(idsOf(later)[0]).toBe(second.id);
    expect(idsOf(foreign)).toEqual([other.id]);
    const [{ headers, body } = { headers: {}, body: '' }] = own.received;
    expect(JSON.parse(body)).toEqual({
      id: `${idWebhook}.${first.id}`,
      type: 'catalogue.notice',
      timestamp: first.foundAt,
      data: first,
    });
    expect(headers['webhook-id']).toBe(`${idWebhook}.${first.id}`);
    expect(headers['webhook-signature']).toMatch(/^v1,/);
    // The erasure skips this file.
    expect(record(1)).not.toContain('secretly');
  });

  it('A webhook receives the message of docs/api.md, and both references describe it', async () => {
    const { clock, find, listen, start } = await openPlace();
    const page = readFileSync(path.join(packageRoot, 'docs', 'api.md'), 'utf8');
    const [, text = ''] = /```json\n(\{"id":"wh_[^`]+"catalogue\.notice"[^`]+)```/.exec(page) ?? [];
    const example = JSON.parse(text) as { readonly id: string; readonly data: Notice };
    const receiver = await startReceiver(200);
    const { received } = receiver;
    clock.now = Date.parse(example.data.foundAt);
    const idWebhook = await listen(1, receiver);
    await find(example.data);
    start();
    await waitFor('the notice is received', () => received.length === 1);
    const message: unknown = JSON.parse(received[0]?.body ?? '');
    expect(message).toEqual({ ...example, id: `${idWebhook}.${example.data.id}` });
    const { callbacks } = (
      describeWebhookApi().paths['/api/webhook/v1/create.json'] as {
        readonly post: { readonly callbacks: { readonly message: Readonly<Record<string, Described>> } };
      }
    ).post;
    const described = callbacks.message['{$request.query.url}']?.post.requestBody.content['application/json'].schema;
    const isDescribed = new Ajv2020({ strict: false, validateFormats: false }).compile(described ?? false);
    expect(isDescribed(message)).toBe(true);
    expect(isDescribed({ ...example, data: { ...example.data, kind: 'other' } })).toBe(false);
  });

  it('A notice is sent again under one id until it is acknowledged, after stops too, and one that fails blocks no other', async () => {
    const { find, listen, start, waitPassing } = await openPlace();
    const bad = noticeOf(1, 7, startMs);
    const receiver = await startAnsweringReceiver(({ body }) => (body.includes(bad.id) ? 500 : 200));
    await listen(1, receiver);
    await find(bad, noticeOf(2, 7, startMs), noticeOf(3, 7, startMs));
    const first = start();
    await waitFor('it was tried', () => receiver.received.length === 1);
    await first.stop();
    const second = start();
    const [two, three] = [noticeOf(2, 7, 0).id, noticeOf(3, 7, 0).id];
    await waitPassing('it was tried once more after the others', () => {
      const ids = idsOf(receiver);
      return ids.includes(two) && ids.includes(three) && ids.at(-1) === bad.id;
    });
    await second.stop();
    expect(idsOf(receiver).filter((id) => id !== bad.id)).toEqual([two, three]);
    expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(3);
  });

  it('An erased notice, one older than a week, and those of a removed webhook are not sent', async () => {
    const { lakeDir, paths, clock, find, listen, start, waitPassing } = await openPlace();
    const [down, removed] = [await startReceiver(500), await startReceiver(500)];
    await listen(1, down);
    await listen(2, removed);
    const erased = noticeOf(2, 7, startMs);
    await find(noticeOf(1, 7, startMs - 8 * dayMs), erased, noticeOf(3, 8, startMs));
    const first = start();
    await waitFor('both were tried', () => down.received.length === 1 && removed.received.length === 1);
    await first.stop();
    expect(idsOf(down)).toEqual([erased.id]);
    await removeWebhook(paths, 2, idWebhookOf(removed));
    const kept = noticeOf(4, 7, startMs);
    await writeNotices(lakeDir, [kept]);
    const second = start();
    await waitPassing('the next is tried', () => down.received.length >= 2);
    await second.stop();
    const tries = down.received.length;
    expect(new Set(idsOf(down).slice(1))).toEqual(new Set([kept.id]));
    clock.now += 7 * dayMs;
    const late = noticeOf(5, 7, clock.now);
    await find(late);
    start();
    await waitPassing('the newest is tried', () => down.received.length > tries);
    expect(new Set(idsOf(down).slice(tries))).toEqual(new Set([late.id]));
    expect(removed.received.length).toBe(1);
  });

  it('Every notice is sent, each under one id, despite kills of the process', async () => {
    const { area, find, listen, clock } = await openPlace();
    clock.now = Date.now();
    const receiver = await startReceiver(200);
    const idWebhook = await listen(1, receiver);
    const notices = Array.from({ length: 60 }, (_, n) => noticeOf(n, 7, clock.now + 1));
    await find(...notices);
    for (let kill = 1; kill <= 2; kill += 1) {
      const before = receiver.received.length;
      const stage = await area.startProcess({ webhooksAllow: ['127.0.0.0/8'] });
      await waitFor('some more are received', () => receiver.received.length >= before + 5);
      await stage.kill();
    }
    const last = await area.startProcess({ webhooksAllow: ['127.0.0.0/8'] });
    await waitFor('all are received', () => new Set(idsOf(receiver)).size === notices.length);
    await last.kill();
    const ids = new Set(receiver.received.map(({ headers }) => String(headers['webhook-id'])));
    expect([...ids].toSorted()).toEqual(notices.map(({ id }) => `${idWebhook}.${id}`));
    // A kill repeats at most one of them.
    expect(receiver.received.length).toBeLessThanOrEqual(notices.length + 2);
  });
});

const idWebhookOf = ({ received }: Receiver): string => String(received[0]?.headers['webhook-id']).split('.')[0] ?? '';
