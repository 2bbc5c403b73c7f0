import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test, vi } from 'vitest';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { inTurn } from '../helpers/in-turn.ts';
import type { Semaphores } from '../simulator/semaphores.ts';
import { simulate, type Scenario } from '../simulator/simulate.ts';

// All modules through which the tested code reaches the outside; a scenario decides what they return.
vi.mock('node:fs/promises', async () => (await import('../simulator/file-system.ts')).fileSystem);
vi.mock('node:fs', async (importOriginal) => ({
  ...(await importOriginal<object>()),
  createReadStream: (await import('../simulator/file-system.ts')).createReadStream,
}));
vi.mock('node:timers/promises', async () => ({ setTimeout: (await import('../simulator/timers.ts')).setTimeout }));
vi.mock('node:timers', async (importOriginal) => ({
  ...(await importOriginal<object>()),
  setTimeout: (await import('../simulator/timers.ts')).startTimer,
  clearTimeout: (await import('../simulator/timers.ts')).clearTimer,
}));
vi.mock('node:crypto', async (importOriginal) => ({
  ...(await importOriginal<object>()),
  ...(await import('../simulator/chance.ts')),
}));
vi.mock('../../src/runtime/async/semaphore.ts', async (importOriginal) =>
  (await import('../simulator/semaphores.ts')).ofProcesses(await importOriginal<Semaphores>()),
);
vi.mock('../../src/runtime/files/lock.ts', () => import('../simulator/locks.ts'));
vi.mock('../../src/lake/sql/duckdb.ts', async (importOriginal) => ({
  ...(await importOriginal<object>()),
  openDuckdb: (await import('../simulator/engine.ts')).openSimulatedDuckdb,
}));

/** Returns the number of scenarios of a kind. */
const scenariosOf = (short: number): number => chaosFigure('TRIBUTARY_TEST_SIMULATOR_SEEDS', { short, long: 200 });
/** The short run is the same every time; the long one uses new seeds. */
const seed = isLongRun ? chaosSeed() : Number(process.env['TRIBUTARY_TEST_SEED'] || 1);
/** A start of the compactor takes up to 400 steps. */
const stepsOf = { lake: 2400, jobs: 800 } as const;
/** The short run ends with the first failing scenario. */
const mostFailures = isLongRun ? Infinity : 1;
const fixtures = path.resolve(import.meta.dirname, '../fixtures/simulator');
/** Condition that the short run's scenarios meet; a planted defect sets it if few scenarios would find it. */
const about = process.env['TRIBUTARY_TEST_SIMULATOR_ABOUT']
  ? { about: process.env['TRIBUTARY_TEST_SIMULATOR_ABOUT'] as NonNullable<Scenario['about']> }
  : {};
const named = process.env['TRIBUTARY_TEST_SCENARIO'];

function readFixture(name: string): Scenario {
  return JSON.parse(readFileSync(path.join(fixtures, name), 'utf8')) as Scenario;
}

test.runIf(named)(
  'The scenario named by TRIBUTARY_TEST_SCENARIO holds',
  async () => {
    const played = await simulate(JSON.parse(named ?? '') as Scenario);
    process.stderr.write(`fingerprint ${played.fingerprint}, ${JSON.stringify(played.figures)}\n`);
    expect(played.fingerprint).toBeDefined();
  },
  600_000,
);

/** The first scenario of the lake, which was played twice and need not be played again. */
const twice = { key: '', played: undefined as Awaited<ReturnType<typeof simulate>> | undefined };

async function playOnce(scenario: Scenario): Promise<Awaited<ReturnType<typeof simulate>>> {
  return twice.played !== undefined && twice.key === JSON.stringify(scenario) ? twice.played : simulate(scenario);
}

test('Two runs of a scenario are the same to the last call', async ({ skip }) => {
  inLongForm(skip);
  const scenario: Scenario = { play: 'lake', seed, steps: stepsOf.lake };
  const played = await simulate(scenario);
  expect(await simulate(scenario)).toEqual(played);
  Object.assign(twice, { key: JSON.stringify(scenario), played });
}, 120_000);

test.for(inTurn(readdirSync(fixtures), 7))(
  'A scenario that once failed holds: %s',
  { timeout: 120_000 },
  async (name) => {
    await expect(simulate(readFixture(name))).resolves.toBeDefined();
  },
);

const runs = [
  {
    play: 'lake',
    scenarios: scenariosOf(1),
    promise: 'P4',
    what: 'simulated stream and lake',
    wanted: 'any faults of broker, disk and clock: every acknowledged event once, complete commits, nothing left over',
  },
  {
    play: 'jobs',
    scenarios: scenariosOf(2),
    promise: 'P10',
    what: 'simulated export requests',
    wanted: 'any kills and failures: every acknowledged request kept, one end, a complete result, nothing left over',
  },
] as const;

test.for(runs)(
  `The ${isLongRun ? 'long' : 'short'} run of $what holds in $scenarios scenarios`,
  { timeout: 60_000 + Math.max(...runs.map(({ scenarios }) => scenarios)) * 40_000 },
  async ({ play, scenarios, promise, what, wanted }) => {
    const failures: Error[] = [];
    const counts: Record<string, number> = {};
    for (let n = 0; n < scenarios && failures.length < mostFailures; n += 1) {
      try {
        const { figures } = await playOnce({ play, seed: seed + n, steps: stepsOf[play], ...about });
        for (const [name, value] of Object.entries(figures)) counts[name] = (counts[name] ?? 0) + value;
      } catch (error) {
        process.stderr.write(`${String(error)}\n`);
        failures.push(error as Error);
      }
    }
    recordFinding({
      promise,
      what,
      wanted,
      figures: { scenarios, failedScenarios: failures.length, ...counts },
      reached: failures.length === 0,
      ...(failures.length === 0
        ? {}
        : { shortfall: `${failures.length} scenarios failed; each prints the command that repeats it` }),
      seed,
      again: `make chaos PART=simulator SEED=${seed}`,
    });
    expect(failures[0]).toBeUndefined();
  },
);
