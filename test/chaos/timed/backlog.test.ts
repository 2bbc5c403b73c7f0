import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createRandom } from '../../../src/demo/random.ts';
import { totalsOf, waitUntilWorkedOff } from '../../helpers/accounting.ts';
import { countBacklog, openBacklog } from '../../helpers/backlog.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../../helpers/chaos.ts';
import { recordFinding } from '../../helpers/chaos-report.ts';
import { testFolder } from '../../helpers/folder.ts';
import { assertExactlyOnce, createLedger, reconcile, type Ledger } from '../../helpers/ledger.ts';
import { sendLoad, startLoad, type LoadOptions } from '../../helpers/load.ts';
import { readResidentBytes } from '../../helpers/processes.ts';
import { startTestService, type TestService } from '../../helpers/service.ts';
import { startWithApp } from '../../helpers/service-access.ts';
import { waitFor } from '../../helpers/wait.ts';

/*
 * Without a compactor events pile up in the stream. Import must not slow down, and must reject events when the stream
 * is full. Afterwards the lake must store every event while import continues.
 */
const events = chaosFigure('TRIBUTARY_TEST_BACKLOG', { short: 100_000, long: 10_000_000 });
const roundEvents = chaosFigure('TRIBUTARY_TEST_BACKLOG_ROUND', { short: 2000, long: 100_000 });
const rounds = chaosFigure('TRIBUTARY_TEST_BACKLOG_ROUNDS', { short: 1, long: 5 });
const seed = chaosSeed();

const wanted = { throughputRatio: 1.3, p99Ratio: 1.5, growthMegabytes: 64 } as const;
const megabyte = 1e6;
/** Bytes of a backlog line in the stream, and space for the events of the rounds. */
const streamMaxBytes = Math.ceil(events * 540 + 3 * rounds * roundEvents * 400 + 4 * megabyte);
const longestMs = 60_000 + events / 5;

const say = (text: string): void => void process.stderr.write(`backlog: ${text}\n`);
const median = (figures: readonly number[]): number =>
  figures.toSorted((a, b) => a - b)[Math.floor(figures.length / 2)] ?? 0;
const seconds = (ms: number): number => Math.round(ms / 100) / 10;

interface Speed {
  readonly eventsPerSecond: number;
  readonly p99Ms: number;
}

/** Sends the same load repeatedly; returns the medians of the rounds. */
async function measure(ledger: Ledger, client: LoadOptions): Promise<Speed> {
  const speeds: Speed[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const tookMs: number[] = [];
    const startedAt = performance.now();
    await sendLoad(ledger, roundEvents, { ...client, onAcknowledged: (ms) => void tookMs.push(ms) });
    const eventsPerSecond = (roundEvents / (performance.now() - startedAt)) * 1000;
    speeds.push({ eventsPerSecond, p99Ms: tookMs.toSorted((a, b) => a - b)[Math.floor(tookMs.length * 0.99)] ?? 0 });
  }
  say(
    speeds
      .map(({ eventsPerSecond, p99Ms }) => `${Math.round(eventsPerSecond)} events/s, p99 ${p99Ms.toFixed(1)} ms`)
      .join('; '),
  );
  return {
    eventsPerSecond: median(speeds.map((speed) => speed.eventsPerSecond)),
    p99Ms: median(speeds.map((speed) => speed.p99Ms)),
  };
}

/** Returns the present memory of the largest process of a role. */
function residentMegabytes(service: TestService, role: 'ingest' | 'nats-server' | 'compact'): number {
  const sizes = service
    .processes()
    .filter((process) => process.role === role)
    .map(({ pid }) => readResidentBytes(pid));
  return Math.round(Math.max(0, ...sizes) / megabyte);
}

