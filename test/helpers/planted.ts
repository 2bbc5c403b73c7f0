import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import process from 'node:process';
import { text } from 'node:stream/consumers';

const root = path.resolve(import.meta.dirname, '..', '..');

/** A defect, and the tests that must find it. */
export interface PlantedRun {
  /** Source file, relative to the root of the repository. */
  readonly file: string;
  /** A text that occurs once in it, and its replacement. */
  readonly from: string;
  readonly to: string;
  /** The test file, relative to `test/`, and a pattern of test titles; all without one. */
  readonly test: string;
  readonly name?: string;
  /** Seed of the simulator's first scenario. */
  readonly seed?: number;
  /** Condition that the simulator's scenarios are made to meet. */
  readonly about?: 'copies';
}

/** Returns a pattern of a piece of code in any layout: white space and commas before closing brackets may differ. */
export function patternOf(code: string): RegExp {
  const tokens = code.match(/\w+|'[^']*'|`[^`]*`|\S/g) ?? [];
  const parts = tokens.map((token, index) => {
    const escaped = token.replaceAll(/[.*+?^${}()|[\]\\/]/g, String.raw`\$&`);
    return index === 0 ? escaped : `${/^[)\]}]$/.test(token) ? ',?' : ''}\\s*${escaped}`;
  });
  return new RegExp(parts.join(''), 'g');
}

/** Counts the occurrences of a piece of code in a text. */
export function countCode(source: string, code: string): number {
  return source.match(patternOf(code))?.length ?? 0;
}

/**
 * Maximum number of scenarios. A seed that found the defect at once may not do so after a change of the sources,
 * because the random choices shift.
 */
const mostScenarios = 64;

/** Runs tests on the changed sources in a separate process; returns its exit code and output. */
export async function runPlanted(run: PlantedRun): Promise<{ readonly code: unknown; readonly output: string }> {
  const child = spawn(
    process.execPath,
    [
      path.join(root, 'test', 'helpers', 'planted-run.mjs'),
      JSON.stringify({ ...run, from: patternOf(run.from).source }),
    ],
    {
      cwd: root,
      env: {
        ...process.env,
        TRIBUTARY_CHAOS: '',
        // a test that selects cases would find a defect in some runs only
        TRIBUTARY_TEST_WHOLE: '1',
        TRIBUTARY_TEST_SEED: run.seed === undefined ? '' : String(run.seed),
        TRIBUTARY_TEST_SIMULATOR_SEEDS: String(mostScenarios),
        TRIBUTARY_TEST_SIMULATOR_ABOUT: run.about ?? '',
        TRIBUTARY_TEST_SCENARIO: '',
        NO_COLOR: '1',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  return { code, output: `${stdout}${stderr}` };
}
