import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createRandom } from '../../src/demo/random.ts';
import { createDisk } from './disk.ts';
import { playJobs } from './job-scenario.ts';
import { playLake, type About } from './lake-scenario.ts';
import { createWorld, inWorld, type World } from './world.ts';

/** A scenario: its kind, seed and number of steps. A failing one becomes a fixture. */
export interface Scenario {
  readonly play: keyof typeof plays;
  readonly seed: number;
  readonly steps: number;
  /** Condition that surely occurs; otherwise the seed decides. */
  readonly about?: About;
}

const plays = { lake: playLake, jobs: playJobs } as const satisfies Record<
  string,
  (world: World, steps: number, about?: About) => Promise<Readonly<Record<string, number>>>
>;

/** A folder in memory if the user may write to it; the simulated disk decides what is durable. */
const base = isWritable('/dev/shm') ? '/dev/shm' : tmpdir();

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** A failed scenario: the violation, the last events, and the command that plays it again. */
export class ScenarioFailed extends Error {
  constructor(scenario: Scenario, world: World, cause: unknown) {
    const what = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    super(
      `${JSON.stringify(scenario)}: ${what}\n${world.trace().join('\n')}\nagain: TRIBUTARY_TEST_SCENARIO='${JSON.stringify(scenario)}' make chaos PART=simulator`,
    );
    this.name = 'ScenarioFailed';
  }
}

/** Result of a scenario. */
export interface Played {
  /** Hash of all events. */
  readonly fingerprint: string;
  /** How often each thing happened. */
  readonly figures: Readonly<Record<string, number>>;
}

/** Plays a scenario. Throws `ScenarioFailed`. */
export async function simulate(scenario: Scenario): Promise<Played> {
  const root = mkdtempSync(path.join(base, 'tributary-simulator-'));
  const world = createWorld(scenario.seed, createDisk(root), createRandom(scenario.seed).pick([1, 5, 20]));
  try {
    const figures = await inWorld(world, () => plays[scenario.play](world, scenario.steps, scenario.about));
    return { fingerprint: world.fingerprint(), figures };
  } catch (error) {
    throw new ScenarioFailed(scenario, world, error);
  } finally {
    world.end();
    rmSync(root, { recursive: true, force: true });
  }
}
