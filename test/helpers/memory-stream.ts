import { createClock, type Clock } from '../../src/runtime/clock.ts';
import type { StreamMessage, StreamPublisher, StreamReader } from '../../src/stream/stream.ts';

/**
 * A stream in memory with its own clock, by the rules of StreamReader, for tests of the compactor's logic. It can be
 * damaged as a broker's store can. Tests of the complete path use a real broker.
 */
export interface MemoryStream extends StreamReader {
  /** Stores a message of these lines and returns its sequence. */
  publish(lines: readonly unknown[]): number;
  /** Stores bytes; `linesBytes` and `traceparents` as in `StreamMessage`. */
  publishRaw(payload: string | Uint8Array, linesBytes?: number, traceparents?: readonly string[]): number;
  /** Loses every message after a sequence, and reuses their sequences. */
  truncate(lastSequence: number): void;
  /** Clears the stream and starts at 1 under another creation time. */
  recreate(): void;
  /** Loses one message in the middle. */
  lose(sequence: number): void;
  readonly sequences: readonly number[];
  readonly publisher: StreamPublisher;
}

export function createMemoryStream(clock: Clock = createClock(0)): MemoryStream {
  let messages: StreamMessage[] = [];
  let last = 0;
  let created = 1;
  const publishRaw: MemoryStream['publishRaw'] = (payload, linesBytes, traceparents) => {
    last += 1;
    const stored = { payload: Buffer.from(payload), linesBytes, traceparents };
    messages.push({ sequence: last, ...stored, storedAtMs: clock.nowMs() });
    return last;
  };
  return {
    publishRaw,
    publisher: {
      publish: (payload, _timeoutMs, traceparents) =>
        Promise.resolve({ stream: 'TEST', sequence: publishRaw(payload, undefined, traceparents) }),
      ping: () => Promise.resolve(),
      close: () => Promise.resolve(),
    },
    publish: (lines) => publishRaw(lines.map((line) => `${JSON.stringify(line)}\n`).join('')),
    truncate(lastSequence) {
      messages = messages.filter((message) => message.sequence <= lastSequence);
      last = lastSequence;
    },
    recreate() {
      messages = [];
      last = 0;
      created += 1;
    },
    lose(sequence) {
      messages = messages.filter((message) => message.sequence !== sequence);
    },
    get sequences() {
      return messages.map((message) => message.sequence);
    },
    state: () =>
      Promise.resolve({
        id: `TEST@${created}`,
        firstSequence: messages[0]?.sequence ?? last + 1,
        lastSequence: last,
        messages: messages.length,
        bytes: messages.reduce((sum, message) => sum + message.payload.length, 0),
        clock: { fromMs: clock.nowMs(), toMs: clock.nowMs() },
      }),
    findMessage: (sequence) => Promise.resolve(messages.find((message) => message.sequence === sequence)),
    async pull(afterSequence, limits) {
      const deadline = performance.now() + limits.waitMs;
      for (;;) {
        const pulled: StreamMessage[] = [];
        let bytes = 0;
        for (const message of messages.filter((candidate) => candidate.sequence > afterSequence)) {
          if (bytes > 0 && bytes + message.payload.length > limits.maxBytes) break;
          if (message.sequence !== afterSequence + pulled.length + 1) {
            const { AppError } = await import('../../src/runtime/errors.ts');
            throw new AppError('stream_gap', `the stream has message ${message.sequence}`);
          }
          pulled.push(message);
          bytes += message.payload.length;
        }
        if (pulled.length > 0 || performance.now() >= deadline || limits.signal?.aborted === true) return pulled;
        await new Promise((resolve) => void setTimeout(resolve, 2));
      }
    },
    purgeBelow(sequence) {
      messages = messages.filter((message) => message.sequence >= sequence);
      return Promise.resolve();
    },
    close: () => Promise.resolve(),
  };
}
