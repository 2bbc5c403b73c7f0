import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { startJobRunner, type JobRunner } from '../../src/export/jobs/scheduler.ts';
import { isExpired, isInProgress, type ReportJob } from '../../src/reports/reports.ts';
import { openReportStore, type ReportStore, startSweeper } from '../../src/reports/store.ts';
import { describeError } from '../../src/runtime/errors.ts';
import { Violation } from './lake-judge.ts';
import { contentFor, runInWorker, workers } from './worker.ts';
import type { Process, World } from './world.ts';

interface ExportProcess {
  readonly process: Process;
  open: { readonly store: ReportStore; readonly runner: JobRunner } | undefined;
  /** Whether each request of earlier processes was read, or found unreadable. */
  isRead: boolean;
}

interface Play {
  readonly world: World;
  readonly reportsDir: string;
  /** Requests acknowledged to a client, by id. */
  readonly created: Map<
    number,
    { /** The earliest time of day since its creation. */ earliestMs: number; end?: ReportJob }
  >;
  /** The latest time of day of the clock so far. */
  latestMs: number;
  current: ExportProcess | undefined;
  asked: number;
  starts: number;
  cuts: number;
  violation: unknown;
}

const linkTtlSeconds = 3600;
const settleSteps = 20_000;
const limits = { maxRows: 1, maxBytes: 1, singleFileMaxBytes: 1, partMaxBytes: 1, memoryMb: 1, threads: 1 };

function assert(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Violation(what);
}

function start(play: Play): void {
  const { world, reportsDir } = play;
  const logger = pino({ level: 'silent' });
  play.starts += 1;
  const process = world.start(`export ${play.starts}`, async () => {
    try {
      const store = await openReportStore(world.clock, logger, { reportsDir, linkTtlSeconds, readFirst: 2 });
      const access = {
        current: () => ({
          appsOfAccount: () => [],
          findApp: () => undefined,
          findAppByToken: () => undefined,
          findUsersByName: () => [],
          hasPasswords: false,
          nameAppOfToken: () => 'none' as const,
          findUser: (idUser: string) => ({
            idUser,
            name: idUser,
            idAccount: 1,
            secret: 's',
            canExport: true,
            maxExports: undefined,
            files: 'auto' as const,
            isOperator: false,
          }),
        }),
        mayMissApps: () => false,
        mayMissUsers: () => false,
        problems: () => [],
        onChange: () => () => undefined,
        close: () => undefined,
      };
      const runner = startJobRunner(
        {
          store,
          access,
          clock: world.clock,
          logger,
          runAttempt: runInWorker,
          onEnd: () => undefined,
          onDamage: () => undefined,
        },
        {
          workers: 2,
          timeoutMs: 600_000,
          lakeDir: reportsDir,
          segmentsDir: reportsDir,
          titlesDir: reportsDir,
          retentionMs: 0,
          limits,
        },
      );
      startSweeper(store, world.clock, logger);
      opened.open = { store, runner };
      await store.load(new AbortController().signal, () => runner.wake());
      opened.isRead = true;
    } catch (error) {
      world.note(`${process.name} ends: ${describeError(error)}`);
      if (process.faults === 0) play.violation ??= error;
      end(play);
    }
  });
  const opened: ExportProcess = { process, open: undefined, isRead: false };
  play.current = opened;
}

/** Ends the export process; its workers continue for a while. */
function end(play: Play): void {
  if (play.current !== undefined) play.world.kill(play.current.process);
  play.current = undefined;
}

function ask(play: Play): void {
  const { world, current } = play;
  const open = current?.open;
  if (current === undefined || open === undefined) return;
  play.asked += 1;
  const text = `request ${play.asked}`;
  world.signal(current.process, async () => {
    const created = await open.store
      .create({ idUser: '1', idAccount: 1, event: 'customEvents', request: { text, idApp: [] } })
      .catch(() => undefined);
    if (created === undefined) return;
    if (play.created.has(created.id)) play.violation ??= new Violation(`id ${created.id} is given out again`);
    play.created.set(created.id, { earliestMs: created.createdMs });
    open.runner.wake();
  });
}

