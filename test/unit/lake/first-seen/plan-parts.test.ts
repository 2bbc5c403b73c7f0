import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  chooseParts,
  findObsolete,
  groupOf,
  listUncovered,
  planMerge,
  takeBatch,
  type Cover,
  type FirstSeenPart,
} from '../../../../src/lake/first-seen/plan-parts.ts';
import type { DataFile } from '../../../../src/lake/log/snapshot.ts';

const today = '2026-05-20';
const longHash = (name: string): string => name.padEnd(64, '0');
const coverOf = (name: string): Cover => ({ hash: longHash(name).slice(0, 32) });
const coverOfApps = (name: string, ...apps: [least: number, greatest: number]): Cover => ({ ...coverOf(name), apps });

function fileOf(name: string, date: string, members: Partial<DataFile> = {}): DataFile {
  return {
    path: name,
    absolutePath: `/lake/${name}`,
    sizeBytes: 100,
    numRecords: 10,
    minValues: { event_time: `${date}T00:00:01.000Z` },
    maxValues: { event_time: `${date}T23:00:00.000Z` },
    sha256: longHash(name),
    young: false,
    ...members,
  };
}

function partOf(id: string, names: readonly string[], members: Partial<FirstSeenPart> = {}): FirstSeenPart {
  return {
    id,
    absolutePath: `/lake/first-seen/${id}`,
    sizeBytes: 100,
    covers: names.map(coverOf),
    firstDate: '2026-05-01',
    lastDate: '2026-05-01',
    ...members,
  };
}

const idsOf = (parts: readonly FirstSeenPart[] | undefined): string[] => (parts ?? []).map(({ id }) => id);

describe('the parts of a version', () => {
  const reader = { beforeSeconds: Infinity, idApps: [5] };
  const files = ['a', 'b', 'c'].map((name) => fileOf(name, '2026-05-01'));

  it('A part is used if the version has all files that it covers, and the others are read', () => {
    const parts = [partOf('whole', ['a', 'b']), partOf('stale', ['c', 'rewritten'])];
    const chosen = chooseParts(parts, files, { ...reader, beforeSeconds: Date.parse('2026-05-03') / 1000 });
    expect(idsOf(chosen.parts)).toEqual(['whole']);
    expect([...chosen.covered]).toEqual(files.slice(0, 2));
    expect(idsOf(findObsolete(parts, files))).toEqual(['stale']);
  });

  it('A part without events before the time is left out, to the second', () => {
    const beforeSeconds = Date.parse('2026-05-01') / 1000;
    const parts = [partOf('one', ['a'])];
    expect(chooseParts(parts, files, { ...reader, beforeSeconds }).parts).toEqual([]);
    expect(idsOf(chooseParts(parts, files, { ...reader, beforeSeconds: beforeSeconds + 1 }).parts)).toEqual(['one']);
  });

  it('A reader of some apps uses a part that lacks files of other apps only, and no part of other apps only', () => {
    const covers = [coverOfApps('a', 1, 4), coverOfApps('rewritten', 6, 9)];
    const parts = [partOf('some', [], { covers }), partOf('others', [], { covers: [coverOfApps('b', 10, 20)] })];
    const chosenFor = (...idApps: number[]) => idsOf(chooseParts(parts, files, { ...reader, idApps }).parts);
    expect([chosenFor(4), chosenFor(5), chosenFor(6), chosenFor(1, 9)]).toEqual([['some'], [], [], []]);
    expect([chosenFor(4, 10), chosenFor(20, 9), chosenFor(21)]).toEqual([['some', 'others'], ['others'], []]);
    // Without known apps, a file counts for each of them.
    expect(idsOf(chooseParts([partOf('unknown', ['a', 'rewritten'])], files, reader).parts)).toEqual([]);
  });

  it('A part whose files other parts cover is obsolete: a merge was interrupted before it was removed', () => {
    const parts = [partOf('a', ['a']), partOf('b', ['b']), partOf('merged', ['a', 'b'])];
    expect(idsOf(findObsolete(parts, files))).toEqual(['a', 'b']);
    expect(idsOf(findObsolete([partOf('x', ['a']), partOf('y', ['a'])], files))).toEqual(['y']);
  });
});

