import { statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  findReceiptKeys,
  openReceiptKeys,
  receiptKeysPath,
  rotateReceiptKey,
  type ReceiptKeys,
} from '../../../src/receipts/receipt-keys.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { testFolder } from '../../helpers/folder.ts';
import { silentLogger } from '../../helpers/nats.ts';
import { waitFor } from '../../helpers/wait.ts';

const clock = createClock(0);

async function open(folder: string): Promise<ReceiptKeys> {
  const keys = await openReceiptKeys(folder, clock, silentLogger);
  onTestFinished(() => keys.close());
  return keys;
}

test('Concurrent processes create one receipt key, which only their user can read', async () => {
  const folder = path.join(testFolder(), 'keys');
  const opened = await Promise.all([open(folder), open(folder), open(folder)]);
  expect(new Set(opened.map((keys) => keys.current()?.key)).size).toBe(1);
  expect(statSync(receiptKeysPath(folder)).mode & 0o777).toBe(0o600);
  expect(await findReceiptKeys(folder)).toEqual([opened[0]?.current()?.key]);
});

test('A running process signs with a new key soon after its creation, and keeps all earlier public keys', async () => {
  const folder = path.join(testFolder(), 'keys');
  expect(await findReceiptKeys(folder)).toEqual([]);
  const keys = await open(folder);
  const first = keys.current()?.key;
  const { key, retired } = await rotateReceiptKey(folder, clock);
  expect(retired).toEqual([first]);
  await waitFor('the new key signs', () => keys.current()?.key === key);
  const { key: third } = await rotateReceiptKey(folder, clock);
  expect(await findReceiptKeys(folder)).toEqual([first, key, third]);
});

test('Damaged receipt keys give no receipt and one warning; if they are damaged later, the last valid keys stay', async () => {
  const folder = testFolder();
  writeFileSync(receiptKeysPath(folder), '{}');
  const keys = await open(folder);
  expect([keys.current(), keys.known()]).toEqual([undefined, []]);
  expect(keys.notices()).toMatchObject([{ code: 'receipt_keys_unreadable' }]);
  await expect(findReceiptKeys(folder)).rejects.toMatchObject({ code: 'record_damaged' });
  await expect(rotateReceiptKey(folder, clock)).rejects.toMatchObject({ code: 'record_damaged' });

  const other = path.join(folder, 'other');
  const good = await open(other);
  const before = good.current()?.key;
  expect(good.notices()).toEqual([]);
  writeFileSync(receiptKeysPath(other), '{"keys":[]}');
  await waitFor('the damage is reported', () => good.notices().length > 0);
  expect(good.current()?.key).toBe(before);
  expect(before).toBeDefined();
});
