import { expect, test } from 'vitest';
import { findLeastAhead } from '../../../src/compact/batch/secondary-table.ts';

const at = (position: number, appId = 'S@1') => ({ appId, position });

test('A batch ends at the table that is least ahead in the same stream, and at none that is behind or level', () => {
  expect(findLeastAhead([at(9), at(7), at(12)], at(5))).toEqual(at(7));
  expect(findLeastAhead([at(4), at(5), at(8)], at(5))).toEqual(at(8));
  expect(findLeastAhead([at(4), at(5)], at(5))).toBeUndefined();
  expect(findLeastAhead([at(7, 'S@2'), at(9)], at(5))).toEqual(at(9));
});
