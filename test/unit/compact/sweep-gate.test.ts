import { EventEmitter, once } from 'node:events';
import { expect, it } from 'vitest';
import { createGate } from '../../../src/compact/seal/sweep-gate.ts';

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A piece of work that ends when it is told to. */
function createWork() {
  const told = new EventEmitter();
  const ended = once(told, 'end').then(() => undefined);
  return { end: () => void told.emit('end'), run: () => ended };
}

it('The first sweep comes before the first turn, and one that a turn has refused before the next turn, however closely turns follow each other', async () => {
  const steps: string[] = [];
  const gate = createGate(
    () => {
      steps.push('sweep');
      return Promise.resolve(true);
    },
    60_000,
    new AbortController().signal,
  );
  const first = createWork();
  const turning = gate.turn(first.run);
  await settled();
  expect(await gate.sweep(false)).toBe(true);
  await settled();
  expect(await gate.sweep(false)).toBe(false);
  steps.length = 0;
  first.end();
  expect(await turning).toBe(true);
  const second = gate.turn(() => Promise.resolve(void steps.push('turn')));
  await settled();
  expect(steps).toEqual([]);
  expect(await gate.sweep(false)).toBe(true);
  expect(await second).toBe(true);
  expect(steps).toEqual(['sweep', 'turn']);
});

it('A turn waits for a refused sweep for a while only, and not once the compactor stops', async () => {
  const stopping = new AbortController();
  const turns: string[] = [];
  for (const [name, waitMs] of [
    ['after a while', 5],
    ['at the stop', 60_000],
  ] as const) {
    const gate = createGate(() => Promise.resolve(true), waitMs, stopping.signal);
    const first = createWork();
    const turning = gate.turn(first.run);
    await gate.sweep(false);
    await settled();
    await gate.sweep(false);
    first.end();
    await turning;
    const second = gate.turn(() => Promise.resolve(void turns.push(name)));
    if (waitMs > 5) stopping.abort();
    await second;
  }
  expect(turns).toEqual(['after a while', 'at the stop']);
});

it('A sweep that fails leaves the gate open for the next turn', async () => {
  const gate = createGate(() => Promise.reject(new Error('the disk is full')), 5, new AbortController().signal);
  await expect(gate.sweep(false)).rejects.toThrow('the disk is full');
  expect(await gate.turn(() => Promise.resolve())).toBe(true);
});
