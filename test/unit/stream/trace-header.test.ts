import { headers } from '@nats-io/transport-node';
import { expect, it } from 'vitest';
import { findLinesBytes, renderSize } from '../../../src/stream/message-compression.ts';
import { addTraces, findTraces, maxTracesPerMessage } from '../../../src/stream/trace-header.ts';

function failToRead(): never {
  throw new Error('malformed headers');
}

const context = (n: number): string => `00-${String(n).padStart(32, 'a')}-${'b'.repeat(16)}-01`;

it('A message has the traces of its requests, next to its size if it is compressed', () => {
  const traces = [context(1), context(2)];
  for (const size of [undefined, 1234]) {
    const rendered = addTraces(size === undefined ? undefined : renderSize(size), traces);
    expect(findTraces(() => rendered)).toEqual(traces);
    expect(findLinesBytes(() => rendered)).toBe(size);
  }
});

it('A message without traces has no header for them, and a plain one has no headers', () => {
  expect(addTraces(undefined)).toBeUndefined();
  expect(addTraces(undefined, [])).toBeUndefined();
  const ofSize = renderSize(7);
  expect(addTraces(ofSize, [])).toBe(ofSize);
  expect(findTraces(() => ofSize)).toBeUndefined();
  expect(findTraces(() => undefined)).toBeUndefined();
});

it('The traces of a message take at most 1 KiB', () => {
  const many = Array.from({ length: 3000 }, (_, n) => context(n));
  const rendered = addTraces(undefined, many);
  expect(findTraces(() => rendered)).toEqual(many.slice(0, maxTracesPerMessage));
  expect(rendered?.get('Tributary-Traceparent').length).toBeLessThan(1000);
});

it('Of the header of another publisher, a bounded number of traces is read, and malformed headers are ignored', () => {
  const foreign = headers();
  foreign.set('Tributary-Traceparent', ','.repeat(10_000));
  expect(findTraces(() => foreign)).toHaveLength(maxTracesPerMessage);
  expect(findTraces(failToRead)).toBeUndefined();
});
