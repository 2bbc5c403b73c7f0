import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { defineConfig } from 'vitest/config';
import { isLongRun } from './helpers/chaos.ts';
import { createCoverageTable } from './helpers/coverage-table.ts';
import { LongestFirst } from './helpers/longest-first.ts';
import { createTestNotes } from './helpers/test-notes.ts';

const checkout = path.resolve(import.meta.dirname, '..');
const sources = path.join(checkout, 'src');
/** Benchmarks run alone (`make bench`): beside the tests their figures would mean nothing. */
const isBench = process.env['TRIBUTARY_TEST_BENCH'] !== undefined;
/** The coverage of the unit tests (`make coverage`), without what they run in a process of its own, from dist. */
const isCoverage = process.env['TRIBUTARY_TEST_COVERAGE'] !== undefined;

/** A plugin changes a source (planted-run.mjs): vitest does not hand it on to projects. */
const isPlanted = process.env['TRIBUTARY_TEST_PLANTED'] !== undefined;
const everything = '{unit,integration,e2e,chaos,mutants}/**/*.test.ts';
const units = 'unit/**/*.test.ts';

/**
 * Test files share a few processes: what they import is loaded once for each process, not once for each file. Those
 * that put something in the place of a module have a process of their own; what else a test changes of its process it
 * sets back. In the long form, whose files run for an hour, all of chaos has one.
 */
const needsOwnProcess = /\bvi\.(?:mock|doMock)\(/;

function findIsolated(): string[] {
  return readdirSync(import.meta.dirname, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts'))
    .filter(
      (name) =>
        (isLongRun && name.startsWith('chaos/')) ||
        needsOwnProcess.test(readFileSync(path.join(import.meta.dirname, name), 'utf8')),
    );
}

function testsOfRun(): { readonly include?: string[]; readonly projects?: object[] } {
  if (isBench) return { include: ['bench/**/*.bench.ts'] };
  if (isCoverage) return { include: [`test/${units}`] };
  if (isPlanted) return { include: [everything] };
  const isolated = findIsolated();
  return {
    projects: [
      { extends: true, test: { name: 'shared', isolate: false, include: [everything], exclude: isolated } },
      { extends: true, test: { name: 'own', include: isolated } },
    ],
  };
}

/**
 * Tests run against real servers and files, so they get time; much of it is waiting, so four files run side by side on
 * two cores; of the long form, whose files put the load of many clients on theirs, three. Benchmarks run one by one.
 */
export default defineConfig({
  test: {
    // Of sources that no test loads, vitest counts those below the root only, and leaves the others out of the total.
    root: isCoverage ? checkout : import.meta.dirname,
    ...testsOfRun(),
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 30_000 } },
    pool: 'forks',
    maxWorkers: isBench ? 1 : isLongRun ? 3 : 4,
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
