import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { naturalKeyEventIds } from '../../src/datasets/event-id.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { createExportClient } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { readPaymentTotals } from '../helpers/revenue.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { startTestService } from '../helpers/service.ts';

const selectors =
  'eventId,idTransaction,total,currency,isVerified,idPurchaseType,isTest,isTrial,customUserId,lvid,ipv4,age,tsEvent,idApp';

/** The expected CSV line of a transaction: the sent values, and the defaults of customRevenue. */
function expectedLine(idApp: string, sent: Readonly<Record<string, unknown>>, total: string): string {
  const { idTransaction, currency, customUserId = '', lvid = '', ipv4 = '', age = '', eventTimestamp } = sent;
  const id = naturalKeyEventIds('revenue', Number(idApp), [{ idTransaction }])(0);
  return [id, idTransaction, total, currency, 0, 6, 0, 0, customUserId, lvid, ipv4, age, eventTimestamp, idApp].join();
}

it('A posted batch of transactions is in exports of payments and userPayments seconds later, each once, with its values', async ({
  skip,
}) => {
  inWholeRun(skip);
  const dataDir = path.join(testFolder(), 'data');
  const tokens = { '1': await addTestApp(dataDir), '2': await addTestApp(dataDir, '2') };
  const user = await addTestUser(dataDir);
  const service = await startTestService({
    dataDir,
    settings: { TRIBUTARY_QUOTA_USER: 'off', TRIBUTARY_QUOTA_IP: 'off' },
  });
  onTestFinished(() => service.destroy());
  const client = createExportClient(service, user);
  const post = async (method: string, body: unknown, idApp: keyof typeof tokens = '1'): Promise<void> => {
    const answer = await fetch(`${service.s2s}/v1/${method}/?idApp=${idApp}`, {
      method: 'POST',
      headers: { authorization: tokens[idApp] },
      body: JSON.stringify(body),
    });
    expect(await answer.json()).toEqual({ message: 'Ok' });
  };
  const eventTimestamp = Math.floor(Date.now() / 1000) - 60;
  const ofUser = {
    customUserId: 'u',
    idTransaction: 'a',
    currency: 'USD',
    total: 9.99,
    ipv4: '1.2.3.4',
    age: 33,
    eventTimestamp,
  };
  const ofDevice = {
    lvid: 'd'.repeat(32),
    idTransaction: 'b',
    currency: 'EUR',
    total: '-12345678901234.1234',
    eventTimestamp,
  };
  const inOtherApp = { ...ofUser, total: '5' };

  await post('customRevenueBatch', [ofUser, ofDevice]);
  await post('customRevenue', { ...ofUser, total: 1 });
  await post('customRevenueBatch', [inOtherApp, inOtherApp], '2');
  await waitUntilWorkedOff(service);

  const exportOf = async (event: string): Promise<string[]> => {
    const range = `dateFrom=1970-01-01&dateTo=${new Date().toISOString().slice(0, 10)}&timezone=UTC`;
    const id = await client.create(`event=${event}&selectors=${selectors}&${range}`);
    const [header, ...lines] = await client.download(await client.waitForEnd(id ?? ''));
    expect(header).toBe(selectors);
    return lines.toSorted();
  };
  const [user1, device, user2] = [
    expectedLine('1', ofUser, '9.9900'),
    expectedLine('1', ofDevice, '-12345678901234.1234'),
    expectedLine('2', inOtherApp, '5.0000'),
  ];
  expect(await exportOf('payments')).toEqual([user1, device, user2].toSorted());
  expect(await exportOf('userPayments')).toEqual([user1, user2].toSorted());
  expect(await exportOf('testPayments')).toEqual([]);

  await service.stop();
  await service.startAgain();
  await post('customRevenueBatch', [ofDevice, ofUser]);
  await waitUntilWorkedOff(service);
  expect(await exportOf('payments')).toEqual([user1, device, user2].toSorted());
  expect(await readPaymentTotals(dataDir)).toEqual({ streamed: 7, stored: 3, failed: 0, repeats: 4, erased: 0 });
}, 180_000);
