import { describe, expect, it } from 'vitest';
import { renderCoverage, type CoverageMap } from '../../helpers/coverage-table.ts';

function createMap(files: Readonly<Record<string, readonly [covered: number, total: number]>>): CoverageMap {
  return {
    files: () => Object.keys(files),
    fileCoverageFor(file) {
      const [covered = 0, total = 0] = files[file] ?? [];
      const counts = { covered, total };
      return { toSummary: () => ({ data: { lines: counts, branches: { covered: 0, total: 0 }, functions: counts } }) };
    },
  };
}

describe('the table of coverage', () => {
  it('The table has a row for each folder of the sources, one for files in no folder, and one for all', () => {
    const map = createMap({
      '/checkout/src/lake/log/table.ts': [1, 2],
      '/checkout/src/lake/lake.ts': [2, 2],
      '/checkout/src/config.ts': [5, 5],
    });
    expect(renderCoverage(map, '/checkout/src').split('\n')).toEqual([
      'folder    files  lines    branches  functions',
      '--------  -----  -------  --------  ---------',
      'src/*.ts      1  100.0 %  -         100.0 %',
      'src/lake      2  75.0 %   -         75.0 %',
      'all           3  88.8 %   -         88.8 %',
    ]);
  });

  it('The table rounds down', () => {
    expect(renderCoverage(createMap({ '/src/main.ts': [9999, 10_000] }), '/src')).toContain('99.9 %');
  });
});
