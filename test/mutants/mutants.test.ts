import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { expect, test } from 'vitest';
import { countCode, runPlanted } from '../helpers/planted.ts';
import { mutants } from './mutants.ts';

const root = path.resolve(import.meta.dirname, '..', '..');
/** Time within which a test should fail. */
const wantedMs = 60_000;
const isAsked = (process.env['TRIBUTARY_TEST_MUTANTS'] ?? '') !== '';

const sources = readdirSync(path.join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .map((name) => ({ file: path.join('src', name), code: readFileSync(path.join(root, 'src', name), 'utf8') }));

/** Returns the files that contain a piece of code, once per occurrence. */
function placesOf(text: string): string[] {
  return sources.flatMap(({ file, code }) => Array.from({ length: countCode(code, text) }, () => file));
}

test.for(Object.entries(mutants))(
  'The text of the mutant is in the sources once, and its test exists: %s',
  ([, mutant]) => {
    expect(placesOf(mutant.find), 'the source has changed: update the text of the mutant').toHaveLength(1);
    expect(existsSync(path.join(root, 'test', mutant.test))).toBe(true);
  },
);

test.runIf(isAsked).for([...new Set(Object.values(mutants).map((mutant) => mutant.test))])(
  'The test %s passes while no mutant is planted',
  { timeout: 4 * wantedMs },
  async (file) => {
    const { code, output } = await runPlanted({ file: 'none.ts', from: '', to: '', test: file });
    expect(code, output).toBe(0);
  },
);

test.runIf(isAsked).for(Object.entries(mutants))(
  'A test fails with the mutant planted: %s',
  { timeout: 4 * wantedMs },
  async ([what, { find, replace, test: file }]) => {
    const begunMs = performance.now();
    const { code, output } = await runPlanted({ file: placesOf(find)[0] ?? '', from: find, to: replace, test: file });
    const tookMs = performance.now() - begunMs;
    expect(code, output).not.toBe(0);
    const failed = [...output.matchAll(/^.*FAIL\s+(.*)$/gm)].map(([, title = '']) => title);
    process.stderr.write(`mutant: ${what}: ${Math.round(tookMs / 100) / 10} s, ${failed.join('; ')}\n`);
    expect(failed.length, output).toBeGreaterThan(0);
    expect(tookMs).toBeLessThan(wantedMs);
  },
);
