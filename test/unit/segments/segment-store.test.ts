import path from 'node:path';
import { expect, test } from 'vitest';
import { findSegment, listSegmentIds, listSegments, removeSegment } from '../../../src/segments/segment-store.ts';
import { testFolder } from '../../helpers/folder.ts';
import { addTestSegment } from '../../helpers/lists.ts';

test('Other accounts do not find a segment, even under the same id', async () => {
  const segmentsDir = path.join(testFolder(), 'segments');
  // An account whose id is a prefix of another's.
  for (const [idAccount, idSegment] of [
    [1, 5],
    [1, 7],
    [11, 5],
  ] as const)
    await addTestSegment(segmentsDir, { idAccount, idSegment, kind: 'custom' }, [`of account ${idAccount}`]);
  expect([await listSegmentIds(segmentsDir, 1), await listSegmentIds(segmentsDir, 11)]).toEqual([[5, 7], [5]]);
  expect(await listSegmentIds(segmentsDir, 2)).toEqual([]);
  const [own, other] = await Promise.all(
    [1, 11].map((idAccount) => findSegment(segmentsDir, { idAccount, idSegment: 5 })),
  );
  expect(own?.sha256).not.toBe(other?.sha256);
  expect(await findSegment(segmentsDir, { idAccount: 11, idSegment: 7 })).toBeUndefined();
  await expect(removeSegment(segmentsDir, { idAccount: 11, idSegment: 7 })).rejects.toMatchObject({
    code: 'not_found',
  });
  await removeSegment(segmentsDir, { idAccount: 11, idSegment: 5 });
  expect((await listSegments(segmentsDir)).map(({ idAccount, idSegment }) => [idAccount, idSegment])).toEqual([
    [1, 5],
    [1, 7],
  ]);
});
