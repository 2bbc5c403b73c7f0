import { expect, it } from 'vitest';
import { classifyStatus, parseReply } from '../../../src/stream/pull-request.ts';

it.each<[number, string, object]>([
  [404, 'No Messages', { clean: true }],
  [408, 'Request Timeout', { clean: true }],
  [409, 'Batch Completed', { clean: true }],
  [409, 'Message Size Exceeds MaxBytes', { clean: true }],
  [409, 'Consumer Deleted', { clean: false }],
  [503, 'No Responders', { clean: false }],
  [400, 'Bad Request', { clean: false, refused: expect.any(Error) as unknown }],
  [409, 'Exceeded MaxWaiting', { clean: false, refused: expect.any(Error) as unknown }],
  [409, 'Exceeded MaxRequestBatch of 10', { clean: false, refused: expect.any(Error) as unknown, maxMessages: 10 }],
])('A pull that the broker ends with a status is classified by it: %i %s', (code, text, judged) => {
  expect(classifyStatus(code, text)).toEqual(judged);
});

it.each<[string, object]>([
  ['$JS.ACK.S.c.1.42.7.1700000000123999999.0', { sequence: 42, storedAtMs: 1_700_000_000_123 }],
  ['$JS.ACK.hub.ABCDEF.S.c.1.42.7.1700000000123999999.0.xyz', { sequence: 42, storedAtMs: 1_700_000_000_123 }],
  ['$JS.ACK.S.c.1.42.7.soon.0', { sequence: 42, storedAtMs: undefined }],
])(
  'The reply subject of a message has its sequence and the time of its storage, never a later one: %s',
  (reply, parsed) => {
    expect(parseReply(reply)).toEqual(parsed);
  },
);

it('A message whose reply subject names no stream is rejected', () => {
  expect(() => parseReply('_INBOX.1')).toThrow('without a stream');
});
