import type { Random } from '../../src/demo/random.ts';
import { endCompactor, startCompactor, stopCompactor, type SimulatedCompactor, type Play } from './compactors.ts';
import { commitForeign, startRepair } from './foreign-engine.ts';
import { newestCommit } from './lake-look.ts';
import { loseLocks, removeLockFiles } from './locks.ts';
import type { World } from './world.ts';

/** Frequency of each disturbance in a scenario, as a share of its steps; 0: never. */
export interface Rates {
  readonly send: number;
  readonly kill: number;
  readonly stop: number;
  readonly pause: number;
  readonly rival: number;
  /** Removes the lock files and starts a second compactor, as an operator would. */
  readonly unlock: number;
  /** Suspends a compactor until another one has its lock, and resumes it later. */
  readonly stale: number;
  readonly cut: number;
  readonly faults: number;
  /** Makes the engine run out of memory, or restores its memory. */
  readonly memory: number;
  readonly away: number;
  readonly restart: number;
  readonly loss: number;
  readonly clock: number;
  /** Sets the clock far ahead or back: by more than a day, or by more than a year. */
  readonly leap: number;
  /** Runs no compactor for a time in which clients retry, and for one more day. */
  readonly backlog: number;
  /** Commits to the table from another engine. */
  readonly foreign: number;
  /** Repairs the lake as an operator, whether needed or not; the repair may be killed. */
  readonly repair: number;
  readonly look: number;
}

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

export const quiet: Rates = {
  send: 0,
  kill: 0,
  stop: 0,
  pause: 0,
  rival: 0,
  unlock: 0,
  stale: 0,
  cut: 0,
  faults: 0,
  memory: 0,
  away: 0,
  restart: 0,
  loss: 0,
  clock: 0,
  leap: 0,
  backlog: 0,
  foreign: 0,
  repair: 0,
  look: 0.02,
};

/** Chooses the disturbances of a scenario. */
export function chooseRates(random: Random): Rates {
  const maybe = (share: number, rate: number): number => (random.chance(share) ? rate * (0.3 + random.next()) : 0);
  return {
    send: 0.02 + 0.06 * random.next(),
    kill: maybe(0.7, 0.004),
    stop: maybe(0.3, 0.002),
    pause: maybe(0.4, 0.004),
    rival: maybe(0.4, 0.003),
    unlock: maybe(0.3, 0.003),
    stale: maybe(0.3, 0.003),
    cut: maybe(0.6, 0.005),
    faults: maybe(0.4, 0.004),
    memory: maybe(0.5, 0.012),
    away: maybe(0.4, 0.002),
    restart: maybe(0.5, 0.003),
    loss: maybe(0.5, 0.006),
    clock: maybe(0.4, 0.002),
    leap: maybe(0.3, 0.004),
    backlog: maybe(0.3, 0.006),
    foreign: maybe(0.3, 0.005),
    repair: maybe(0.4, 0.006),
    look: 0.02,
  };
}

/** Cuts the power: every process of every folder ends, and the disk keeps the durable state. */
export function cutPower(plays: readonly Play[]): void {
  const [{ world }] = plays as readonly [Play, ...Play[]];
  for (const play of plays) {
    for (const compactor of play.compactors) endCompactor(play, compactor);
    for (const process of play.repairs) world.kill(process);
  }
  world.note('the power fails');
  world.disk.cut(world.random);
  for (const play of plays) {
    play.broker.restart();
    play.judge.afterCut();
    play.disturbances += 1;
  }
}

/** Loses messages of the broker. Returns whether the service must report it because the lake's position shows it. */
export async function loseMessages({ world, broker, judge, lakeDir }: Play): Promise<boolean> {
  const { random } = world;
  const { messages, lastSequence } = broker;
  const kind = random.pick(['truncate', 'truncate', 'lose', 'recreate'] as const);
  // Half the time, messages before the lake's position are lost too: the next messages reuse sequences that the lake
  // has seen.
  const end = random.chance(0.5)
    ? Math.min(lastSequence, newestCommit(lakeDir)?.lake.epoch?.position ?? lastSequence)
    : lastSequence;
  const from =
    kind === 'truncate'
      ? Math.max(0, end - random.integer(1, 4))
      : kind === 'lose'
        ? random.pick([...messages, { sequence: lastSequence }]).sequence
        : 0;
  const lost = messages.filter(({ sequence }) => (kind === 'lose' ? sequence === from : sequence > from));
  await judge.beforeLoss(lost.map(({ payload }) => payload));
  const { isDurable } = await judge.look();
  const epoch = newestCommit(lakeDir)?.lake.epoch;
  const isAlarmDue =
    isDurable && epoch !== undefined && (kind === 'recreate' || (kind === 'truncate' && from < epoch.position));
  world.count(isAlarmDue ? 'lossesBehindThePosition' : 'otherLosses');
  if (kind === 'truncate') broker.truncate(from);
  else if (kind === 'lose') broker.lose(from);
  else broker.recreate();
  return isAlarmDue;
}

