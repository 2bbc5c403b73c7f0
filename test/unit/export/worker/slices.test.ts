import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { planSlices, type Slice } from '../../../../src/export/worker/copy-slices.ts';
import type { DataFile } from '../../../../src/lake/log/snapshot.ts';

function fileOf(name: string, numRecords: number | undefined): DataFile {
  return {
    path: name,
    absolutePath: `/lake/${name}`,
    sizeBytes: 1,
    numRecords,
    minValues: {},
    maxValues: {},
    sha256: undefined,
    young: false,
  };
}

/** Each file with the rows that the slices read of it, span by span. */
function spansOf(slices: readonly Slice[]): [string, number, number][] {
  return slices.flatMap(({ files, rows }) =>
    files.map(({ path }): [string, number, number] => [path, rows?.from ?? 0, rows?.before ?? Number.MAX_SAFE_INTEGER]),
  );
}

describe('slices of an export', () => {
  it('A bounded number of slices reads every row of every file once, in the order of the lake', () => {
    const counts = fc.option(fc.oneof(fc.nat(2000), fc.nat(5_000_000)), { nil: undefined });
    fc.assert(
      fc.property(fc.array(counts, { maxLength: 200 }), (rows) => {
        const files = rows.map((count, index) => fileOf(`file ${index}`, count));
        const slices = planSlices(files);
        const spans = spansOf(slices);
        expect([...new Set(spans.map(([name]) => name))]).toEqual(files.map(({ path }) => path));
        for (const [index, [name, from]] of spans.entries()) {
          const [last, , lastBefore] = spans[index - 1] ?? ['', 0, Number.MAX_SAFE_INTEGER];
          expect(from).toBe(last === name ? lastBefore : 0);
          expect(last === name || lastBefore === Number.MAX_SAFE_INTEGER).toBe(true);
        }
        expect(spans.at(-1)?.[2] ?? Number.MAX_SAFE_INTEGER).toBe(Number.MAX_SAFE_INTEGER);
        const unknown = rows.filter((count) => count === undefined).length;
        expect(slices.length).toBeLessThanOrEqual(2 * 64 + 2 * unknown + 2);
      }),
    );
  });

  it('Small files are read together, and a large file by row groups', () => {
    const slices = planSlices([fileOf('a', 10), fileOf('b', 20), fileOf('c', 300_000), fileOf('d', 5)]);
    expect(spansOf(slices.slice(0, 1))).toEqual([
      ['a', 0, Number.MAX_SAFE_INTEGER],
      ['b', 0, Number.MAX_SAFE_INTEGER],
    ]);
    expect(spansOf(slices.slice(1))).toEqual([
      ['c', 0, 122_880],
      ['c', 122_880, 245_760],
      ['c', 245_760, Number.MAX_SAFE_INTEGER],
      ['d', 0, Number.MAX_SAFE_INTEGER],
    ]);
  });
});
