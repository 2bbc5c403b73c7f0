import { defineConfig } from 'vitest/config';
import { LongestFirst } from './helpers/longest-first.ts';
import { createTestNotes } from './helpers/test-notes.ts';

/**
 * Tests run against real servers and files, so they get time; much of it is waiting, so three files run side by side on
 * two cores. Benchmarks run one by one.
 */
export default defineConfig({
  test: {
    root: import.meta.dirname,
    // Benchmarks run alone (`make bench`): beside the tests their figures would mean nothing.
    include:
      process.env['TRIBUTARY_TEST_BENCH'] === undefined
        ? ['{unit,integration,e2e,chaos,mutants}/**/*.test.ts']
        : ['bench/**/*.bench.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: process.env['TRIBUTARY_TEST_BENCH'] === undefined ? 3 : 1,
    sequence: { sequencer: LongestFirst },
    setupFiles: [],
    reporters: ['default', createTestNotes()],
  },
});
