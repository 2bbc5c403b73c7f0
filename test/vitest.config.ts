import { randomInt } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { defineConfig } from 'vitest/config';
import { isLongRun } from './helpers/chaos.ts';
import { createCoverageTable } from './helpers/coverage-table.ts';
import { LongestFirst } from './helpers/longest-first.ts';
import { memoryFolder } from './helpers/memory-folder.ts';
import { createTestNotes } from './helpers/test-notes.ts';

const checkout = path.resolve(import.meta.dirname, '..');
const sources = path.join(checkout, 'src');
/** Benchmarks run alone (`make bench`): concurrent tests would distort their figures. */
const isBench = process.env['TRIBUTARY_TEST_BENCH'] !== undefined;
/** The coverage of the unit tests (`make coverage`), without code that they run in separate processes, from dist. */
const isCoverage = process.env['TRIBUTARY_TEST_COVERAGE'] !== undefined;

/** A plugin changes a source (planted-run.mjs): vitest does not pass it on to projects. */
const isPlanted = process.env['TRIBUTARY_TEST_PLANTED'] !== undefined;
const everything = '{unit,integration,e2e,chaos,mutants}/**/*.test.ts';
const units = 'unit/**/*.test.ts';

/**
 * Test files share a few processes, so that their imports are loaded once per process. Files that replace a module have
 * their own process; other changes of the process are undone by the tests. In the long form, whose files run for an
 * hour, each file of chaos has its own.
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
 * Tests run against real servers and files, and a file waits for two thirds of its time: five files run concurrently on
 * two cores. In the long form, with the load of many clients, it is three. Benchmarks run one by one.
 */
export default defineConfig({
  test: {
    // Of sources that no test loads, vitest counts only those below the root, and leaves the others out of the total.
    root: isCoverage ? checkout : import.meta.dirname,
    ...testsOfRun(),
    env: {
      TRIBUTARY_TEST_TURN: process.env['TRIBUTARY_TEST_TURN'] ?? String(randomInt(60)),
      ...(memoryFolder === undefined ? {} : { TMPDIR: memoryFolder }),
    },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 30_000 } },
    pool: 'forks',
    maxWorkers: isBench ? 1 : isLongRun ? 3 : 5,
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
