import { generateKeyPairSync } from 'node:crypto';
import { signGroup, createReceiptStatement, type Receipt, type ReceiptKey } from '../../src/receipts/receipt.ts';
import { publicKeyHex } from '../../src/runtime/encrypted-text.ts';
import { eventLine } from './lake.ts';

export function newReceiptKey(): ReceiptKey {
  const { privateKey } = generateKeyPairSync('ed25519');
  return { key: publicKeyHex(privateKey), privateKey };
}

/** Signs the receipts of requests in one group commit, given the number of events of each. */
export function signRequests(eventsEach: readonly number[], key: ReceiptKey): Receipt[] {
  const receiptStatements = eventsEach.map((events) => {
    const lines = Array.from(
      { length: events },
      (_, n) => `${JSON.stringify(eventLine({ custom_user_id: `u${n}` }))}\n`,
    );
    const request = { idApp: 1, method: 'loginBatch', platform: 'web', receivedAtMs: Date.now() } as const;
    return createReceiptStatement({ ...request, lines: Buffer.from(lines.join('')) });
  });
  return signGroup(receiptStatements, { stream: 'S@2026', sequence: 4711, storedAt: new Date().toISOString() }, key);
}
