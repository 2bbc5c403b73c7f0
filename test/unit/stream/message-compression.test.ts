import { randomBytes } from 'node:crypto';
import { brotliCompressSync, constants } from 'node:zlib';
import { headers, type MsgHdrs } from '@nats-io/transport-node';
import { expect, it } from 'vitest';
import {
  compressLines,
  findLinesBytes,
  isCompressing,
  readLines,
  renderSize,
} from '../../../src/stream/message-compression.ts';
import { maxMessageBytes, newline } from '../../../src/stream/stream.ts';
import { eventLine } from '../../helpers/lake.ts';

function linesOf(events: number): Buffer {
  return Buffer.from(Array.from({ length: events }, () => `${JSON.stringify(eventLine())}\n`).join(''));
}

/** Returns the stored bytes in a line that is not an event. */
function storedIn(line: Uint8Array): Buffer {
  const [, base64 = ''] =
    /^damaged message 7 of the stream, .*: ([\w+/=]*)\n$/.exec(Buffer.from(line).toString()) ?? [];
  return Buffer.from(base64, 'base64');
}

it.each([
  ['auto', 1, false],
  ['auto', 2, true],
  ['on', 1, true],
  ['off', 3, false],
] as const)('With %s, whether messages of a stream of %i copies are compressed is %s', (setting, copies, expected) => {
  expect(isCompressing(setting, copies)).toBe(expected);
});

it.each([10, 100, 4000])(
  'The lines of %i events take less space in the stream and are returned unchanged',
  async (events) => {
    const lines = linesOf(events).subarray(0, maxMessageBytes);
    const payload = await compressLines(lines);
    expect(payload?.length).toBeLessThan(lines.length * 0.8);
    const message = {
      sequence: 7,
      payload: payload ?? lines,
      linesBytes: findLinesBytes(() => renderSize(lines.length)),
    };
    expect(Buffer.from(await readLines(message)).equals(lines)).toBe(true);
  },
);

it('A version before 0.4 does not take a compressed message for one without events', async () => {
  for (let events = 10; events < 60; events += 1)
    expect((await compressLines(linesOf(events)))?.at(0) ?? newline).not.toBe(newline);
});

it('A message that compression would not make smaller is sent as it is', async () => {
  expect(await compressLines(Buffer.from('{"event_id":"1"}\n'))).toBeUndefined();
  expect(await compressLines(randomBytes(10_000))).toBeUndefined();
});

it('The lines of a plain message are its bytes, without a copy', async () => {
  const payload = linesOf(1);
  expect(await readLines({ sequence: 7, payload })).toBe(payload);
});

const compress = (bytes: Uint8Array): Buffer =>
  brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } });
const whole = compress(Buffer.alloc(100_000, 'x'));

it.each<[string, Uint8Array, number]>([
  ['is truncated', whole.subarray(0, -2), 100_000],
  ['is not brotli', linesOf(5), 1000],
  ['is empty', new Uint8Array(0), 1000],
  ['expands to less', whole, 100_001],
  ['expands to more', whole, 99_999],
  ['expands to far more than a message may have', compress(Buffer.alloc(64 * 1024 * 1024)), maxMessageBytes],
  ['has an invalid size', whole, 0],
])(
  'A message that %s has one line with the stored bytes, which is not an event',
  async (_case, payload, linesBytes) => {
    const line = await readLines({ sequence: 7, payload, linesBytes });
    expect(storedIn(line).equals(payload)).toBe(true);
    expect(() => JSON.parse(Buffer.from(line).toString()) as unknown).toThrow(SyntaxError);
  },
);

const withSize = (size: string): MsgHdrs => {
  const given = headers();
  given.set('Tributary-Brotli', size);
  return given;
};

it('A message without the header is plain, and so is one whose headers the client cannot parse', () => {
  expect(findLinesBytes(() => undefined)).toBeUndefined();
  expect(findLinesBytes(() => headers())).toBeUndefined();
  expect(
    findLinesBytes(() => {
      throw new Error("' ' is not a valid character in a header name");
    }),
  ).toBeUndefined();
});

it.each(['0', '-5', '1e3', 'many', '12.5', String(maxMessageBytes + 1), '99999999999999'])(
  'The size %s of another publisher is invalid',
  (size) => {
    expect(findLinesBytes(() => withSize(size))).toBe(0);
  },
);
