import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { listLog } from '../../src/lake/log/log-files.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openTable } from '../../src/lake/log/table.ts';
import { repairLake } from '../../src/lake/repair/repair-lake.ts';
import { openDuckdb, type Duckdb } from '../../src/lake/sql/duckdb.ts';
import { eraseEvents } from '../../src/operate/erase/erase.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { readFeed, type Feed } from '../helpers/feed.ts';
import { testFolder } from '../helpers/folder.ts';
import { eventLine, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { waitFor } from '../helpers/wait.ts';

const histories = chaosFigure('TRIBUTARY_TEST_FEED_HISTORIES', { short: 1, long: 20 });
/** Readers in each history, each with a place of its own. */
const chainsEach = 500;
const rounds = chaosFigure('TRIBUTARY_TEST_FEED_ROUNDS', { short: 14, long: 40 });
const seed = chaosSeed();
const hourMs = 3_600_000;
const retentionMs = 2 * hourMs;
const users = 8;

/** A reader that asks again and again what came since it asked last. */
interface Chain {
  since: string | undefined;
  readonly seen: Set<string>;
  calls: number;
}

/** A service's lake whose time and work a test decides. */
async function openHistory(random: Random, duckdb: Duckdb) {
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const clock = { now: Date.UTC(2026, 0, 1), nowMs: () => clock.now };
  const start = () => startTestCompact(folder, stream, { clock, retentionMs, sealAgeMs: hourMs, checkpointEvery: 4 });
  let compact = await start();
  const ids = new Map<string, string>();
  const erased = new Set<string>();
  /** Versions of which nothing is in the log any more. */
  let trimmed = 0;

  async function publish(): Promise<void> {
    const lines = Array.from({ length: random.integer(1, 6) }, () =>
      // Some are late, by years.
      eventLine({
        event_time: Math.floor(clock.now / 1000) - random.pick([0, 0, 90_000, 40_000_000]),
        received_at: clock.now,
        custom_user_id: `user ${random.integer(1, users)}`,
      }),
    );
    for (const line of lines) ids.set(String(line['event_id']), String(line['custom_user_id']));
    stream.publish(lines);
    await waitFor('the events are stored', async () => {
      const totals = (await readSnapshot(table)).lake?.totals;
      return (totals?.stored ?? 0) + (totals?.erased ?? 0) === ids.size;
    });
    clock.now += random.integer(1, 60_000);
  }

  const actions: Readonly<Record<string, () => Promise<void>>> = {
    publish,
    async 'seal and trim'() {
      await publish();
      clock.now += random.pick([hourMs, 30 * hourMs]);
      const { version } = await readSnapshot(table);
      await waitFor('the young rows are sealed', async () => (await readSnapshot(table)).version > version);
      trimmed = (await listLog(table)).commits[0] ?? 0;
    },
    async restart() {
      await compact.stop();
      compact = await start();
    },
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
      for (const [id, of] of ids) if (of === user) erased.add(id);
    },
    async 'a clock ahead, and its repair'() {
      const right = clock.now;
      clock.now += 30 * 24 * hourMs;
      for (let n = random.integer(1, 3); n > 0; n -= 1) await publish();
      const ahead = clock.now - right - 30 * 24 * hourMs;
      clock.now = right + ahead + random.integer(0, hourMs);
      if (random.chance(0.5)) await publish();
      await repairLake({ lakeDir, duckdb, clock, crashPoint: noCrashPoint });
    },
  };
  return { table, actions, ids, erased, trimmed: () => trimmed, stop: () => compact.stop() };
}

/** Asks for what came since each of the chains' last calls; those with the same place get the same answer. */
async function advance(table: string, chains: readonly Chain[]): Promise<void> {
  const answers = new Map<string | undefined, Promise<Feed>>();
  for (const chain of chains) {
    const answer = answers.get(chain.since) ?? readFeed(table, chain.since);
    answers.set(chain.since, answer);
    const { ids, next } = await answer;
    for (const id of ids) {
      expect(chain.seen.has(id), `${id} was given before ${chain.since}`).toBe(false);
      chain.seen.add(id);
    }
    chain.since = next;
    chain.calls += 1;
  }
}

async function playHistory(random: Random, duckdb: Duckdb) {
  const history = await openHistory(random, duckdb);
  onTestFinished(() => history.stop());
  const { table, actions, ids, erased } = history;
  const chains: Chain[] = Array.from({ length: chainsEach }, () => ({ since: undefined, seen: new Set(), calls: 0 }));
  const names = Object.keys(actions);
  const done = new Map<string, number>();
  for (let round = 0; round < rounds; round += 1) {
    const name = random.chance(0.5) ? 'publish' : random.pick(names);
    await actions[name]?.();
    done.set(name, (done.get(name) ?? 0) + 1);
    await advance(
      table,
      chains.filter(() => random.chance(0.1)),
    );
  }
  await advance(table, chains);
  const all = new Set((await readFeed(table, undefined)).ids);
  expect(all).toEqual(new Set([...ids.keys()].filter((id) => !erased.has(id))));
  for (const { seen } of chains) {
    for (const id of all) expect(seen.has(id), `${id} was given to nobody`).toBe(true);
    for (const id of seen) expect(all.has(id) || erased.has(id), `${id} is nobody's`).toBe(true);
  }
  return {
    rows: ids.size,
    erased: erased.size,
    calls: chains.reduce((sum, { calls }) => sum + calls, 0),
    trimmed: history.trimmed(),
  };
}

test(
  'Chains of change feeds through late events, seals, erasures, trimmed logs, restarts and repairs of the clock give each row once, and miss none',
  async () => {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    onTestFinished(() => duckdb.close());
    const random = createRandom(seed);
    const sum = { rows: 0, erased: 0, calls: 0, trimmed: 0 };
    for (let n = 0; n < histories; n += 1) {
      const played = await playHistory(random, duckdb);
      for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += played[name];
    }
    expect(sum.calls).toBeGreaterThan(histories * chainsEach);
    recordFinding({
      promise: 'P4',
      what: 'chains of change feeds',
      wanted: 'each row once, none missing',
      figures: { histories, chains: histories * chainsEach, ...sum },
      reached: true,
      seed,
      again: `make chaos PART=change-feed SEED=${seed}`,
    });
  },
  histories * 200_000,
);
