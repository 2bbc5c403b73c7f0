import { expect, it } from 'vitest';
import type { Delivery } from '../../../src/stream/deliveries.ts';
import type { PullConnection } from '../../../src/stream/pull-connection.ts';
import { parseReply, pullOnce } from '../../../src/stream/pull-request.ts';

/** A broker that answers each request with a status. */
function answering(code: number, text: string): PullConnection {
  return {
    request(_subject: string, _body: string, delivery: Delivery) {
      setImmediate(() => delivery.status(code, text));
      return () => undefined;
    },
  } as unknown as PullConnection;
}

const request = {
  streamName: 'S',
  consumer: 'c',
  batch: 1000,
  maxBytes: 1,
  expiresMs: 1000,
  cutMs: 1000,
  signal: undefined,
  room: (bytes: number) => new Uint8Array(bytes),
  onArrival: () => undefined,
};

it.each<[number, string, object]>([
  [404, 'No Messages', { clean: true }],
  [408, 'Request Timeout', { clean: true }],
  [409, 'Batch Completed', { clean: true }],
  [409, 'Message Size Exceeds MaxBytes', { clean: true }],
  [409, 'Consumer Deleted', { clean: false }],
  [503, 'No Responders', { clean: false }],
  [400, 'Bad Request', { clean: false, refused: expect.any(Error) as unknown }],
  [409, 'Exceeded MaxWaiting', { clean: false, refused: expect.any(Error) as unknown }],
  [409, 'Exceeded MaxRequestBatch of 10', { clean: false, refused: expect.any(Error) as unknown, mostMessages: 10 }],
])('A pull that the broker ends with a status is judged by it: %i %s', async (code, text, judged) => {
  expect(await pullOnce(answering(code, text), request)).toEqual({ messages: [], ...judged });
});

it.each<[string, object]>([
  ['$JS.ACK.S.c.1.42.7.1700000000123999999.0', { sequence: 42, storedAtMs: 1_700_000_000_123 }],
  ['$JS.ACK.hub.ABCDEF.S.c.1.42.7.1700000000123999999.0.xyz', { sequence: 42, storedAtMs: 1_700_000_000_123 }],
  ['$JS.ACK.S.c.1.42.7.soon.0', { sequence: 42, storedAtMs: undefined }],
])('The reply subject of a message says its sequence and when it was stored, never later: %s', (reply, parsed) => {
  expect(parseReply(reply)).toEqual(parsed);
});

it('A message whose reply subject is of no stream is refused', () => {
  expect(() => parseReply('_INBOX.1')).toThrow('of no stream');
});
