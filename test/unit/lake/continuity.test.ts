import path from 'node:path';
import { describe, expect, it, test } from 'vitest';
import {
  assertContinuity,
  assertPosition,
  emptyTotals,
  type Epoch,
  type LakeState,
  type Totals,
} from '../../../src/lake/log/lake-state.ts';
import { ensureLake, lakePaths } from '../../../src/lake/lake.ts';
import { linkCommit, openTable, toCommitInfo, type Change } from '../../../src/lake/log/table.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { testFolder } from '../../helpers/folder.ts';

const epoch: Epoch = { appId: 'S@1', streamId: 'S@1', position: 7, dedupeThrough: 0 };
const totals: Totals = { streamed: 10, stored: 6, failed: 2, repeats: 1, erased: 1 };
const before: LakeState = { commitId: 'a', cause: 'flush', totals, epoch, availableAtMs: 5000 };
const after = (members: Partial<LakeState>): LakeState => ({ ...before, commitId: 'b', ...members });

describe('consecutive commits', () => {
  it.each<[string, Partial<LakeState>]>([
    ['that changes nothing', {}],
    [
      'of a flush',
      {
        totals: { streamed: 15, stored: 8, failed: 3, repeats: 3, erased: 1 },
        epoch: { ...epoch, position: 9 },
        availableAtMs: 5001,
      },
    ],
    ['of a replay', { cause: 'replay', totals: { ...totals, stored: 7, failed: 0, repeats: 2 } }],
    ['of an erasure', { cause: 'erase', totals: { ...totals, stored: 4, erased: 3 } }],
    ['of another stream', { cause: 'epoch', epoch: { ...epoch, appId: 'S@2', position: 0 } }],
    ['of a repair of the clock', { cause: 'restamp', availableAtMs: 4000 }],
  ])('A commit %s follows the previous one', (_what, members) => {
    expect(() => assertContinuity(before, after(members))).not.toThrow();
  });

  it.each<[string, Partial<LakeState>, string]>([
    ['an event is lost', { totals: { ...totals, streamed: 11 } }, 'does not account for its events'],
    ['an event is stored that was not sent', { totals: { ...totals, stored: 7 } }, 'does not account for its events'],
    ['erased events return', { totals: { ...totals, stored: 7, erased: 0 } }, 'decreases erased by 1'],
    ['more is erased than there was', { totals: { ...totals, stored: -1, erased: 8 } }, 'leaves -1 stored'],
    ['the position goes back', { epoch: { ...epoch, position: 6 } }, 'moves the position back, from 7 to 6'],
    ['available_at goes back', { availableAtMs: 4999 }, 'sets available_at back'],
  ])('A commit after which %s does not follow the previous one', (_what, members, message) => {
    expect(() => assertContinuity(before, after(members))).toThrow(message);
  });

  it('A commit without a position, or with two, does not follow the previous one', () => {
    const { epoch: _, ...forgotten } = after({});
    expect(() => assertContinuity(before, forgotten)).toThrow('drops the position');
    expect(() => assertPosition(before, new Map([['S@1', 7]]))).not.toThrow();
    expect(() => assertPosition(before, new Map([['S@1', 8]]))).toThrow("is 7 in the lake's state, and 8");
    expect(() => assertPosition(before, new Map())).toThrow('undefined in the table');
    expect(() => assertPosition(forgotten, new Map())).not.toThrow();
  });
});

const options = { clock: createClock(0), crashPoint: noCrashPoint };

async function newTable() {
  const lakeDir = path.join(testFolder(), 'lake');
  await ensureLake(lakeDir, { ...options, retentionMs: 1000 });
  const table = await openTable(lakePaths(lakeDir).table, options);
  await table.commit(() => ({
    cause: 'epoch',
    actions: [{ txn: { appId: 'S@1', version: 7 } }],
    epoch,
    availableAtMs: 5000,
  }));
  return table;
}

test.for<[string, Change]>([
  ['events that are not accounted for', { cause: 'flush', actions: [], totals: { streamed: 2, stored: 1 } }],
  ['more taken away than there is', { cause: 'erase', actions: [], totals: { stored: -1, erased: 1 } }],
  ['a position in one place only', { cause: 'flush', actions: [], epoch: { ...epoch, position: 8 } }],
  [
    'a position that goes back',
    { cause: 'flush', actions: [{ txn: { appId: 'S@1', version: 6 } }], epoch: { ...epoch, position: 6 } },
  ],
  ['rows that are available before those that are there', { cause: 'flush', actions: [], availableAtMs: 4999 }],
])('A change with %s is not committed', async ([_what, change]) => {
  const table = await newTable();
  await expect(table.commit(() => change)).rejects.toMatchObject({ code: 'ERR_ASSERTION' });
  expect(await readSnapshot(table.dir)).toMatchObject({ version: 1, lake: { totals: emptyTotals, epoch } });
  await table.commit(() => ({ cause: 'start', actions: [], writer: 'w' }));
  expect((await readSnapshot(table.dir)).version).toBe(2);
});

test('Commits do not continue from an inconsistent commit of another process', async () => {
  const table = await newTable();
  const { lastHash: previous } = table.state();
  const stamp = { version: 2, commitId: 'wrong', nowMs: 0, previous };
  // A process of another version might write a state that continues from another one.
  const wrong = toCommitInfo({ ...table.lake(), availableAtMs: 1000 }, { cause: 'start', actions: [] }, stamp);
  expect(await linkCommit(table.dir, 2, [{ commitInfo: wrong }], noCrashPoint)).toBe(true);
  await expect(table.commit(() => ({ cause: 'start', actions: [] }))).rejects.toThrow('sets available_at back');
});