/** Asserts that each acknowledged request exists, ended at most once, and has a complete result. */
async function look({ world, reportsDir, created, current, latestMs }: Play): Promise<void> {
  if (current?.open === undefined) return;
  const { store } = current.open;
  const read = new Set(store.list().map(({ id }) => id));
  for (const [id, known] of created) {
    // Reading makes it durable, as for a client. An unreadable one is left for later: it exists, and the log names it.
    const job = read.has(id) ? await store.find(id) : undefined;
    if (
      job === undefined &&
      (!current.isRead || current.process.faults > 0) &&
      existsSync(path.join(reportsDir, String(id), 'job.json'))
    )
      continue;
    if (job === undefined) {
      // It may have ended and been deleted between two checks.
      assert(
        latestMs >= known.earliestMs + linkTtlSeconds * 1000 - 1000,
        `request ${id} was acknowledged and is missing`,
      );
      created.delete(id);
      continue;
    }
    if (known.end !== undefined)
      assert(JSON.stringify(job) === JSON.stringify(known.end), `request ${id} has ended twice`);
    if (isInProgress(job)) continue;
    known.end = job;
    if (job.state !== 'success' || isExpired(job, world.clock.nowMs())) continue;
    const names = readdirSync(path.join(reportsDir, String(id), 'parts'));
    assert(
      names.join() === (job.files ?? []).map(({ name }) => name).join(),
      `request ${id} has the files ${names.join()}`,
    );
    for (const { name, sha256 } of job.files ?? []) {
      const bytes = readFileSync(path.join(reportsDir, String(id), 'parts', name));
      assert(
        bytes.toString() === contentFor(job.request) && createHash('sha256').update(bytes).digest('hex') === sha256,
        `request ${id}: the result is not whole`,
      );
    }
  }
}

async function disturb(play: Play, rate: number): Promise<void> {
  const { world } = play;
  const { random } = world;
  if (random.chance(0.03 * Math.sign(rate))) ask(play);
  if (random.chance(0.01 * rate)) end(play);
  if (random.chance(0.02 * rate) && workers.size > 0) world.kill(random.pick([...workers.keys()]));
  if (random.chance(0.003 * rate)) {
    for (const worker of workers.keys()) world.kill(worker);
    end(play);
    world.note('the power fails');
    world.disk.cut(random);
    play.cuts += 1;
  }
  if (random.chance(0.004 * rate)) world.faultRate = random.chance(0.6) ? 0 : random.pick([0.01, 0.1]);
  if (random.chance(0.003 * rate)) world.stepClock(random.pick([-600_000, 600_000, 4_000_000]));
  if (random.chance(0.01 * rate) && play.current?.open !== undefined && play.created.size > 0) {
    const [{ process, open }, id] = [play.current, random.pick([...play.created.keys()])];
    world.signal(process, () => open?.runner.cancel(id).catch(() => undefined) ?? Promise.resolve());
  }
  const nowMs = world.clock.nowMs();
  play.latestMs = Math.max(play.latestMs, nowMs);
  for (const known of play.created.values()) known.earliestMs = Math.min(known.earliestMs, nowMs);
  if (random.chance(0.05)) await look(play);
  // A worker exits when it notices that its parent has exited.
  for (const [worker, parent] of workers) if (parent?.dead === true && random.chance(0.05)) world.kill(worker);
  if (play.current === undefined) start(play);
}

async function run(play: Play, rate: number, isDone: () => boolean, steps: number): Promise<boolean> {
  for (let step = 0; step < steps && !isDone(); step += 1) {
    await disturb(play, rate);
    await play.world.step();
    if (play.violation !== undefined) throw play.violation;
  }
  return isDone();
}

function assertTidy({ reportsDir, created }: Play): void {
  for (const name of readdirSync(reportsDir, { recursive: true, encoding: 'utf8' })) {
    assert(!name.endsWith('.tmp') && !name.includes('attempt-'), `left over: ${name}`);
    const id = Number(name.split('/')[0]);
    if (name.endsWith('/parts')) assert(created.get(id)?.end?.state !== 'failed', `left over: ${name}`);
  }
}

/**
 * Plays a scenario of export requests: created, run by workers, killed, cancelled, ended, and deleted after their links
 * have expired. Returns how often each thing happened. Throws the first violation.
 */
export async function playJobs(world: World, steps: number): Promise<Readonly<Record<string, number>>> {
  workers.clear();
  const play: Play = {
    world,
    reportsDir: path.join(world.disk.root, 'reports'),
    created: new Map(),
    latestMs: 0,
    current: undefined,
    asked: 0,
    starts: 0,
    cuts: 0,
    violation: undefined,
  };
  await run(play, 0.5 + world.random.next(), () => false, steps);
  world.note('end of faults');
  world.faultRate = 0;
  end(play);
  const isOver = (): boolean =>
    play.current?.isRead === true &&
    play.current.open?.store.list().every((job) => !isInProgress(job)) === true &&
    workers.size === 0;
  assert(await run(play, 0, isOver, settleSteps), 'requests stay in progress');
  await look(play);
  // One more start must remove what the ended processes have left.
  end(play);
  assert(await run(play, 0, () => isOver(), settleSteps), 'requests stay in progress');
  await look(play);
  assertTidy(play);
  world.stepClock(2 * linkTtlSeconds * 1000);
  const isEmpty = (): boolean => play.current?.isRead === true && play.current.open?.store.count() === 0;
  assert(await run(play, 0, isEmpty, settleSteps), 'ended requests are not deleted');
  const left = readdirSync(play.reportsDir).filter((name) => name !== 'highest-id');
  assert(left.length === 0, `left over after the links ended: ${left.join(', ')}`);
  return { operations: world.operations(), requests: play.asked, starts: play.starts, powerCuts: play.cuts };
}
