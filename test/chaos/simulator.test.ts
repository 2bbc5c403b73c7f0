import { expect, test, vi } from 'vitest';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { simulate } from '../simulator/simulate.ts';

vi.mock('node:fs/promises', async () => (await import('../simulator/file-system.ts')).fileSystem);
vi.mock('node:fs', async (importOriginal) => ({ ...(await importOriginal<object>()), createReadStream: (await import('../simulator/file-system.ts')).createReadStream }));
vi.mock('node:timers/promises', async () => ({ setTimeout: (await import('../simulator/timers.ts')).setTimeout }));
vi.mock('../../src/runtime/lock.ts', async () => await import('../simulator/locks.ts'));
vi.mock('node:crypto', async (importOriginal) => ({ ...(await importOriginal<object>()), ...(await import('../simulator/chance.ts')) }));
vi.mock('../../src/lake/duckdb.ts', async (importOriginal) => ({ ...(await importOriginal<object>()), openDuckdb: (await import('../simulator/engine.ts')).openSimulatedDuckdb }));

const scenarios = chaosFigure('TRIBUTARY_TEST_SIMULATOR_SEEDS', { short: 30, long: 3000 });
const steps = 1500;
const seed = chaosSeed();

test(`${scenarios} scenarios`, async () => {
  let failed = 0;
  for (let n = 0; n < scenarios; n += 1) {
    const a = Date.now();
    try {
      await simulate({ play: 'lake', seed: seed + n, steps });
    } catch (error) { failed += 1; process.stderr.write(`FAILED ${String((error as Error).message)}\n\n`); }
    process.stderr.write(`${seed+n} ${Date.now()-a}\n`); }
  expect(failed).toBe(0);
}, 10_000_000);
