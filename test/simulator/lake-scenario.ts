import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import type { Random } from '../../src/cli/demo/random.ts';
import { startCompact, type Compact, type CompactOptions } from '../../src/compact/compact.ts';
import { describeError, isAppError } from '../../src/runtime/errors.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { createBroker, type Broker } from './broker.ts';
import { createLakeJudge, Violation, type LakeJudge } from './lake-judge.ts';
import { newestCommit } from './lake-look.ts';
import { createLedger, type Ledger } from './ledger.ts';
import type { Process, World } from './world.ts';

/** How often each thing happens in a scenario, as a share of its steps; 0: not at all. */
interface Rates {
  readonly send: number;
  readonly kill: number;
  readonly stop: number;
  readonly pause: number;
  readonly rival: number;
  readonly cut: number;
  readonly faults: number;
  readonly away: number;
  readonly restart: number;
  readonly loss: number;
  readonly clock: number;
  readonly look: number;
}

interface Compactor {
  readonly process: Process;
  readonly spoolDir: string;
  compact: Compact | undefined;
  isStopping: boolean;
}

/** What goes on in a scenario. */
interface Play {
  readonly world: World;
  readonly broker: Broker;
  readonly ledger: Ledger;
  readonly judge: LakeJudge;
  readonly lakeDir: string;
  readonly options: Omit<CompactOptions, 'spoolDir' | 'withoutLock'>;
  readonly compactors: Set<Compactor>;
  /** A second compactor has run at some time, or a power cut has come: errors of one fenced or swept are its due. */
  disturbances: number;
  violation: unknown;
  started: number;
  cuts: number;
  alarms: number;
  /** The broker has lost what the lake's own position shows. */
  isAlarmDue: boolean;
}

/** Steps after the last fault within which the lake must have everything. */
const settleSteps = 20_000;
/** Rounds of a hundred steps within which a start has to put right what ends of processes have left. */
const tidyRounds = 50;
const quiet: Rates = { send: 0, kill: 0, stop: 0, pause: 0, rival: 0, cut: 0, faults: 0, away: 0, restart: 0, loss: 0, clock: 0, look: 0.02 };

function chooseRates(random: Random): Rates {
  const maybe = (share: number, rate: number): number => (random.chance(share) ? rate * (0.3 + random.next()) : 0);
  return {
    send: 0.02 + 0.06 * random.next(),
    kill: maybe(0.7, 0.004),
    stop: maybe(0.3, 0.002),
    pause: maybe(0.4, 0.004),
    rival: maybe(0.4, 0.003),
    cut: maybe(0.6, 0.005),
    faults: maybe(0.4, 0.004),
    away: maybe(0.4, 0.002),
    restart: maybe(0.5, 0.003),
    loss: maybe(0.5, 0.006),
    clock: maybe(0.4, 0.002),
    look: 0.02,
  };
}

/** An end that is nobody's fault: fenced by a rival, or given an error by the simulator. Any other end is a finding. */
function isDue(play: Play, { process }: Compactor, error: unknown): boolean {
  // A checkpoint that cannot be read for a moment is told as loudly as one that is damaged.
  if (isAppError(error, 'corrupt')) return String(error.cause).includes('simulated');
  if (isAppError(error, 'lake_protocol')) return false;
  if (!isAppError(error) && !(error instanceof Error && 'code' in error)) return false;
  return process.faults > 0 || play.disturbances > 0 || isAppError(error, 'broker_away');
}