function changeMemory({ world }: Play): void {
  const { random, memory } = world;
  memory.rewriteRows = random.chance(0.4) ? Infinity : random.integer(1, 12);
  memory.flushRows = random.chance(0.7) ? Infinity : random.integer(2, 20);
  memory.checkpointRows = random.chance(0.7) ? Infinity : random.integer(10, 30);
  world.note(
    `the engine's memory takes ${memory.rewriteRows} rows of a rewrite, ${memory.flushRows} of a flush, ${memory.checkpointRows} of a checkpoint`,
  );
}

/** Suspends a compactor until its lock has expired, and starts another one that takes over. */
function outliveLease(play: Play, compactor: SimulatedCompactor): void {
  const { world } = play;
  compactor.process.stoppedUntilMs = world.nowMs() + world.random.integer(500, 20_000);
  world.note(`${compactor.process.name} is suspended and loses its locks`);
  world.count('lostLeases');
  loseLocks(compactor.process);
  play.disturbances += 1;
  play.judge.leaseLost();
  startCompactor(play);
}

/** Fills the stream while no compactor runs; the next one starts a day later. */
function buildBacklog(play: Play): void {
  const { world } = play;
  for (const compactor of play.compactors) endCompactor(play, compactor);
  world.count('backlogs');
  for (let n = 0; n < 4; n += 1) play.ledger.send();
  play.downUntil = world.operations() + world.random.integer(10, 100);
  play.stepBeforeStartMs = world.random.pick([0, 25 * hourMs, 30 * hourMs]);
}

/** Starts an operator's repair, or kills a running one. */
export function repair(play: Play): void {
  for (const process of play.repairs) if (process.dead) play.repairs.delete(process);
  if (play.repairs.size === 0) play.repairs.add(startRepair(play));
  else if (play.world.random.chance(0.5)) for (const process of play.repairs) play.world.kill(process);
}

/** Disturbs the processes, the machine and the broker of one folder between two steps. */
export async function disturb(play: Play, rates: Rates): Promise<void> {
  const { world, broker } = play;
  const { random } = world;
  const someone = (rate: number, happen: (compactor: SimulatedCompactor) => void): void => {
    if (random.chance(rate) && play.compactors.size > 0) happen(random.pick([...play.compactors]));
  };
  if (random.chance(rates.send)) play.ledger.send();
  someone(rates.kill, (victim) => endCompactor(play, victim));
  someone(rates.stop, (stopped) => stopCompactor(play, stopped));
  someone(rates.pause, ({ process }) => void (process.stoppedUntilMs = world.nowMs() + random.integer(10, 10_000)));
  if (random.chance(rates.rival) && play.compactors.size < 3) {
    play.disturbances += 1;
    startCompactor(play, true);
  }
  if (random.chance(rates.unlock) && play.compactors.size < 3) {
    play.disturbances += 1;
    world.count('removedLocks');
    removeLockFiles();
    startCompactor(play);
  }
  someone(play.compactors.size < 3 ? rates.stale : 0, (compactor) => outliveLease(play, compactor));
  if (random.chance(rates.faults)) world.faultRate = random.chance(0.6) ? 0 : random.pick([0.01, 0.05, 0.3]);
  if (random.chance(rates.memory)) changeMemory(play);
  if (random.chance(rates.away)) broker.goAway(random.integer(1, 3000));
  if (random.chance(rates.restart)) broker.restart();
  if (random.chance(rates.clock)) world.stepClock(random.pick([-hourMs, -10_000, -500, 500, 10_000, hourMs]));
  if (random.chance(rates.leap)) leap(world, random.pick([-400 * dayMs, -26 * hourMs, 26 * hourMs, 400 * dayMs]));
  if (random.chance(rates.backlog)) buildBacklog(play);
  if (random.chance(rates.foreign)) await commitForeign(play);
  if (random.chance(rates.repair)) repair(play);
}

function leap(world: World, byMs: number): void {
  world.count('clockLeaps');
  world.stepClock(byMs);
}

/** Starts a compactor if none runs, as the supervisor does. */
export function keepRunning(play: Play): void {
  if (play.compactors.size > 0 || play.world.operations() < play.downUntil) return;
  if (play.stepBeforeStartMs !== 0) play.world.stepClock(play.stepBeforeStartMs);
  play.stepBeforeStartMs = 0;
  startCompactor(play);
}