describe('the files of new parts', () => {
  it('Young files, those of other engines and those without known times are never covered', () => {
    const files = [
      fileOf('young', '2026-05-01', { young: true }),
      fileOf('foreign', '2026-05-01', { sha256: undefined }),
      fileOf('timeless', '2026-05-01', { maxValues: {} }),
      fileOf('covered', '2026-05-01'),
      fileOf('old', '2026-04-30'),
      fileOf('new', '2026-05-02'),
      fileOf('copy', '2026-05-02', { sha256: longHash('new') }),
    ];
    const uncovered = listUncovered([partOf('one', ['covered'])], files);
    expect(uncovered.map(({ file }) => file.path)).toEqual(['new', 'old']);
  });

  it('A batch has files of one group and a bounded number of rows, and at least one file', () => {
    const files = [
      fileOf('today', today),
      fileOf('large', '2026-05-01', { numRecords: 9_000_000 }),
      fileOf('small', '2026-05-01'),
      fileOf('last month', '2026-04-01'),
    ];
    let left = listUncovered([], files);
    const batches: string[][] = [];
    while (left.length > 0) {
      const batch = takeBatch(left, today);
      batches.push(batch.map(({ file }) => file.path));
      left = left.filter((each) => !batch.includes(each));
    }
    expect(batches).toEqual([['today'], ['large'], ['small'], ['last month']]);
    expect(takeBatch([], today)).toEqual([]);
  });
});

const at = (id: string, lastDate: string): FirstSeenPart => partOf(id, [id], { lastDate });

describe('merges', () => {
  it('Parts of recent days are merged within the day, older ones within the month, and old ones within the year', () => {
    expect(
      ['2026-05-21', '2026-05-13', '2026-05-12', '2026-03-11', '2026-03-10'].map((date) => groupOf(date, today)),
    ).toEqual(['2026-05-21', '2026-05-13', '2026-05', '2026-03', '2026']);
    expect(planMerge([at('a', '2026-05-19'), at('b', '2026-05-20')], today)).toBeUndefined();
    expect(idsOf(planMerge([at('a', '2026-05-02'), at('b', '2026-05-03')], today))).toEqual(['a', 'b']);
    expect(planMerge([at('a', '2026-04-30'), at('b', '2026-05-03')], today)).toBeUndefined();
    expect(idsOf(planMerge([at('a', '2026-01-30'), at('b', '2026-02-03')], today))).toEqual(['a', 'b']);
    // An age limit makes a part stale each day.
    expect(planMerge([at('a', '2026-01-30'), at('b', '2026-02-03')], today, 'month')).toBeUndefined();
  });

  it('A day has few parts, none is rewritten often, and none outgrows the limit', () => {
    const limit = 512 * 1024 ** 2;
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1_000_000, max: limit / 16 }), { maxLength: 60 }), (sizes) => {
        let parts: FirstSeenPart[] = [];
        let written = 0;
        for (const [index, sizeBytes] of sizes.entries()) {
          parts.push(partOf(String(index), [String(index)], { sizeBytes }));
          for (let merge = planMerge(parts, today); merge !== undefined; merge = planMerge(parts, today)) {
            const some = merge;
            const merged = partOf(idsOf(some).join(), [], {
              sizeBytes: some.reduce((sum, part) => sum + part.sizeBytes, 0),
            });
            expect(merged.sizeBytes).toBeLessThanOrEqual(limit);
            written += merged.sizeBytes;
            parts = [...parts.filter((part) => !some.includes(part)), merged];
          }
        }
        const total = sizes.reduce((sum, size) => sum + size, 0);
        // A rewrite grows the part of a row by half at least: 16 times are from the smallest to the limit.
        expect(written).toBeLessThanOrEqual(16 * total);
        expect(parts.length).toBeLessThanOrEqual(8 + total / (limit / 4));
        expect(parts.flatMap(({ id }) => (id === '' ? [] : id.split(','))).length).toBe(sizes.length);
      }),
    );
  });
});
