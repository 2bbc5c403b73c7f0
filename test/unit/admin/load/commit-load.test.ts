import { expect, test } from 'vitest';
import { stampAheadMs } from '../../../../src/admin/load/commit-load.ts';

test('Rows that are stamped again get an available_at a minute ahead, or twice the time of the last stamping', () => {
  expect(stampAheadMs(0)).toBe(60_000);
  expect(stampAheadMs(30_000)).toBe(60_000);
  expect(stampAheadMs(90_000.25)).toBe(180_001);
});