test(
  `${events.toLocaleString('en-US')} waiting events do not slow import down, a full stream rejects events, and the whole backlog is stored while import continues`,
  async ({ skip }) => {
    inLongForm(skip);
    const dataDir = path.join(testFolder(), 'data');
    const settings = {
      TRIBUTARY_STREAM_MAX_BYTES: String(streamMaxBytes),
      TRIBUTARY_LOG_LEVEL: 'warn',
      TRIBUTARY_INGEST_WORKERS: '1',
    };
    const { service: intake, token } = await startWithApp({ dataDir, settings, words: ['--role', 'ingest'] });
    const ledger = createLedger('load');
    const client: LoadOptions = {
      s2s: () => intake.s2s,
      idApp: 1,
      token,
      random: createRandom(seed),
      clients: 16,
      batchShare: 1,
    };
    await sendLoad(ledger, roundEvents, client);

    const without = await measure(ledger, client);
    const before = { ingest: residentMegabytes(intake, 'ingest'), nats: residentMegabytes(intake, 'nats-server') };
    const backlog = await openBacklog(dataDir);
    const buildAt = performance.now();
    expect(await backlog.add(events)).toBe(true);
    say(
      `${backlog.events} events in ${seconds(performance.now() - buildAt)} s, ${Math.round(backlog.bytes / megabyte)} MB`,
    );
    const waiting = await measure(ledger, client);
    const after = { ingest: residentMegabytes(intake, 'ingest'), nats: residentMegabytes(intake, 'nats-server') };

    // fill it completely: first large messages no longer fit, then single events
    expect(await backlog.add(events)).toBe(false);
    const refusals: { ms: number; status: number }[] = [];
    const fullLoad = startLoad(ledger, {
      ...client,
      clients: 8,
      onAnswer: (ms, status) => void refusals.push({ ms, status }),
    });
    await waitFor('the full stream refuses', () => refusals.filter(({ status }) => status === 500).length > 100);
    const url = `${intake.s2s}/v1/customEventBatch/?idApp=1`;
    const body = JSON.stringify(
      Array.from({ length: 20 }, () => ({
        customUserId: 'late',
        customEventName: 'refused',
        customEventParams: { text: 'x'.repeat(200) },
      })),
    );
    const refused = await fetch(url, { method: 'POST', headers: { authorization: token }, body });
    await fullLoad.stop();
    expect(refused.status).toBe(500);
    expect(refused.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
    expect(refused.headers.get('x-error-detail')).toBe('not stored: the stream is full');
    expect(new Set(refusals.map(({ status }) => status).filter((status) => status !== 200))).toEqual(new Set([500]));
    const slowestRefusalMs = Math.max(...refusals.filter(({ status }) => status === 500).map(({ ms }) => ms));
    await backlog.close();
    await intake.stop();

    // the complete service now: the stream is full until the first flush
    const service = await startTestService({
      dataDir,
      settings: { ...settings, ...(isLongRun ? { TRIBUTARY_FLUSH_AGE_MS: '5000' } : {}) },
    });
    onTestFinished(() => service.destroy());
    const startedAt = performance.now();
    const sentBefore = ledger.totals().acknowledged;
    const tookMs: number[] = [];
    const load = startLoad(ledger, {
      ...client,
      s2s: () => service.s2s,
      clients: 4,
      pauseMs: 20,
      onAcknowledged: (ms) => void tookMs.push(ms),
    });
    await waitFor('import is taken up again', () => ledger.totals().acknowledged > sentBefore + 100, longestMs);
    const takenUpMs = performance.now() - startedAt;
    let compactPeak = 0;
    await waitFor(
      'the backlog is worked off',
      async () => {
        compactPeak = Math.max(compactPeak, residentMegabytes(service, 'compact'));
        return (await totalsOf(dataDir)).streamed >= backlog.events + sentBefore;
      },
      longestMs,
    );
    const workedOffMs = performance.now() - startedAt;
    const sentMeanwhile = ledger.totals().acknowledged - sentBefore;
    await load.stop();
    await waitUntilWorkedOff(service, longestMs);
    await service.stop();

    const count = await countBacklog(dataDir, ledger);
    const account = reconcile(ledger, count.ledger);
    assertExactlyOnce(account);
    expect({ ...count, ledger: 0 }).toEqual({
      rows: backlog.events,
      eventIds: backlog.events,
      names: backlog.events,
      strangers: 0,
      ledger: 0,
    });
    const totals = await totalsOf(dataDir);
    expect(totals).toEqual({
      streamed: backlog.events + account.stored,
      stored: backlog.events + account.stored,
      failed: 0,
      repeats: 0,
      erased: 0,
    });

    const figures = {
      waitingEvents: backlog.events,
      waitingMegabytes: Math.round(backlog.bytes / megabyte),
      eventsPerSecondWithout: Math.round(without.eventsPerSecond),
      eventsPerSecondWaiting: Math.round(waiting.eventsPerSecond),
      throughputRatio: Number((without.eventsPerSecond / waiting.eventsPerSecond).toFixed(2)),
      p99MsWithout: Number(without.p99Ms.toFixed(1)),
      p99MsWaiting: Number(waiting.p99Ms.toFixed(1)),
      p99Ratio: Number((waiting.p99Ms / without.p99Ms).toFixed(2)),
      ingestMegabytesWithout: before.ingest,
      ingestMegabytesWaiting: after.ingest,
      brokerMegabytesWithout: before.nats,
      brokerMegabytesWaiting: after.nats,
      refusalsWhenFull: refusals.filter(({ status }) => status === 500).length,
      slowestRefusalMs: Math.round(slowestRefusalMs),
      importTakenUpSeconds: seconds(takenUpMs),
      workedOffSeconds: seconds(workedOffMs),
      workedOffPerSecond: Math.round((backlog.events / workedOffMs) * 1000),
      importedPerSecondMeanwhile: Math.round((sentMeanwhile / workedOffMs) * 1000),
      p99MsMeanwhile: Math.round(tookMs.toSorted((a, b) => a - b)[Math.floor(tookMs.length * 0.99)] ?? 0),
      compactorPeakMegabytes: compactPeak,
      rows: totals.stored,
      lostEvents: account.lost.length,
      doubledEvents: account.doubled.length,
    };
    const misses = [
      figures.throughputRatio > wanted.throughputRatio ? `throughput within ${figures.throughputRatio}` : [],
      figures.p99Ratio > wanted.p99Ratio ? `p99 within ${figures.p99Ratio}` : [],
      after.ingest - before.ingest > wanted.growthMegabytes ? `import grew by ${after.ingest - before.ingest} MB` : [],
    ].flat();
    recordFinding({
      promise: 'P7',
      what: 'events waiting in the stream',
      wanted: `throughput within ${wanted.throughputRatio} and p99 within ${wanted.p99Ratio} of none waiting (medians of ${rounds}), memory flat; 500 with Retry-After when full; stored while import continues, 0 lost`,
      figures,
      reached: misses.length === 0,
      ...(misses.length === 0 ? {} : { shortfall: misses.join(', ') }),
      seed,
      again: `make chaos PART=timed/backlog SEED=${seed}`,
    });
  },
  120_000 + 2 * longestMs,
);
