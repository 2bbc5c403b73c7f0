import { expect, test } from 'vitest';
import { findErased, moveErasures } from '../../../src/lake/log/lake-state.ts';
import { findVersionUnavailableReason } from '../../../src/lake/log/change-feed.ts';

const states = { newest: 9, oldest: 0 };

test('Concurrent erasures, or erasures repeated after a kill, end the older versions of their apps', () => {
  const first = moveErasures({}, true, { erasedApps: [7] });
  expect(findErased(first, [7])).toEqual({ before: 0, isErasing: true });
  expect(findErased(first, [8])).toEqual({ before: 0, isErasing: false });
  // A flush continues meanwhile, and another erasure completes a killed one.
  const both = moveErasures(moveErasures(first, false, {}), true, { erasedApps: [8] });
  const finished = moveErasures(both, true, { erasedApps: [], forgetBefore: 5 });
  expect(finished).toEqual({ erasedBefore: { 7: 5, 8: 5 } });
  const later = moveErasures(moveErasures(finished, true, { erasedApps: [8] }), true, {
    erasedApps: [],
    forgetBefore: 8,
  });
  expect([[7], [8], [9], [7, 8], undefined].map((apps) => findErased(later, apps).before)).toEqual([5, 8, 0, 8, 8]);
});

test('An erasure by an earlier version, which records no apps, ends the older versions of all apps', () => {
  const before = { forgetBefore: 4 };
  expect(findVersionUnavailableReason(3, { ...states, lake: before as never }, [7])).toContain(
    'the oldest available version is 4',
  );
  const after = moveErasures({ ...before, ...moveErasures(before, true, { erasedApps: [8] }) }, true, {
    erasedApps: [],
    forgetBefore: 6,
  });
  expect(after).toEqual({ erasedBefore: { all: 4, 8: 6 } });
  expect(moveErasures({ erasing: true }, true, { erasedApps: [8], forgetBefore: 6 })).toEqual({
    erasedBefore: { all: 6 },
  });
  expect(moveErasures({}, true, {})).toEqual({ erasing: true });
});

test('With very many erased apps the newest are recorded, and the others count for all apps', () => {
  const many = Array.from({ length: 300 }, (_, index) => index + 1);
  expect(moveErasures({}, true, { erasedApps: many })).toEqual({ erasing: true });
  let state = {};
  for (const app of many) state = moveErasures(state, true, { erasedApps: [app], forgetBefore: 1000 + app });
  expect([[300], [45], [1], [999]].map((apps) => findErased(state, apps).before)).toEqual([1300, 1045, 1044, 1044]);
  expect(JSON.stringify(state).length).toBeLessThan(5000);
});
