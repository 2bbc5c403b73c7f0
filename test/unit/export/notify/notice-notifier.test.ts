import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { AccessReader } from '../../../../src/access/access.ts';
import { startNoticeNotifier } from '../../../../src/export/notify/notice-notifier.ts';
import { writeNotices, type Notice } from '../../../../src/lake/catalogue/catalogue-files.ts';
import { createEgressPolicy } from '../../../../src/runtime/http/egress-policy.ts';
import { createLogger } from '../../../../src/runtime/logger.ts';
import { addWebhook } from '../../../../src/webhooks/webhook-store.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';
import { startAnsweringReceiver } from '../../../helpers/webhook-receiver.ts';

const nowMs = Date.parse('2026-11-23T12:00:00Z');
const accounts = new Map([
  [7, 1],
  [8, 2],
]);

const noticeOf = (idApp: number): Notice => ({
  id: `notice of ${idApp}`,
  kind: 'parameter_new',
  idApp,
  date: '2026-11-22',
  foundAt: new Date(nowMs).toISOString(),
  what: `of app ${idApp}`,
});

test('A notice is sent only to the webhooks of the account of its app', async () => {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const paths = { webhooks: path.join(folder, 'webhooks'), keys: path.join(folder, 'keys') };
  const rules = createEgressPolicy(['127.0.0.0/8']);
  if (typeof rules === 'string') throw new Error(rules);
  const [first, second] = [await startAnsweringReceiver(() => 200), await startAnsweringReceiver(() => 200)];
  for (const [idAccount, { url }] of [
    [1, first],
    [2, second],
  ] as const)
    await addWebhook(paths, { idAccount, url, createdMs: nowMs - 1000 });
  await writeNotices(lakeDir, [noticeOf(7), noticeOf(8), noticeOf(9)]);
  const access = {
    current: () => ({
      findApp: (idApp: number) => (accounts.has(idApp) ? { idApp, idAccount: accounts.get(idApp) } : undefined),
    }),
    mayMissApps: () => false,
  } as unknown as AccessReader;
  const notifier = startNoticeNotifier(
    { lakeDir, access, paths, rules, clock: { nowMs: () => nowMs }, logger: createLogger('silent') },
    { timeoutMs: 5000, retryScheduleMs: [10], everyMs: 10 },
  );
  onTestFinished(() => notifier.stop());
  await waitFor('both receive their notice', () => first.received.length > 0 && second.received.length > 0);
  await notifier.stop();
  const told = [first, second].map(({ received }) =>
    received.map(({ body }) => (JSON.parse(body) as { readonly data: { readonly what: string } }).data.what),
  );
  expect(told).toEqual([['of app 7'], ['of app 8']]);
});