function startCompactor(play: Play, withoutLock: boolean): Compactor {
  const { world, broker, lakeDir, options } = play;
  play.started += 1;
  const name = `compactor ${play.started}`;
  const spoolDir = path.join(path.dirname(lakeDir), withoutLock ? `spool-${play.started}` : 'spool');
  const destination = { write: (line: string) => {
    const { msg, fault, level } = JSON.parse(line) as { msg: string; fault?: string; level: number };
    world.note(`${name}: ${msg}${fault === undefined ? '' : ` (${fault})`}`);
    if (level >= 50 && fault !== undefined) play.alarms += 1;
  } };
  const logger = pino({ level: 'info', base: null }, destination);
  const process = world.start(name, async () => {
    try {
      compactor.compact = await startCompact({ reader: broker.reader, clock: world.clock, metrics: createMetrics(), logger }, { ...options, spoolDir, withoutLock });
      await compactor.compact.failed;
    } catch (error) {
      if (process.dead) return;
      world.note(`${name} ends: ${describeError(error)}`);
      if (!compactor.isStopping && !isDue(play, compactor, error)) play.violation ??= new Violation(`${name} ended without a cause: ${describeError(error)}\n${String((error as Error).stack)}`);
      if (!compactor.isStopping) end(play, compactor);
    }
  });
  const compactor: Compactor = { process, spoolDir, compact: undefined, isStopping: false };
  play.compactors.add(compactor);
  return compactor;
}

function end(play: Play, compactor: Compactor): void {
  play.compactors.delete(compactor);
  play.world.kill(compactor.process);
}

/** SIGTERM: the compactor ends by itself, or is killed before. */
function stop(play: Play, compactor: Compactor): void {
  const { compact, process } = compactor;
  if (compact === undefined || compactor.isStopping) return;
  compactor.isStopping = true;
  play.world.note(`${process.name} is told to stop`);
  play.world.signal(process, () => compact.stop().then(() => end(play, compactor), (error: unknown) => {
    play.violation ??= new Violation(`a stop failed: ${describeError(error)}`);
  }));
}

function cutPower(play: Play): void {
  const { world, broker, judge } = play;
  for (const compactor of play.compactors) end(play, compactor);
  world.note('the power fails');
  world.disk.cut(world.random);
  broker.restart();
  judge.afterCut();
  play.cuts += 1;
  play.disturbances += 1;
}

async function loseMessages(play: Play): Promise<void> {
  const { world, broker, judge, lakeDir } = play;
  const { random } = world;
  const { messages, lastSequence } = broker;
  const kind = random.pick(['truncate', 'truncate', 'lose', 'recreate'] as const);
  const from = kind === 'truncate' ? Math.max(0, lastSequence - random.integer(1, 4)) : kind === 'lose' ? random.pick([...messages, { sequence: lastSequence }]).sequence : 0;
  const lost = messages.filter(({ sequence }) => (kind === 'lose' ? sequence === from : sequence > from));
  await judge.beforeLoss(lost.map(({ payload }) => payload));
  const { isDurable } = await judge.look();
  const epoch = newestCommit(lakeDir)?.lake.epoch;
  if (isDurable && epoch !== undefined && (kind === 'recreate' || (kind === 'truncate' && from < epoch.position))) play.isAlarmDue = true;
  if (kind === 'truncate') broker.truncate(from);
  else if (kind === 'lose') broker.lose(from);
  else broker.recreate();
}

/** Things that happen between two steps. */
async function disturb(play: Play, rates: Rates): Promise<void> {
  const { world, broker } = play;
  const { random } = world;
  const any = (): Compactor | undefined => (play.compactors.size === 0 ? undefined : random.pick([...play.compactors]));
  if (random.chance(rates.send)) play.ledger.send();
  if (random.chance(rates.kill)) {
    const victim = any();
    if (victim !== undefined) end(play, victim);
  }
  if (random.chance(rates.stop)) {
    const stopped = any();
    if (stopped !== undefined) stop(play, stopped);
  }
  if (random.chance(rates.pause)) {
    const paused = any();
    if (paused !== undefined) paused.process.stoppedUntilMs = world.nowMs() + random.integer(10, 10_000);
  }
  if (random.chance(rates.rival) && play.compactors.size < 3) {
    play.disturbances += 1;
    startCompactor(play, true);
  }
  if (random.chance(rates.cut)) cutPower(play);
  if (random.chance(rates.faults)) world.faultRate = random.chance(0.6) ? 0 : random.pick([0.01, 0.05, 0.3]);
  if (random.chance(rates.away)) broker.goAway(random.integer(1, 3000));
  if (random.chance(rates.restart)) broker.restart();
  if (random.chance(rates.loss)) await loseMessages(play);
  if (random.chance(rates.clock)) world.stepClock(random.pick([-3_600_000, -10_000, -500, 500, 10_000, 3_600_000]));
  if (random.chance(rates.look)) await play.judge.look();
  if (play.compactors.size === 0) startCompactor(play, false);
}

