import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { openReader } from '../../src/stream/reader.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { countStored, publishEvents, waitForAll } from '../helpers/compact-process.ts';
import { importEvent } from '../helpers/every-place.ts';
import { send, targetOf } from '../helpers/export-area.ts';
import { createExportClient, exportQuery } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { startTestCompact } from '../helpers/lake.ts';
import { createLedger } from '../helpers/ledger.ts';
import { sendLoad } from '../helpers/load.ts';
import { startTestNats } from '../helpers/nats.ts';
import { startWithUser } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';

/*
 * Wall clocks are set forwards and backwards: by an operator, by NTP, by a suspended machine. Promises in hours (links,
 * duplicates, ages) must hold, and values that only grow (available_at) must not decrease.
 */
const seed = chaosSeed();
const hour = 3600;
const linkTtlSeconds = 1800;
/** Offsets of the service's clock at each start, seconds; keys are repeated within a day of their first use. */
const offsets = isLongRun
  ? [0, hour, 0, 23 * hour, 22 * hour, 1, 23 * hour, 5 * hour, 4 * hour + 1, 23 * hour, 48 * hour]
  : [0, 23 * hour, 22 * hour, 48 * hour];
const liveSteps = chaosFigure('TRIBUTARY_TEST_CLOCK_STEPS', { short: 3, long: 60 });
const again = `make chaos PART=clock-steps SEED=${seed}`;

/** Reads the `available_at` of a lake's commits, oldest first. */
function readAvailableAt(lakeDir: string): number[] {
  const folder = path.join(lakeDir, 'events', '_delta_log');
  const commits = readdirSync(folder)
    .filter((name) => /^\d{20}\.json$/.test(name))
    .toSorted();
  return commits.map((name) =>
    Number(/"availableAtMs":(\d+)/.exec(readFileSync(path.join(folder, name), 'utf8'))?.[1] ?? Number.NaN),
  );
}

/** Returns a query for every custom event up to the present day of a clock. */
function queryUpTo(nowMs: number): string {
  const day = (days: number): string => new Date(nowMs + days * 86_400_000).toISOString().slice(0, 10);
  return exportQuery('eventId,eventName', { dateFrom: day(-4), dateTo: day(0) });
}

function expectNeverBack(times: readonly number[]): void {
  expect(times.length).toBeGreaterThan(0);
  expect(times.filter((time, index) => !(time >= (times[index - 1] ?? 0)))).toEqual([]);
}

test(
  `A service whose clock differs at each of ${offsets.length} starts expires its links on time, drops repeats and loses nothing`,
  async ({ skip }) => {
    inLongForm(skip);
    const random = createRandom(seed);
    const dataDir = path.join(testFolder(), 'data');
    const settings = {
      TRIBUTARY_QUOTA_USER: 'off',
      TRIBUTARY_QUOTA_IP: 'off',
      TRIBUTARY_FLUSH_AGE_MS: '200',
      TRIBUTARY_SEAL_AGE_MS: String(hour * 500),
      TRIBUTARY_LINK_TTL_SECONDS: String(linkTtlSeconds),
      TRIBUTARY_LOG_LEVEL: 'warn',
    };
    const { service, token, user } = await startWithUser({ dataDir, settings });
    const analyst = createExportClient(service, user);
    const ledger = createLedger('clock');
    const keys = Array.from({ length: 10 }, () => ledger.nextId());
    const links: { target: string; expiresMs: number; over: boolean }[] = [];
    let [looks, endedLinks, rows] = [0, 0, 0];
    for (const [index, offset] of offsets.entries()) {
      if (index > 0) {
        await service.stop();
        await service.startAgain({ TRIBUTARY_CLOCK_OFFSET_SECONDS: String(offset) });
      }
      const nowMs = (): number => Date.now() + offset * 1000;
      if (offset < 24 * hour) {
        for (const key of keys) await importEvent(service, token, { key, name: key, user: 'steady' });
        ledger.record(keys, 'acknowledged');
      }
      await sendLoad(ledger, 300, {
        s2s: () => service.s2s,
        idApp: 1,
        token,
        random,
        clients: 4,
        idempotencyKeys: true,
      });
      await waitUntilWorkedOff(service);
      expectNeverBack(readAvailableAt(path.join(dataDir, 'lake')));

      // an earlier link: rejected after its end, and also once expired, regardless of later clock steps
      for (const link of links) {
        const { status } = await send(Number(new URL(service.api).port), link.target);
        const isOver = nowMs() > link.expiresMs + 1000;
        looks += 1;
        const allowed = isOver ? [403] : link.over ? [200, 403, 404] : [200];
        expect(allowed, `a link that ends in ${Math.round((link.expiresMs - nowMs()) / 1000)} s`).toContain(status);
        if (isOver) endedLinks += 1;
        link.over ||= isOver;
      }
      const id = await analyst.create(queryUpTo(nowMs()));
      const data = await analyst.waitForEnd(id ?? '');
      expect(data.status).toBe('Success!');
      // while the clock is set back, events of the then next day are not among those up to today
      rows = data.files?.[0]?.rows ?? 0;
      const [file] = data.files ?? [];
      const expiresMs = Number(file?.timestampExpires) * 1000;
      expect(Math.abs(expiresMs - nowMs() - linkTtlSeconds * 1000)).toBeLessThan(60_000);
      links.push({ target: targetOf(file?.link ?? ''), expiresMs, over: false });
    }
    expect(rows).toBe(ledger.totals().acknowledged);
    await waitFor(
      'the files of expired requests were removed',
      () =>
        readdirSync(path.join(dataDir, 'reports'), { recursive: true }).filter((name) =>
          /\.csv(\.gz)?$/.test(String(name)),
        ).length === 1,
    );
    await service.stop();
    const { results, totals } = await balanceAccounts(dataDir, [ledger]);
    // an event whose response was lost is sent again, and is a duplicate
    expect(totals.repeats).toBeGreaterThanOrEqual(
      keys.length * (offsets.filter((offset) => offset < 24 * hour).length - 1),
    );
    recordFinding({
      promise: 'P11',
      what: 'clock set forwards a day and backwards an hour between starts',
      wanted: 'links refused from their end on, available_at never back, repeats within a day stored once, 0 lost',
      figures: {
        starts: offsets.length,
        looksAtLinks: looks,
        linksFoundEnded: endedLinks,
        repeatsDropped: totals.repeats,
        events: results[0]?.stored ?? 0,
        lostEvents: 0,
        doubledEvents: 0,
      },
      reached: true,
      seed,
      again,
    });
  },
  60_000 + offsets.length * 30_000,
);

