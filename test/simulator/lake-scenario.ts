import { mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { Random } from '../../src/demo/random.ts';
import { createBroker } from './broker.ts';
import { endCompactor, stopCompactor, type Play } from './compactors.ts';
import { copyFolder } from './copied-folder.ts';
import {
  chooseRates,
  cutPower,
  disturb,
  keepRunning,
  loseMessages,
  quiet,
  repair,
  type Rates,
} from './disturbances.ts';
import { isForeign } from './foreign-engine.ts';
import { createLakeJudge, Violation } from './lake-judge.ts';
import { newestCommit } from './lake-look.ts';
import { createLedger } from './ledger.ts';
import type { World } from './world.ts';

/** A data folder, and the copies that were made of it. */
interface Plays {
  readonly original: Play;
  readonly copies: Play[];
  /** The step from which on the folder is copied, and whether a rewrite has to be under way; undefined: never. */
  readonly copied: { readonly from: number; readonly inRewrite: boolean } | undefined;
  cuts: number;
  /** The broker has lost what the lake's own position shows. */
  isAlarmDue: boolean;
}

/** What a scenario can be asked to have: `copies`: the folder is copied in the midst of a rewrite. */
export type About = 'copies';

/** Steps after the last fault within which the lake must have everything. */
const settleSteps = 20_000;
/** Rounds of a hundred steps within which a start has to put right what ends of processes have left. */
const tidyRounds = 50;

const all = ({ original, copies }: Plays): Play[] => [original, ...copies];

function isCopyTime({ original, copies, copied }: Plays, step: number): boolean {
  if (copied === undefined || copies.length > 0 || step < copied.from) return false;
  return (
    !copied.inRewrite ||
    readdirSync(path.join(original.lakeDir), { recursive: true, encoding: 'utf8' }).some(
      (name) => name.startsWith('staging/') && name.endsWith('change.json'),
    )
  );
}

async function run(plays: Plays, rates: Rates, isDone: () => boolean, steps: number): Promise<boolean> {
  const { original, copies } = plays;
  const { world } = original;
  for (let step = 0; step < steps; step += 1) {
    if (isDone()) return true;
    await disturb(original, rates);
    for (const copy of copies) if (world.random.chance(rates.send / 2)) copy.ledger.send();
    if (rates !== quiet && isCopyTime(plays, step)) copies.push(copyFolder(original, copies.length + 1));
    if (world.random.chance(rates.cut)) {
      cutPower(all(plays));
      plays.cuts += 1;
    }
    if (world.random.chance(rates.loss) && (await loseMessages(original))) plays.isAlarmDue = true;
    if (world.random.chance(rates.look)) for (const play of all(plays)) await play.judge.look();
    for (const play of all(plays)) keepRunning(play);
    await world.step();
    const [trespass] = world.trespasses;
    if (trespass !== undefined) throw new Violation(trespass);
    for (const { violation } of all(plays)) if (violation !== undefined) throw violation;
  }
  return isDone();
}

/** The lake has followed the stream to its end. */
function hasFollowed({ broker, lakeDir, ledger }: Play): boolean {
  const last = broker.messages.at(-1);
  // what costs nothing to know first: this is asked after each step
  if (!ledger.isQuiet() || last === undefined || last.sequence !== broker.lastSequence) return false;
  const epoch = newestCommit(lakeDir)?.lake.epoch;
  return epoch?.anchorHash !== undefined && epoch.position === last.sequence;
}

/**
 * Nothing goes wrong any more; a process that stood still may wake up yet, and memory may stay short of what a seal
 * needs.
 */
function calm(plays: Plays): void {
  const { world } = plays.original;
  world.note('no more faults');
  world.faultRate = 0;
  Object.assign(world.memory, {
    flushRows: Infinity,
    checkpointRows: Infinity,
    ...(world.random.chance(0.7) ? { rewriteRows: Infinity } : {}),
  });
  for (const play of all(plays)) {
    play.broker.calm();
    play.downUntil = 0;
    for (const compactor of play.compactors)
      if (compactor.process.stoppedUntilMs <= world.nowMs() || world.random.chance(0.5)) endCompactor(play, compactor);
  }
}

/** Says whether a compactor at work tells of another engine's commits. */
function tellsOfForeign({ compactors }: Play): boolean {
  return [...compactors].some(
    ({ compact, isStopping }) =>
      !isStopping && JSON.stringify(compact?.facts()['problems'] ?? []).includes('another engine'),
  );
}

/** Where another engine has changed a table, a compactor tells of it while it stands, and an operator repairs it. */
async function repairAll(plays: Plays): Promise<void> {
  for (const play of all(plays)) {
    for (const process of play.repairs) play.world.kill(process);
    play.repairs.clear();
    if (!(await isForeign(play))) continue;
    if (!(await run(plays, quiet, () => tellsOfForeign(play), settleSteps)))
      throw new Violation("no compactor tells of another engine's commit");
    repair(play);
    await run(plays, quiet, () => [...play.repairs].every(({ dead }) => dead), settleSteps);
    if (await isForeign(play)) throw new Violation("the table is still another engine's after a repair");
  }
}

/** Lets every lake come to rest, and judges it. */
async function settle(plays: Plays): Promise<void> {
  const go = (isDone: () => boolean, steps = settleSteps): Promise<boolean> => run(plays, quiet, isDone, steps);
  await repairAll(plays);
  await go(() => all(plays).every(({ ledger }) => ledger.isQuiet()));
  for (const { ledger } of all(plays)) ledger.send();
  if (!(await go(() => all(plays).every(hasFollowed))))
    throw new Violation('the lake does not follow the stream to its end');
  for (const play of all(plays)) {
    const isTidy = async (): Promise<boolean> => {
      for (let round = 0; round < tidyRounds && (await play.judge.findUntidy()).length > 0; round += 1)
        await go(() => false, 100);
      return (await play.judge.findUntidy()).length === 0;
    };
    if (await isTidy()) continue;
    // A compactor sweeps once in its life: what another has left since goes with the next start.
    for (const compactor of play.compactors) endCompactor(play, compactor);
    await isTidy();
  }
  for (const play of all(plays)) {
    play.downUntil = Infinity;
    for (const compactor of play.compactors) {
      // One that stood still may be starting yet: a signal ends it at once.
      if (compactor.compact === undefined) endCompactor(play, compactor);
      else stopCompactor(play, compactor);
    }
  }
  if (!(await go(() => all(plays).every(({ compactors }) => compactors.size === 0))))
    throw new Violation('a compactor does not stop');
  for (const { judge, alarms } of all(plays)) await judge.judgeEnd(alarms);
}

function chooseOptions(random: Random): Omit<Play['options'], 'lakeDir'> {
  return {
    sealAgeMs: random.pick([200, 1000, 5000]),
    flushAgeMs: random.pick([5, 50, 300]),
    flushMaxBytes: random.pick([2000, 1 << 26]),
    flushMaxRows: random.pick([5, 250_000]),
    sealMaxBytes: random.pick([8000, 1 << 27]),
    retentionMs: random.pick([2000, 20_000]),
    duckdbMemoryMb: 256,
    checkpointEvery: random.pick([2, 5, 20]),
    keySliceRows: 4,
  };
}

function chooseCopy(random: Random, steps: number, about: About | undefined): Plays['copied'] {
  const copied = random.chance(0.5)
    ? { from: random.integer(steps >> 3, steps >> 1), inRewrite: random.chance(0.8) }
    : undefined;
  return about === 'copies' ? { from: copied?.from ?? steps >> 3, inRewrite: true } : copied;
}

/**
 * Plays a scenario of stream and lake: `steps` steps with whatever may go wrong, then quiet, until the lake has
 * everything. Returns how often what came about. Throws what did not hold.
 */
export async function playLake(world: World, steps: number, about?: About): Promise<Readonly<Record<string, number>>> {
  const { random } = world;
  const home = path.join(world.disk.root, 'original');
  const lakeDir = path.join(home, 'lake');
  const broker = createBroker(world, random.pick([0, 0.02, 0.2]));
  const ledger = createLedger(world, broker);
  mkdirSync(lakeDir, { recursive: true });
  world.disk.made(lakeDir);
  for (const folder of [world.disk.root, home]) world.disk.syncedFolder(folder);
  const judge = createLakeJudge({ world, ledger, broker, lakeDir });
  const original: Play = {
    world,
    broker,
    ledger,
    judge,
    home,
    lakeDir,
    options: { lakeDir, ...chooseOptions(random) },
    compactors: new Set(),
    repairs: new Set(),
    downUntil: 0,
    stepBeforeStartMs: 0,
    disturbances: 0,
    violation: undefined,
    started: 0,
    alarms: 0,
  };
  const plays: Plays = { original, copies: [], copied: chooseCopy(random, steps, about), cuts: 0, isAlarmDue: false };
  await run(plays, chooseRates(random), () => false, steps);
  calm(plays);
  await settle(plays);
  if (plays.isAlarmDue && original.alarms === 0)
    throw new Violation('the broker has lost messages at the position of the lake, and no alarm was raised');
  return {
    operations: world.operations(),
    events: ledger.sent.reduce(
      (sum, { requests }) =>
        requests.reduce((count, { names, badNames }) => count + names.length + badNames.length, sum),
      0,
    ),
    commits: newestCommit(lakeDir)?.version ?? 0,
    compactors: original.started,
    copiedFolders: plays.copies.length,
    powerCuts: plays.cuts,
    alarms: original.alarms,
    ...world.counts,
  };
}
