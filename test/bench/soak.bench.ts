import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/config.ts';
import { formatCount } from '../../src/demo/demo-report.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { testFolder } from '../helpers/folder.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { openServicePublisher } from '../helpers/service-publisher.ts';
import { waitFor } from '../helpers/wait.ts';
import { reportBench, sumOf } from './bench-report.ts';
import { formatMb, inQuick, isFull } from './bench-size.ts';
import { followCommits, freshnessAt, type CommittedFlush } from './commit-times.ts';
import { readPeakBytes, readResidentBytes } from './peak-memory.ts';
import { costsBetween, readCosts } from './process-cost.ts';
import { publishSteadily } from './steady-stream.ts';

/*
 * Cost over time at a constant rate of events, one in five under a key: processor time per million events, memory and
 * freshness, one row per part of the time. Then the cost of the idle service. This process publishes the messages as
 * ingest does; the settings are the defaults.
 */
const eventsPerSecond = Number(process.env['TRIBUTARY_BENCH_RATE'] ?? 50_000);
const parts = isFull ? 10 : 3;
const partSeconds = inQuick(5, isFull ? 60 : 20);
const idleSeconds = inQuick(5, 60);
const keyedEvery = 5;
const longestMs = 3_600_000;

interface Part {
  readonly rows: number;
  readonly compactorSeconds: number;
  readonly brokerSeconds: number;
  readonly residentBytes: number;
  readonly liveFiles: number;
  /** Seconds from receipt to commit: the median and the 99th percentile. */
  readonly freshness: readonly number[];
}

const pidOf = (service: TestService): number => service.processes().find(({ role }) => role === 'compact')?.pid ?? 0;

const totalRows = (flushes: readonly CommittedFlush[]): number => sumOf(flushes.map(({ rows }) => rows));

/** Measures consecutive parts until the work is done; the last part is shorter. */
async function measureParts(service: TestService, tableDir: string, work: Promise<number>): Promise<Part[]> {
  const { version } = await readSnapshot(tableDir);
  const commits = followCommits(tableDir, version);
  const done: Part[] = [];
  for (let part = 0; part < parts; part += 1) {
    const before = readCosts(service);
    await Promise.race([sleep(partSeconds * 1000), work.then(() => sleep(partSeconds * 1000))]);
    const costs = costsBetween(before, readCosts(service));
    const flushes = await commits.next();
    done.push({
      rows: totalRows(flushes),
      compactorSeconds: costs.get('compact') ?? 0,
      brokerSeconds: costs.get('nats-server') ?? 0,
      residentBytes: readResidentBytes(pidOf(service)),
      liveFiles: (await readSnapshot(tableDir)).files.length,
      freshness: freshnessAt(flushes, [0.5, 0.99]),
    });
  }
  return done;
}

/** Returns the processor milliseconds per second of each idle process. */
async function measureIdle(service: TestService): Promise<ReadonlyMap<string, number>> {
  const before = readCosts(service);
  await sleep(idleSeconds * 1000);
  const costs = costsBetween(before, readCosts(service));
  return new Map(
    [...costs].filter(([role]) => role !== 'load').map(([role, used]) => [role, (used * 1000) / idleSeconds]),
  );
}

async function countRows(tableDir: string): Promise<number> {
  return sumOf((await readSnapshot(tableDir)).files.map(({ numRecords }) => numRecords ?? 0));
}

function reportParts(done: readonly Part[]): void {
  const head = ['part', 'rows committed', 'compactor, CPU s a million', 'broker', 'compactor, MB', 'live files'];
  head.push('freshness p50, s', 'p99, s');
  const rows = done.map(
    ({ rows: count, compactorSeconds, brokerSeconds, residentBytes, liveFiles, freshness }, index) => [
      `${index * partSeconds} to ${(index + 1) * partSeconds} s`,
      formatCount(count),
      ((compactorSeconds / count) * 1e6).toFixed(2),
      ((brokerSeconds / count) * 1e6).toFixed(2),
      formatMb(residentBytes),
      formatCount(liveFiles),
      ...freshness.map((seconds) => seconds.toFixed(1)),
    ],
  );
  reportBench(`soak-${eventsPerSecond}`, head, rows, done);
}

describe('benchmark: soak', () => {
  it(
    'A steady stream costs the same from part to part, and an idle service next to nothing',
    async () => {
      const settings = { TRIBUTARY_FLUSH_AGE_MS: '5000', TRIBUTARY_STREAM_MAX_BYTES: String(12 * 1024 ** 3) };
      const service = await startTestService({ dataDir: path.join(testFolder(), 'data'), settings });
      try {
        const tableDir = lakePaths(path.join(service.dataDir, 'lake')).table;
        const publisher = await openServicePublisher(service.dataDir, 'soak');
        const seconds = parts * partSeconds;
        const work = publishSteadily(publisher, { eventsPerSecond, seconds, keyedEvery });
        const [published, done] = await Promise.all([work, measureParts(service, tableDir, work)]);
        await publisher.close();
        await waitFor('every event is in the lake', async () => (await countRows(tableDir)) === published, longestMs);
        reportParts(done);
        const peakBytes = readPeakBytes(pidOf(service));
        // Due seals run first.
        await sleep(inQuick(2000, 30_000));
        const idle = await measureIdle(service);
        const sealed = (await readSnapshot(tableDir)).files.filter((file) => !file.path.startsWith('_young/'));
        const sizes = sealed.map(({ sizeBytes }) => sizeBytes).toSorted((a, b) => a - b);
        const largest = sizes.at(-1) ?? 0;
        const rows = [
          ["compactor's peak memory", `${formatMb(peakBytes)} MB`],
          ['largest sealed file', `${formatMb(largest)} MB (set: ${formatMb(parseConfig({}).sealMaxBytes)})`],
          [
            'sealed files',
            `${sizes.length}, half of them at least ${formatMb(sizes[Math.floor(sizes.length / 2)] ?? 0)} MB`,
          ],
          ...[...idle].map(([role, ms]) => [`idle, ${role}`, `${ms.toFixed(1)} ms/s`]),
        ];
        reportBench('soak-afterwards', ['what', 'figure'], rows, { peakBytes, largest, idle: [...idle] });
        expect(published).toBe(eventsPerSecond * seconds);
        await service.stop();
      } finally {
        await service.destroy();
      }
    },
    longestMs,
  );
});
