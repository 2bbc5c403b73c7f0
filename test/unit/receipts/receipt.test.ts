import { expect, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { digestEvent } from '../../../src/receipts/event-digest.ts';
import { isAppError } from '../../../src/runtime/errors.ts';
import { parseReceipt } from '../../../src/receipts/parse-receipt.ts';
import { inTurn } from '../../helpers/in-turn.ts';
import { eventLine } from '../../helpers/lake.ts';
import { newReceiptKey, signRequests } from '../../helpers/receipts.ts';

const key = newReceiptKey();
const seed = Math.trunc(Math.random() * 1e9);

test('Every receipt of a group of 1 to 2,000 requests verifies, alone and in its response', () => {
  const random = createRandom(seed);
  const sizes = [1, 2, 3, 2000, ...Array.from({ length: 6 }, () => random.integer(4, 1999))];
  for (const size of sizes) {
    const receipts = signRequests(
      Array.from({ length: size }, () => random.integer(1, 3)),
      key,
    );
    expect(new Set(receipts.map(({ group }) => group.signature)).size, `seed ${seed}`).toBe(1);
    const some = [receipts[0]!, ...receipts.slice(-20), receipts[random.integer(0, size - 1)]!];
    for (const receipt of some) {
      expect(parseReceipt(JSON.stringify(receipt), [key.key])).toEqual(receipt);
      expect(parseReceipt(JSON.stringify({ message: 'Ok', receipt }, undefined, 2))).toEqual(receipt);
    }
  }
});

test('A receipt with any changed bit or additional member is rejected', () => {
  const [, receipt] = signRequests([1, 2, 1], key);
  for (const text of [JSON.stringify(receipt), JSON.stringify({ message: 'Ok', receipt })]) {
    const bytes = Buffer.from(text);
    const passed: unknown[] = [];
    for (const bit of inTurn([...Array(bytes.length * 8).keys()], 4)) {
      const changed = Buffer.from(bytes);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      try {
        parseReceipt(changed.toString(), undefined);
        passed.push(bit);
      } catch (error) {
        if (!isAppError(error, 'receipt_invalid')) passed.push(error);
      }
    }
    expect(passed).toEqual([]);
  }
  const more = [
    { ...receipt, note: 'paid' },
    { ...receipt, group: { ...receipt!.group, note: 'paid' } },
    { message: 'Ok', receipt, note: 'paid' },
  ];
  for (const value of more) expect(() => parseReceipt(JSON.stringify(value))).toThrow('has an unknown format');
});

test('An ambiguous receipt is rejected, but spaces and the order of members do not matter', () => {
  const [receipt] = signRequests([1, 2], key);
  const text = JSON.stringify({ message: 'Ok', receipt });
  const [event] = receipt!.events;
  const ambiguous = [
    text.replace('"receipt":', '"receipt":{"idApp":7},"receipt":'),
    text.replace('"idApp":', '"idApp":7,"idApp":'),
    text.replace('"events":', '"events":[],"events":'),
    text.replace('"eventId":', `"eventId":"${'f'.repeat(36)}","eventId":`),
    text.replace(
      event!.eventId,
      event!.eventId.replace(/^./, (digit) => `\\u00${digit.charCodeAt(0).toString(16)}`),
    ),
    text.replace('"receiptVersion":1', '"receiptVersion":1.0'),
  ];
  for (const other of ambiguous) {
    expect(JSON.parse(other)).toEqual({ message: 'Ok', receipt });
    expect(() => parseReceipt(other, [key.key])).toThrow('has a duplicate member or a non-canonical value');
  }
  const { group, ...rest } = receipt!;
  const reordered = JSON.stringify({ receipt: { group, ...rest }, message: 'Ok' }, undefined, '\t');
  expect(parseReceipt(`\n${reordered}\r\n`, [key.key])).toEqual(receipt);
});

test('A receipt with the index, the path or the events of another receipt is rejected', () => {
  const [one, two] = signRequests([1, 1, 1], key);
  const [other] = signRequests([1, 1, 1], key);
  const forged = [
    { ...one, group: two!.group },
    { ...one, group: other!.group },
    { ...one, group: { ...one!.group, signature: other!.group.signature } },
    { ...one, group: { ...one!.group, index: two!.group.index, path: two!.group.path } },
    { ...one, events: two!.events },
    { ...one, events: [...one!.events, ...two!.events] },
    { ...one, events: [] },
    { ...one, salt: two!.salt },
  ];
  for (const receipt of forged)
    expect(() => parseReceipt(JSON.stringify(receipt))).toThrow('does not match its signature');
});

test('A receipt of an untrusted key is rejected, and so is any other text', () => {
  const [receipt] = signRequests([1], key);
  const other = newReceiptKey().key;
  expect(() => parseReceipt(JSON.stringify(receipt), [other])).toThrow('is signed by an unknown key');
  expect(parseReceipt(JSON.stringify(receipt), [other, key.key])).toEqual(receipt);
  for (const text of ['', '{', 'null', '[]', '{"message":"Ok"}', '"receipt"'])
    expect(() => parseReceipt(text)).toThrow(/is not JSON|has an unknown format/);
});

test('Events have the same digest only if their values are equal, in any order and notation', () => {
  const line = eventLine({ total: '12.5000', custom_event_params: { b: '2', a: '1' }, age: 30, currency: null });
  const digest = digestEvent('s', line as never);
  const { age, ...rest } = line;
  const same = { age: String(age), ...rest, total: '12.5', custom_event_params: { a: '1', b: '2' } };
  expect(digestEvent('s', same as never)).toBe(digest);
  const others = [
    { ...line, custom_user_id: 'u2' },
    { ...line, custom_user_id: '' },
    { ...line, total: '12.51' },
    { ...line, custom_event_params: { a: '1', b: '2', c: '' } },
    { ...line, received_at: Number(line['received_at']) + 1 },
  ];
  for (const other of others) expect(digestEvent('s', other as never)).not.toBe(digest);
  expect(digestEvent('t', line as never)).not.toBe(digest);
});