async function run(play: Play, rates: Rates, isDone: () => boolean, steps: number): Promise<boolean> {
  for (let step = 0; step < steps; step += 1) {
    if (isDone()) return true;
    await disturb(play, rates);
    await play.world.step();
    if (play.violation !== undefined) throw play.violation;
  }
  return isDone();
}

/** The lake has followed the stream to its end. */
function hasFollowed({ broker, lakeDir, ledger }: Play): boolean {
  const epoch = newestCommit(lakeDir)?.lake.epoch;
  const last = broker.messages.at(-1);
  return ledger.isQuiet() && epoch !== undefined && last !== undefined && epoch.anchorHash !== undefined && epoch.position === last.sequence && epoch.position === broker.lastSequence;
}

/**
 * Plays a scenario of stream and lake: `steps` steps with whatever may go wrong, then quiet, until the lake has everything.
 * Returns how often what came about. Throws what did not hold.
 */
export async function playLake(world: World, steps: number): Promise<Readonly<Record<string, number>>> {
  const { random } = world;
  const lakeDir = path.join(world.disk.root, 'lake');
  const flaky = random.pick([0, 0.02, 0.2]);
  const broker = createBroker(world, flaky);
  const ledger = createLedger(world, broker);
  const sealAgeMs = random.pick([200, 1000, 5000]);
  const options = {
    lakeDir,
    flushAgeMs: random.pick([5, 50, 300]),
    flushMaxBytes: random.pick([2000, 1 << 26]),
    flushMaxRows: random.pick([5, 250_000]),
    sealAgeMs,
    sealMaxBytes: random.pick([8000, 1 << 27]),
    retentionMs: random.pick([2000, 20_000]),
    duckdbMemoryMb: 256,
    checkpointEvery: random.pick([2, 5, 20]),
  };
  mkdirSync(lakeDir);
  const play: Play = { world, broker, ledger, judge: createLakeJudge(world, ledger, lakeDir), lakeDir, options, compactors: new Set(), disturbances: 0, violation: undefined, started: 0, cuts: 0, alarms: 0, isAlarmDue: false };
  await run(play, chooseRates(random), () => false, steps);

  world.note('no more faults');
  world.faultRate = 0;
  broker.calm();
  for (const compactor of play.compactors) end(play, compactor);
  await run(play, quiet, () => ledger.isQuiet(), settleSteps);
  ledger.send();
  if (!(await run(play, quiet, () => hasFollowed(play), settleSteps))) throw new Violation('the lake does not follow the stream to its end');
  for (let round = 0; round < tidyRounds && (await play.judge.findUntidy()).length > 0; round += 1) await run(play, quiet, () => false, 100);
  for (const compactor of play.compactors) stop(play, compactor);
  await run(play, quiet, () => play.compactors.size === 0, settleSteps);
  await play.judge.judgeEnd(play.alarms);
  if (play.isAlarmDue && play.alarms === 0) throw new Violation('the broker has lost messages at the position of the lake, and no alarm was raised');
  return { operations: world.operations(), events: ledger.sent.reduce((sum, { ids, badIds }) => sum + ids.length + badIds.length, 0), commits: newestCommit(lakeDir)?.version ?? 0, compactors: play.started, powerCuts: play.cuts, alarms: play.alarms };
}
