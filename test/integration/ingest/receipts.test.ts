import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { digestEvent } from '../../../src/receipts/event-digest.ts';
import { parseReceipt } from '../../../src/receipts/parse-receipt.ts';
import { receiptKeysPath } from '../../../src/receipts/receipt-keys.ts';
import type { Receipt } from '../../../src/receipts/receipt.ts';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { waitFor } from '../../helpers/wait.ts';
import { ask, startTestIngest, testApps, type ImportAnswer, type TestIngest } from '../../helpers/ingest.ts';

/** Lines of more than half of 120 requests, of about 200 bytes each. */
const waitingBytes = 15_000;
const asked = { prefer: 'receipt' };
const receiptOf = ({ body }: ImportAnswer): Receipt => parseReceipt(body);

describe('receipts', () => {
  const folder = temporaryFolder();
  let service: TestIngest;
  beforeAll(async () => {
    service = await startTestIngest(folder);
  });
  afterAll(() => service.stop());

  it('A request that asks for a receipt gets one that verifies by the public key, names its events, and where they are', async () => {
    const { status, body } = await ask(`${service.url}/v1/receipt-key`, {});
    const { algorithm, key, keys } = JSON.parse(body) as { algorithm: string; key: string; keys: string[] };
    expect([status, algorithm, keys]).toEqual([200, 'Ed25519', [key]]);
    const answer = await service.post('web', 'loginBatch', [{ customUserId: 'a' }, { customUserId: 'b' }], asked);
    expect(answer.status).toBe(200);
    expect(answer.body.startsWith('{"message":"Ok","receipt":{')).toBe(true);
    expect(answer.headers.get('preference-applied')).toBe('receipt');
    const receipt = parseReceipt(answer.body, [key]);
    const lines = await service.newLines();
    expect(receipt.events).toEqual(
      lines.map((line) => ({ eventId: line['event_id'], sha256: digestEvent(receipt.salt, line as never) })),
    );
    expect(receipt).toMatchObject({ idApp: testApps.web, method: 'loginBatch', platform: 'web' });
    expect(Date.parse(receipt.receivedAt)).toBe(lines[0]?.['received_at']);
    expect(receipt.group).toMatchObject({ sequence: 1, requests: 1, index: 0, path: [] });
  });

  it('Only requests that ask for a receipt get one, and other responses are unchanged', async () => {
    const others: Record<string, string>[] = [
      {},
      { prefer: 'receipts' },
      { prefer: 'errors=all' },
      { prefer: 'no-receipt' },
    ];
    for (const headers of others) {
      const answer = await service.post('web', 'login', { customUserId: 'u' }, headers);
      expect([answer.status, answer.body]).toEqual([200, '{"message":"Ok"}']);
      expect(answer.headers.get('preference-applied')).toBeNull();
    }
  });

  it.each(['receipt', 'Receipt', 'errors=all, receipt', 'receipt, errors=all', 'receipt; x=1', 'wait=1,receipt'])(
    'A receipt may be requested together with other preferences: %s',
    async (prefer) => {
      const answer = await service.post('web', 'login', { customUserId: 'u', extra: 1 }, { prefer });
      expect(receiptOf(answer).events).toHaveLength(1);
      expect(answer.headers.get('x-unknown-parameters')).toBe('extra');
    },
  );

  it('A refused request has no receipt, nor has one that is only checked', async () => {
    const bad = await service.post('web', 'login', { age: 300 }, { prefer: 'errors=all, receipt' });
    expect([bad.status, bad.headers.get('preference-applied')]).toEqual([400, 'errors=all']);
    expect(bad.body).not.toContain('receipt');
    const checked = await ask(`${service.url}/v1/login/?idApp=${testApps.web}&validate=1`, {
      method: 'POST',
      headers: { authorization: service.tokens.web, ...asked },
      body: '{"customUserId":"u"}',
    });
    expect(checked.body).toBe('{"message":"Valid, nothing was stored"}');
  });

  it('A retry under its key has its own receipt for the same ids, with its own position', async () => {
    const headers = { ...asked, 'idempotency-key': 'k-1' };
    const [one, two] = [
      receiptOf(await service.post('web', 'login', { customUserId: 'u' }, headers)),
      receiptOf(await service.post('web', 'login', { customUserId: 'u' }, headers)),
    ];
    expect(two.events.map(({ eventId }) => eventId)).toEqual(one.events.map(({ eventId }) => eventId));
    expect(two.group.sequence).toBeGreaterThan(one.group.sequence);
    expect(two.salt).not.toBe(one.salt);
  });

  it('Requests that share a group share its signature, and each receipt names only its own events', async () => {
    await service.newLines();
    // A fast broker would confirm each request before the next one arrives.
    service.nats.signal('SIGSTOP');
    const sent = Array.from({ length: 120 }, (_, n) =>
      service.post('web', 'login', { customUserId: `u${n}` }, n % 3 === 0 ? {} : asked),
    );
    await waitFor(
      'most requests wait for the broker',
      async () => (await service.metric('tributary_ingest_waiting_bytes')) >= waitingBytes,
    );
    service.nats.signal('SIGCONT');
    const answers = await Promise.all(sent);
    const lines = new Map((await service.newLines()).map((line) => [line['event_id'], line]));
    expect(lines.size).toBe(120);
    const groups = new Map<number, Receipt[]>();
    for (const [n, answer] of answers.entries()) {
      if (n % 3 === 0) continue;
      const receipt = receiptOf(answer);
      groups.set(receipt.group.sequence, [...(groups.get(receipt.group.sequence) ?? []), receipt]);
      const [event] = receipt.events;
      const line = lines.get(event?.eventId);
      expect(line?.['custom_user_id']).toBe(`u${n}`);
      expect(digestEvent(receipt.salt, line as never)).toBe(event?.sha256);
    }
    const unasked = answers.filter((_, n) => n % 3 === 0).map(({ body }) => body);
    expect(new Set(unasked)).toEqual(new Set(['{"message":"Ok"}']));
    expect(groups.size).toBeLessThan(80);
    for (const receipts of groups.values()) {
      expect(new Set(receipts.map(({ group }) => group.signature)).size).toBe(1);
      expect(receipts.map(({ group }) => group.index).toSorted((a, b) => a - b)).toEqual([...receipts.keys()]);
      expect(receipts[0]?.group.requests).toBe(receipts.length);
    }
  });

  it('While the broker gives no answer a request ends with 500, and has no receipt', async () => {
    service.nats.signal('SIGSTOP');
    try {
      const answer = await service.post('web', 'login', { customUserId: 'u' }, asked);
      expect([answer.status, answer.body]).toEqual([500, '{"error":"Internal Server Error"}']);
      expect(answer.headers.get('preference-applied')).toBeNull();
    } finally {
      service.nats.signal('SIGCONT');
    }
  });
});

describe('receipts without a key', () => {
  it('Events are stored and acknowledged where the keys of receipts are damaged, without a receipt', async () => {
    const folder = testFolder();
    const keys = path.join(folder, 'keys');
    const first = await startTestIngest(folder);
    await first.stop();
    writeFileSync(receiptKeysPath(keys), 'damaged');
    const service = await startTestIngest(testFolder(), { receiptKeysDir: keys });
    try {
      const answer = await service.post('web', 'login', { customUserId: 'u' }, asked);
      expect([answer.status, answer.body]).toEqual([200, '{"message":"Ok"}']);
      expect(answer.headers.get('preference-applied')).toBeNull();
      expect(await service.newLines()).toHaveLength(1);
      expect((await ask(`${service.url}/v1/receipt-key`, {})).status).toBe(500);
      expect(service.ingest.facts()['warnings']).toMatchObject([{ code: 'receipt_keys_unreadable' }]);
    } finally {
      await service.stop();
    }
  });
});
