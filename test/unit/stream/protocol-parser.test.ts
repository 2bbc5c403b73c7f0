import { describe, expect, it } from 'vitest';
import { Kind, Parser, type ParserEvent } from '@nats-io/nats-core/internal';
import { createRandom, type Random } from '../../../src/demo/random.ts';
import { createProtocolParser } from '../../../src/stream/protocol-parser.ts';

/** What a parser has read, in order. */
type Read = string;

const hash = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');

/** Reads pieces; the memory of each is overwritten before the next, as that of a socket is. */
function readByOurs(pieces: readonly Buffer[]): Read[] {
  const read: Read[] = [];
  let [head, payload] = ['', ''];
  const parser = createProtocolParser({
    line: (text) => void read.push(text),
    begin({ subject, sid, reply, headerBytes, payloadBytes }) {
      head = `${subject} ${sid} ${reply ?? '-'} ${headerBytes} ${payloadBytes}`;
      payload = '';
    },
    payload: (bytes) => void (payload += hash(bytes)),
    end: (headers) => void read.push(`${head} ${hash(headers)}|${payload}`),
  });
  for (const piece of pieces) {
    const lent = Buffer.from(piece);
    parser.feed(lent);
    lent.fill(0x2a);
  }
  return read;
}

/** The same by the parser of NATS's own library. */
function readByTheirs(bytes: Buffer): Read[] {
  const read: Read[] = [];
  const names = { [Kind.OK]: '+OK', [Kind.PING]: 'PING', [Kind.PONG]: 'PONG' } as Readonly<Record<number, string>>;
  const parser = new Parser({
    push({ kind, msg, data = new Uint8Array(0) }: ParserEvent) {
      if (msg === undefined) {
        read.push(names[kind] ?? `${kind === Kind.INFO ? 'INFO' : '-ERR'} ${hash(data)}`);
        return;
      }
      const headerBytes = Math.max(msg.hdr, 0);
      const reply = msg.reply === undefined || msg.reply.length === 0 ? '-' : hash(msg.reply);
      const [headers, payload] = [data.subarray(0, headerBytes), data.subarray(headerBytes)];
      read.push(
        `${hash(msg.subject)} ${msg.sid} ${reply} ${headerBytes} ${payload.length} ${hash(headers)}|${hash(payload)}`,
      );
    },
  });
  parser.parse(bytes);
  return read;
}

const hostile = [
  '\r\n',
  'MSG a 1 5\r\nhello\r\n',
  'PING\r\n',
  '-ERR x\r\n',
  'HMSG a 1 4 8\r\n',
  '\u0000\n',
  '{"a":1}\n',
];

/** Bytes that a server may send: messages, some with what looks like the protocol in them, and lines between. */
function renderFrame(random: Random): Buffer {
  const size = random.pick([0, 1, 2, 40, 3000]);
  const payload = Buffer.from(
    random.chance(0.5)
      ? Array.from({ length: random.integer(0, 4) }, () => random.pick(hostile)).join('')
      : random.hex(size),
  );
  const reply = random.pick(['', `$JS.ACK.S.C.1.${random.integer(1, 99)}.1.1.0 `]);
  const name = `tributary.events ${random.integer(1, 9)} ${reply}`;
  const headers = Buffer.from(random.pick(['NATS/1.0\r\n\r\n', 'NATS/1.0 408 Request Timeout\r\nA: b\r\n\r\n']));
  const frames = [
    () => Buffer.concat([Buffer.from(`MSG ${name}${payload.length}\r\n`), payload, Buffer.from('\r\n')]),
    () =>
      Buffer.concat([
        Buffer.from(`HMSG ${name}${headers.length} ${headers.length + payload.length}\r\n`),
        headers,
        payload,
        Buffer.from('\r\n'),
      ]),
    () =>
      Buffer.from(random.pick(['PING\r\n', 'PONG\r\n', '+OK\r\n', "-ERR 'Slow Consumer'\r\n", 'INFO {"a":"b c"}\r\n'])),
  ];
  return random.pick(frames)();
}

function split(bytes: Buffer, random: Random): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = random.pick([1, 2, 7, 100, 5000]);
    pieces.push(bytes.subarray(at, at + length));
    at += length;
  }
  return pieces;
}

describe('the parser of the protocol', () => {
  it("Our parser reads what the library's reads, however the bytes come in", () => {
    const random = createRandom(15);
    for (let round = 0; round < 300; round += 1) {
      const bytes = Buffer.concat(Array.from({ length: random.integer(1, 12) }, () => renderFrame(random)));
      const expected = readByTheirs(bytes);
      expect(readByOurs([bytes])).toEqual(expected);
      expect(readByOurs(split(bytes, random))).toEqual(expected);
    }
  });

  it('Our parser reads the same of messages that are split at any byte', () => {
    const payload = hostile.join('');
    const bytes = Buffer.from(
      `PING\r\nHMSG a 1 $JS.ACK.S.C.1.7.1.1.0 12 ${12 + payload.length}\r\nNATS/1.0\r\n\r\n${payload}\r\nMSG b 22 0\r\n\r\nMSG c 3 ${payload.length}\r\n${payload}\r\n+OK\r\n`,
    );
    const expected = readByTheirs(bytes);
    expect(expected).toHaveLength(5);
    for (let at = 1; at < bytes.length; at += 1)
      expect(readByOurs([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(expected);
    expect(readByOurs([...bytes].map((byte) => Buffer.of(byte)))).toEqual(expected);
  });

  it.each([
    ['a size that is no number', 'MSG a 1 x\r\n'],
    ['a size beyond every limit', 'MSG a 1 999999999\r\n'],
    ['headers larger than the message', 'HMSG a 1 20 10\r\n'],
    ['a message without a subscription', 'MSG a 1\r\n'],
    ['a message of too many words', 'MSG a 1 b c 1\r\n'],
    ['a message that goes on behind its end', 'MSG a 1 1\r\nabc\r\n'],
  ])('A connection is of no more use after %s', (_, text) => {
    expect(() => readByOurs([Buffer.from(text)])).toThrow(/the broker sent a message/);
  });

  it('A line without an end is given up before it takes all memory', () => {
    const piece = Buffer.alloc(600 * 1024, 'x');
    expect(() => readByOurs([piece, piece])).toThrow('a line without an end');
  });
});