test(
  `A compactor whose clock jumps ${liveSteps} times while it runs continues to flush, seal and clean up, and its available_at never decreases`,
  async () => {
    const random = createRandom(seed);
    const folder = testFolder();
    const nats = await startTestNats();
    onTestFinished(() => nats.stop());
    const publisher = openPublisher(await nats.connect());
    const reader = await openReader(await nats.connect());
    let offsetMs = 0;
    const clock = { nowMs: () => Date.now() + offsetMs };
    const compactor = await startTestCompact(folder, reader, {
      clock,
      sealAgeMs: 300,
      retentionMs: 2000,
      checkpointEvery: 10,
    });
    onTestFinished(() => compactor.stop());
    const ids = new Set<string>();
    const seen: number[] = [];
    const jumpsMs = [hour, -hour, 24 * hour, -24 * hour, 7 * 24 * hour, 1, -1].map((seconds) => seconds * 1000);
    for (let step = 0; step < liveSteps; step += 1) {
      offsetMs += random.pick(jumpsMs);
      for (let n = 0; n < 4; n += 1) await publishEvents(publisher, ids, { received_at: clock.nowMs() });
      await waitFor('the events are in the lake', async () => (await countStored(folder)) === ids.size);
      seen.push(...readAvailableAt(path.join(folder, 'lake')).slice(-1));
    }
    await waitForAll(folder, ids);
    // a clock long before the rows of the lake: they wait for their seal from the time of their first read, not until
    // the clock has reached them
    offsetMs = -30 * 24 * hour * 1000;
    await publishEvents(publisher, ids, {});
    await waitFor('the events are in the lake', async () => (await countStored(folder)) === ids.size);
    await waitFor(
      'what is due is sealed',
      async () => (await readSnapshot(path.join(folder, 'lake', 'events'))).files.every((file) => !file.young),
      60_000,
    );
    await waitForAll(folder, ids);
    expectNeverBack(seen);
    // the clock is the only problem, and it is reported
    expect(compactor.facts()['problems']).toEqual([
      {
        code: 'clock_behind_lake',
        message: expect.stringContaining("ahead of this machine's clock") as string,
        action: expect.stringContaining('tributary lake repair') as string,
      },
    ]);
    expect(compactor.facts()['streamFaults']).toEqual([]);
    recordFinding({
      promise: 'P9',
      what: 'clock jumps under a running compactor',
      wanted: 'every event in the lake once, available_at never decreases, sealing continues',
      figures: { jumps: liveSteps, events: ids.size, lostEvents: 0, doubledEvents: 0 },
      reached: true,
      seed,
      again,
    });
  },
  60_000 + liveSteps * 2000,
);
