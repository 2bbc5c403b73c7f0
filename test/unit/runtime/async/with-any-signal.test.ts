import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { withAnySignal } from '../../../../src/runtime/async/in-parallel.ts';

test('Work ends when any of its signals aborts, before it begins or while it runs', async () => {
  for (const number of [0, 1]) {
    const sources = [new AbortController(), new AbortController()];
    const ended = withAnySignal(
      sources.map(({ signal }) => signal),
      (signal) => new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true })),
    );
    sources[number]?.abort();
    await ended;
    const signals = sources.map(({ signal }) => signal);
    expect(await withAnySignal(signals, async ({ aborted }) => aborted)).toBe(true);
  }
});

test('Work that has ended leaves no listener with its signals, also where it failed', async () => {
  const { signal } = new AbortController();
  const lasting = [signal, new AbortController().signal];
  expect(await withAnySignal(lasting, async ({ aborted }) => aborted)).toBe(false);
  await expect(withAnySignal(lasting, () => Promise.reject(new Error('it failed')))).rejects.toThrow('it failed');
  expect(lasting.flatMap((source) => getEventListeners(source, 'abort'))).toEqual([]);
});
