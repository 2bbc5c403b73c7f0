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

/** A data folder and its copies. */
interface Plays {
  readonly original: Play;
  readonly copies: Play[];
  /** The first step at which the folder may be copied, and whether a rewrite must be in progress; undefined: never. */
  readonly copied: { readonly from: number; readonly inRewrite: boolean } | undefined;
  cuts: number;
  /** Whether the broker has lost messages that the lake's position shows. */
  isAlarmDue: boolean;
}

/** Condition that a scenario is made to meet. `copies`: the folder is copied during a rewrite. */
export type About = 'copies';

/** Steps after the last fault within which the lake must have everything. */
const settleSteps = 100_000;
/** Rounds of a hundred steps within which a start must remove what ended processes have left. */
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

/** Reports whether the lake has committed the whole stream. */
function hasFollowed({ broker, lakeDir, ledger }: Play): boolean {
  const last = broker.messages.at(-1);
  // cheap checks first: this runs after each step
  if (!ledger.isQuiet() || last === undefined || last.sequence !== broker.lastSequence) return false;
  const epoch = newestCommit(lakeDir)?.lake.epoch;
  return epoch?.anchorHash !== undefined && epoch.position === last.sequence;
}

/** Ends all faults. A suspended process may still resume, and memory may stay too small for a seal. */
function calm(plays: Plays): void {
  const { world } = plays.original;
  world.note('end of faults');
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

/** Reports whether a running compactor reports another engine's commits. */
function tellsOfForeign({ compactors }: Play): boolean {
  return [...compactors].some(
    ({ compact, isStopping }) =>
      !isStopping && JSON.stringify(compact?.facts()['problems'] ?? []).includes('another engine'),
  );
}

/** If another engine has changed a table, asserts that a compactor reports it, and repairs it as an operator. */
async function repairAll(plays: Plays): Promise<void> {
  for (const play of all(plays)) {
    for (const process of play.repairs) play.world.kill(process);
    play.repairs.clear();
    if (!(await isForeign(play))) continue;
    if (!(await run(plays, quiet, () => tellsOfForeign(play), settleSteps)))
      throw new Violation("no compactor reports another engine's commit");
    repair(play);
    await run(plays, quiet, () => [...play.repairs].every(({ dead }) => dead), settleSteps);
    if (await isForeign(play)) throw new Violation("the table is still another engine's after a repair");
  }
}

/** Waits until every lake is idle, and checks it. */
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
    // A compactor sweeps once, at its start: leftovers since then are removed at the next start.
    for (const compactor of play.compactors) endCompactor(play, compactor);
    await isTidy();
  }
  for (const play of all(plays)) {
    play.downUntil = Infinity;
    for (const compactor of play.compactors) {
      // A formerly suspended one may still be starting: a signal ends it at once.
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
 * Plays a scenario of stream and lake: `steps` steps with faults, then none until the lake has everything. Returns how
 * often each thing happened. Throws the first violation.
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
