import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import process from 'node:process';
import { text } from 'node:stream/consumers';

const root = path.resolve(import.meta.dirname, '..', '..');

/** A defect, and the tests that have to notice it. */
export interface PlantedRun {
  /** Source file, relative to the root of the repository. */
  readonly file: string;
  /** A text that stands in it once, and what takes its place. */
  readonly from: string;
  readonly to: string;
  /** The test file, relative to `test/`, and a pattern of the titles that are run; all without one. */
  readonly test: string;
  readonly name?: string;
  /** Seed of the simulator's first scenario. */
  readonly seed?: number;
  /** What the simulator's scenarios surely have in them. */
  readonly about?: 'copies';
}

/**
 * A pattern of a piece of code, however it is laid out: white space, and the comma before a closing bracket, are the
 * formatter's.
 */
export function patternOf(code: string): RegExp {
  const tokens = code.match(/\w+|'[^']*'|`[^`]*`|\S/g) ?? [];
  const parts = tokens.map((token, index) => {
    const escaped = token.replaceAll(/[.*+?^${}()|[\]\\/]/g, String.raw`\$&`);
    return index === 0 ? escaped : `${/^[)\]}]$/.test(token) ? ',?' : ''}\\s*${escaped}`;
  });
  return new RegExp(parts.join(''), 'g');
}

/** How often a piece of code stands in a text. */
export function countCode(source: string, code: string): number {
  return source.match(patternOf(code))?.length ?? 0;
}

/**
 * Played until one tells: a seed that told at once may not any more when the sources change, as then other chances fall
 * to each step.
 */
const mostScenarios = 64;

/** Runs tests on the planted sources in a process of their own; returns its exit code and what it printed. */
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
        // what takes turns would notice a defect in some runs only
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
