import { once } from 'node:events';
import path from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import type { Compactor } from '../../src/compact/wait-for-repair.ts';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { listLog } from '../../src/lake/log/log-files.ts';
import { changeSteps } from '../../src/lake/files/change.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openTable } from '../../src/lake/log/table.ts';
import { repairLake } from '../../src/lake/repair/repair-lake.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../src/admin/erase/erase.ts';
import { noCrashPoint, type CrashPoint } from '../../src/runtime/crash-point.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { openFeed, readFeed, type FeedChain } from '../helpers/feed.ts';
import { testFolder } from '../helpers/folder.ts';
import { inTurn, oneTestIn } from '../helpers/in-turn.ts';
import { eventLine, readTotals, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { waitFor } from '../helpers/wait.ts';

beforeEach(oneTestIn(2));

const histories = chaosFigure('TRIBUTARY_TEST_FEED_HISTORIES', { short: 1, long: 20 });
/** Maximum number of further histories while none has tested a watermark. */
const moreHistories = 5;
/** Readers of each history, each with its own cursor. */
const chainsEach = Number(process.env['TRIBUTARY_TEST_FEED_CHAINS'] ?? 500);
const rounds = chaosFigure('TRIBUTARY_TEST_FEED_ROUNDS', { short: 8, long: 40 });
const seed = chaosSeed();
const hourMs = 3_600_000;
const retentionMs = 2 * hourMs;
const users = 8;

/** Steps at which a compactor is killed: in a flush it never continues, in a seal it exits. */
const killSteps = {
  flush: ['flush-spooled', 'flush-converted', 'flush-written', 'flush-committed', 'flush-settled', 'flush-purged'],
  seal: ['change-written', 'file-linked', 'files-linked', 'change-committed', 'change-followed'],
};

/** A clock that a test sets, and that records its highest value. */
function createSetClock(startMs: number) {
  let now = startMs;
  let highest = startMs;
  return {
    get now() {
      return now;
    },
    set now(ms) {
      now = ms;
      highest = Math.max(highest, ms);
    },
    get highest() {
      return highest;
    },
    nowMs: () => now,
  };
}

/** An event as its client knows it. */
interface SentEvent {
  readonly user: string;
  /** The highest value of the broker's clock at its acknowledgement, Unix milliseconds. */
  readonly acknowledgedMs: number;
}

/** Lets readers query during an action. */
type Look = () => Promise<void>;

/** The lake of a service, with its time and work under control of the test. */
async function openHistory(random: Random, duckdb: Duckdb) {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const clock = createSetClock(Date.UTC(2020, 0, 1));
  const stream = createMemoryStream(clock);
  const options = { clock, retentionMs, sealAgeMs: hourMs, checkpointEvery: 4, withoutLock: true };
  /** Killed compactors stay suspended until the end. */
  const killed: Compactor[] = [];
  const ending = new AbortController();
  const ended = once(ending.signal, 'abort');
  let doom = { step: '', isMet: false };

  async function start(): Promise<Compactor> {
    const own = { step: '', isMet: false };
    const crashPoint: CrashPoint = async (step) => {
      if (!own.isMet && step !== own.step) return;
      own.isMet = true;
      // A compactor that is suspended in a seal would keep the lock of the table.
      if ([own.step, step].every((each) => killSteps.flush.includes(each))) await ended;
      throw new Error('killed');
    };
    const spoolDir = path.join(folder, `spool-${killed.length}`);
    const compactor = await startTestCompact(folder, stream, { ...options, crashPoint, spoolDir });
    doom = own;
    return compactor;
  }

  let compactor = await start();
  const ids = new Map<string, SentEvent>();
  const erased = new Set<string>();
  /** The oldest version that the log still has. */
  let trimmed = 0;

  function send(): void {
    const lines = Array.from({ length: random.integer(1, 6) }, () =>
      // Some are late, by years.
      eventLine({
        event_time: Math.floor(clock.now / 1000) - random.pick([0, 0, 90_000, 40_000_000]),
        received_at: clock.now,
        custom_user_id: `user ${random.integer(1, users)}`,
      }),
    );
    stream.publish(lines);
    for (const line of lines)
      ids.set(String(line['event_id']), { user: String(line['custom_user_id']), acknowledgedMs: clock.highest });
  }

  async function waitUntilStored(): Promise<void> {
    await waitFor('the events are stored', async () => {
      const totals = await readTotals(lakeDir);
      return (totals?.stored ?? 0) + (totals?.erased ?? 0) === ids.size;
    });
    clock.now += random.integer(1, 60_000);
  }

  async function publish(): Promise<void> {
    send();
    await waitUntilStored();
  }

  /** Kills the compactor at a step; another one takes over. */
  async function kill(steps: readonly string[], bringAbout: () => void): Promise<void> {
    const { step } = Object.assign(doom, { step: random.pick(steps) });
    const own = doom;
    bringAbout();
    await waitFor(`the compactor has come to ${step}`, () => own.isMet);
    if (killSteps.flush.includes(step)) killed.push(compactor);
    else await compactor.stop();
    compactor = await start();
  }

  /**
   * Sets the clock ahead of all rows. A compactor that has read rows of the future defers them by its own measured
   * time, so another one continues.
   */
  async function overtakeRows(): Promise<void> {
    const { lake } = await readSnapshot(table);
    clock.now = Math.max(clock.now, lake?.availableAtMs ?? 0);
    await restart();
  }

  async function restart(): Promise<void> {
    await compactor.stop();
    compactor = await start();
  }

  /** Publishes a bad event: its flush advances the available time and adds no row. */
  async function publishFaulty(): Promise<void> {
    const failed = (await readSnapshot(table)).lake?.totals.failed ?? 0;
    stream.publish([{ ...eventLine(), event_time: 'never' }]);
    await waitFor('the event has failed', async () => (await readSnapshot(table)).lake?.totals.failed === failed + 1);
    clock.now += random.integer(1, 60_000);
  }

  const repair = (crashPoint: CrashPoint) => repairLake({ lakeDir, duckdb, clock, crashPoint });

  const actions: Readonly<Record<string, (look: Look) => Promise<void>>> = {
    publish,
    'publish what fails': publishFaulty,
    async 'seal and trim'() {
      await overtakeRows();
      await publish();
      const { version } = await readSnapshot(table);
      clock.now += 30 * hourMs;
      await waitFor('young rows are sealed', async () => (await readSnapshot(table)).version > version);
      trimmed = (await listLog(table)).commits[0] ?? 0;
    },
    async 'kill in a flush'(look) {
      await kill(killSteps.flush, send);
      await look();
      await waitUntilStored();
    },
    async 'kill in a seal'(look) {
      await overtakeRows();
      await publish();
      await kill(killSteps.seal, () => void (clock.now += 30 * hourMs));
      await look();
    },
    async 'set the clock back'(look) {
      clock.now -= random.integer(1, 5 * hourMs);
      if (random.chance(0.5)) await look();
      await publish();
    },
    restart,
    async erase() {
      const user = `user ${random.integer(1, users)}`;
      const dependencies = {
        table: await openTable(table, { clock, crashPoint: noCrashPoint }),
        lakeDir,
        duckdb,
        clock,
        crashPoint: noCrashPoint,
        publisher: stream.publisher,
        signal: new AbortController().signal,
      };
      await eraseEvents(dependencies, { users: [user] }, { retentionMs });
      for (const [id, sent] of ids) if (sent.user === user) erased.add(id);
    },
    async 'a clock ahead, and its repair'(look) {
      const right = clock.now;
      clock.now += 30 * 24 * hourMs;
      for (let n = random.integer(1, 4); n > 0; n -= 1) {
        await (random.chance(0.4) ? publishFaulty() : publish());
        await look();
      }
      const ahead = clock.now - right - 30 * 24 * hourMs;
      clock.now = right + ahead + random.integer(0, hourMs);
      if (random.chance(0.5)) await publish();
      const interfere: CrashPoint = async () => {
        if (random.chance(0.2)) await (random.chance(0.5) ? publishFaulty() : publish());
        if (random.chance(0.3)) await look();
        if (random.chance(0.05)) throw new Error('killed');
      };
      await repair(interfere).catch((error: unknown) => {
        if (!(error instanceof Error) || error.message !== 'killed') throw error;
      });
      await look();
      await repair(noCrashPoint);
    },
  };
  return {
    table,
    clock,
    actions,
    publish,
    publishFaulty,
    repair,
    ids,
    erased,
    trimmed: () => trimmed,
    stop: async (): Promise<void> => {
      ending.abort();
      for (const each of [...killed, compactor]) await each.stop();
    },
  };
}

type History = Awaited<ReturnType<typeof openHistory>>;

/**
 * Reads the change feed of each chain up to one version. All events up to the returned watermark must have been
 * delivered.
 */
async function advance({ table, ids, erased }: History, chains: readonly FeedChain[]): Promise<number> {
  const answer = await openFeed(table);
  const place = chains[0]?.since;
  for (const chain of chains) {
    const came = await answer.since(chain.since);
    const doubled = came.filter((id) => chain.seen.has(id));
    expect(doubled, `rows that were given before ${chain.since}`).toEqual([]);
    for (const id of came) chain.seen.add(id);
    chain.since = answer.next;
    chain.calls += 1;
  }
  const { watermarkMs = 0 } = answer;
  const due = [...ids].filter(([id, { acknowledgedMs }]) => acknowledgedMs < watermarkMs && !erased.has(id));
  const early = chains.flatMap(({ seen }) => due.filter(([id]) => !seen.has(id)));
  expect(early, `events that are not there before the watermark ${watermarkMs}`).toEqual([]);
  await answer.compareWithExport(place);
  return due.length;
}

async function playHistory(random: Random, duckdb: Duckdb) {
  const history = await openHistory(random, duckdb);
  onTestFinished(() => history.stop());
  const { table, actions, ids, erased } = history;
  const chains: FeedChain[] = Array.from({ length: chainsEach }, () => ({
    since: undefined,
    seen: new Set(),
    calls: 0,
  }));
  const names = Object.keys(actions);
  let beforeWatermarks = 0;
  for (let round = 0; round < rounds; round += 1) {
    const name = random.chance(0.5) ? 'publish' : random.pick(names);
    const look = async (): Promise<void> => {
      const some = chains.filter(() => random.chance(0.1));
      beforeWatermarks += await advance(history, some);
    };
    await actions[name]?.(look);
    await look();
  }
  await advance(history, chains);
  const all = new Set((await readFeed(table, undefined)).ids);
  expect(all).toEqual(new Set([...ids.keys()].filter((id) => !erased.has(id))));
  for (const { seen } of chains) {
    expect([...all].filter((id) => !seen.has(id))).toEqual([]);
    expect([...seen].filter((id) => !all.has(id) && !erased.has(id))).toEqual([]);
  }
  return {
    rows: ids.size,
    erased: erased.size,
    calls: chains.reduce((sum, { calls }) => sum + calls, 0),
    beforeWatermarks,
    trimmed: history.trimmed(),
  };
}

test(
  'Chains of change feeds return each row once, miss none and match their watermarks through late events, seals, erasures, trimmed logs, kills and clock steps',
  async () => {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    onTestFinished(() => duckdb.close());
    const random = createRandom(seed);
    const sum = { rows: 0, erased: 0, calls: 0, beforeWatermarks: 0, trimmed: 0 };
    let played = 0;
    // If the clock jumps at once and is set back, no event is older than a watermark: then another history is played.
    for (; played < histories || (sum.beforeWatermarks === 0 && played < histories + moreHistories); played += 1) {
      const history = await playHistory(random, duckdb);
      for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += history[name];
    }
    expect(sum.calls).toBeGreaterThan(played * chainsEach);
    expect(sum.beforeWatermarks).toBeGreaterThan(0);
    recordFinding({
      promise: 'P4',
      what: 'chains of change feeds',
      wanted: 'each row once, none missing, none after the watermark',
      figures: { histories: played, chains: played * chainsEach, ...sum },
      reached: true,
      seed,
      again: `make chaos PART=change-feed SEED=${seed}`,
    });
  },
  histories * 200_000,
);

/** Follows a change feed from a cursor until it is empty. */
async function follow(table: string, place: string): Promise<string[]> {
  const { ids, next } = await readFeed(table, place);
  return ids.length === 0 ? [] : [...ids, ...(await follow(table, next))];
}

test('Rows committed after a flush without rows, by a clock that was ahead, are not missed when the clock is repaired', async () => {
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const { table, clock, publish, publishFaulty, repair, ids, stop } = await openHistory(createRandom(seed), duckdb);
  onTestFinished(stop);
  await publish();
  const had = new Set(ids.keys());
  const right = clock.now;
  clock.now += 30 * 24 * hourMs;
  await publishFaulty();
  const { next: empty } = await readFeed(table, undefined);
  await publish();
  clock.now = right + 60_000;
  await repair(noCrashPoint);
  const after = [...ids.keys()].filter((id) => !had.has(id));
  expect((await follow(table, empty)).toSorted()).toEqual(after.toSorted());
});

const repairs = changeSteps.flatMap((step) => [false, true].map((isKilled) => [step, isKilled] as const));

test.each(inTurn(repairs, 6))(
  'Rows that are flushed at the step %s of a repair of the clock are returned once, the repair killed there: %s',
  async (at, isKilled) => {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    onTestFinished(() => duckdb.close());
    const { table, clock, publish, repair, ids, stop } = await openHistory(createRandom(seed), duckdb);
    onTestFinished(stop);
    await publish();
    const right = clock.now;
    clock.now += 30 * 24 * hourMs;
    await publish();
    const places = [await readFeed(table, undefined)];
    clock.now = right + 60_000;
    let isDone = false;
    const interfere: CrashPoint = async (step) => {
      if (step !== at || isDone) return;
      isDone = true;
      places.push(await readFeed(table, undefined));
      await publish();
      places.push(await readFeed(table, undefined));
      if (isKilled) throw new Error('killed');
    };
    const end = await repair(interfere).catch((error: Error) => error.message);
    expect(end === 'killed').toBe(isKilled);
    places.push(await readFeed(table, undefined));
    await publish();
    await repair(noCrashPoint);
    places.push(await readFeed(table, undefined));
    for (const { ids: had, next } of places) {
      const missing = [...ids.keys()].filter((id) => !had.includes(id));
      expect((await follow(table, next)).toSorted(), next).toEqual(missing.toSorted());
    }
  },
);
