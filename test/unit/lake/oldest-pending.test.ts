import { randomUUID } from 'node:crypto';
import { expect, test, vi } from 'vitest';
import { findOldestPendingBase } from '../../../src/lake/files/failed-events.ts';

/** Names in the folder: so many files take a minute to create. */
const names = vi.hoisted((): string[] => []);
vi.mock('../../../src/runtime/store/open-store.ts', () => ({ openStore: () => ({ list: async () => names }) }));

const settled = (count: number): string => `00000000-0000-0000-0000-${String(count).padStart(12, '0')}.ndjson`;

test('The oldest pending file is found among more failed files than a function call takes arguments', async () => {
  for (let count = 0; count < 130_000; count += 1) names.push(settled(count));
  expect(await findOldestPendingBase('')).toBe(Infinity);
  for (const base of [12, 9, 30]) names.push(`pending-${base}-${randomUUID()}.ndjson`);
  expect(await findOldestPendingBase('')).toBe(9);
});
