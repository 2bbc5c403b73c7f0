import { expect, test } from 'vitest';
import { stampAheadMs } from '../../../../src/operate/load/commit-load.ts';

test('Rows that get another available_at get one a minute ahead, or twice as far as it took to give them the last', () => {
  expect(stampAheadMs(0)).toBe(60_000);
  expect(stampAheadMs(30_000)).toBe(60_000);
  expect(stampAheadMs(90_000.25)).toBe(180_001);
});
