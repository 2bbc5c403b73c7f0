import { describe, expect, it } from 'vitest';
import { createReadBuffers } from '../../../src/stream/transport.ts';
import { createRandom } from '../../helpers/export-events.ts';

const random = createRandom(11);

function messageOf(bytes: number): Buffer {
  const payload = Buffer.alloc(bytes, '\r\nMSG subject 1 99999\r\nPING\r\n');
  const headers = random(2) === 0 ? '' : 'NATS/1.0\r\nTributary-Brotli: 9\r\n\r\n';
  const size = headers.length + bytes;
  const line = headers === '' ? `MSG events 1 ${size}` : `HMSG events 1 $JS.ACK.1.2 ${headers.length} ${size}`;
  return Buffer.concat([Buffer.from(`${line}\r\n${headers}`), payload, Buffer.from('\r\n')]);
}

function drawMessages(sizes: readonly number[]): Buffer[] {
  return sizes.flatMap((bytes) => [
    messageOf(bytes),
    ...(random(3) === 0 ? [Buffer.from(['PING\r\n', '+OK\r\n', 'INFO {"headers":true}\r\n'][random(3)] ?? '')] : []),
  ]);
}

interface Reads {
  /** What was emitted, copied when it is released: some reads later. */
  readonly emitted: readonly Buffer[];
  readonly memories: number;
}

/** Feeds bytes in reads of random sizes; releases all that was emitted at random times. */
function readInParts(bytes: Buffer, mostBytes: number, reused = false): Reads {
  const [emitted, waiting, memories] = [[] as Buffer[], [] as Buffer[], new Set<ArrayBufferLike>()];
  const buffers = createReadBuffers((part) => waiting.push(part) > 0, reused);
  const release = (): void => {
    for (const part of waiting.splice(0)) {
      emitted.push(Buffer.from(part));
      memories.add(part.buffer);
      buffers.release(part);
    }
  };
  for (let at = 0; at < bytes.length;) {
    const read = bytes.subarray(at, at + Math.min(1 + random(mostBytes), buffers.space().length));
    read.copy(buffers.space());
    buffers.add(read.length);
    at += read.length;
    if (random(3) > 0) release();
  }
  release();
  return { emitted, memories: memories.size };
}

describe('reads of a connection to the broker', () => {
  it.each([7, 5000, 600_000])('Messages are emitted whole and unchanged, in reads of up to %i bytes', (mostBytes) => {
    const sizes = Array.from({ length: 60 }, () => random([10, 3000, 200_000][random(3)] ?? 0));
    const messages = drawMessages(mostBytes === 7 ? sizes.map((size) => size % 400) : sizes);
    const ends = new Set<number>();
    let end = 0;
    for (const { length } of messages) ends.add((end += length));
    const { emitted } = readInParts(Buffer.concat(messages), mostBytes);
    let emittedTo = 0;
    for (const { length } of emitted) expect(ends).toContain((emittedTo += length));
    expect(Buffer.concat(emitted).equals(Buffer.concat(messages))).toBe(true);
  });

  it('A message of the largest size is emitted whole, and a larger one in parts', () => {
    const [largest, larger] = [messageOf(1024 * 1024), messageOf(5 * 1024 * 1024)];
    const { emitted } = readInParts(Buffer.concat([largest, larger, largest]), 600_000, true);
    expect(emitted[0]?.length).toBe(largest.length);
    expect(emitted.at(-1)?.length).toBe(largest.length);
    expect(emitted.length).toBeGreaterThan(3);
    expect(Buffer.concat(emitted).equals(Buffer.concat([largest, larger, largest]))).toBe(true);
  });

  it('A buffer is filled again only after the client has parsed what was emitted of it', () => {
    const bytes = Buffer.concat(drawMessages(Array.from({ length: 300 }, () => random(200_000))));
    const [once, again] = [readInParts(bytes, 300_000), readInParts(bytes, 300_000, true)];
    for (const { emitted } of [once, again]) expect(Buffer.concat(emitted).equals(bytes)).toBe(true);
    expect(again.memories).toBeLessThan(once.memories / 2);
  });
});
