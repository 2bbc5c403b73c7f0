import path from 'node:path';
import { defineConfig } from 'vitest/config';
import { createCoverageTable } from './helpers/coverage-table.ts';
import { LongestFirst } from './helpers/longest-first.ts';
import { createTestNotes } from './helpers/test-notes.ts';

const checkout = path.resolve(import.meta.dirname, '..');
const sources = path.join(checkout, 'src');
/** Benchmarks run alone (`make bench`): beside the tests their figures would mean nothing. */
const isBench = process.env['TRIBUTARY_TEST_BENCH'] !== undefined;
/** The coverage of the unit tests (`make coverage`), without what they run in a process of its own, from dist. */
const isCoverage = process.env['TRIBUTARY_TEST_COVERAGE'] !== undefined;

function testsOfRun(): string {
  if (isBench) return 'bench/**/*.bench.ts';
  return isCoverage ? 'test/unit/**/*.test.ts' : '{unit,integration,e2e,chaos,mutants}/**/*.test.ts';
}

/**
 * Tests run against real servers and files, so they get time; much of it is waiting, so three files run side by side on
 * two cores. Benchmarks run one by one.
 */
export default defineConfig({
  test: {
    // Of sources that no test loads, vitest counts those below the root only, and leaves the others out of the total.
    root: isCoverage ? checkout : import.meta.dirname,
    include: [testsOfRun()],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: isBench ? 1 : 3,
    sequence: { sequencer: LongestFirst },
    setupFiles: [],
    reporters: ['default', createTestNotes(), createCoverageTable(sources)],
    coverage: {
      enabled: isCoverage,
      provider: 'v8',
      include: [path.join(sources, '**/*.ts')],
      reportsDirectory: path.join(checkout, 'data/coverage'),
      reporter: ['text-summary', 'json-summary'],
    },
  },
});
