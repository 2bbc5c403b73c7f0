import { rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/config.ts';
import { generateGameSessions } from '../../src/demo/game-sessions.ts';
import { formatCount } from '../../src/demo/demo-report.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import type { Table } from '../../src/lake/log/table.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { query } from '../helpers/lake.ts';
import { startTestNats } from '../helpers/nats.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { startTestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { readLakeSize } from './bench-lake.ts';
import { median, reportBench } from './bench-report.ts';
import { benchRows, formatMb, inQuick, rounds } from './bench-size.ts';
import { runCompactor } from './compactor.ts';
import type { Cost } from './duckdb-copy.ts';
import { publishSpool, writeEventSpool } from './event-spool.ts';
import { runHttpLoad } from './http-load.ts';
import { costsBetween, readCosts } from './process-cost.ts';

/*
 * Cost of enrichment. The real compactor reads the same stream with and without it. Then services with and without it
 * receive imports over HTTP while their compactor runs. The events have 100,000 addresses of the whole internet and
 * 2,000 User-Agents. Only ratios of one run count.
 */
const rows = benchRows(1_000_000, 1_000_000);
const importRounds = inQuick(1, 5);
const importMs = inQuick(3000, 20_000);
const importWarmUpMs = inQuick(3000, 6000);
const addresses = 100_000;
const agents = 2000;
const gibibyte = 1024 ** 3;
const longestMs = 1_800_000;
const maxBodyBytes = 10_240;
const folder = temporaryFolder();

/** Returns a number that looks random and is the same in every run. */
const scatter = (index: number, below: number): number =>
  Math.floor((((index * 2_654_435_761) >>> 0) / 2 ** 32) * below);

function vary(index: number): Readonly<Record<string, string>> {
  const address = scatter(1 + scatter(index, addresses), 2 ** 32);
  const agent = scatter(index * 7 + 1, agents);
  const version = `${100 + (agent % 40)}.0.${agent}.1`;
  return {
    ipv4: [24, 16, 8, 0].map((bits) => (address >>> bits) & 255).join('.'),
    userAgent:
      agent % 2 === 0
        ? `Mozilla/5.0 (Linux; Android ${8 + (agent % 7)}; SM-G${900 + (agent % 90)}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/${version} Mobile Safari/537.36`
        : `Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/${version} Safari/537.36`,
  };
}

/** Creates batches of the maximum size, of events that all differ in address and User-Agent. */
function makeBatches(count: number): string[] {
  const made = [...generateGameSessions({ seed: 1, events: 20, until: 1_700_000_000, days: 1 })];
  let next = 0;
  return Array.from({ length: count }, () => {
    const events = made.map((event) => ({ ...event, ...vary((next += 1)) }));
    while (JSON.stringify(events).length > maxBodyBytes) events.pop();
    return JSON.stringify(events);
  });
}

interface ImportRun {
  /** Events per second that a whole service imports over HTTP. */
  readonly rate: number;
  readonly statuses: readonly string[];
  /** Processor microseconds per event: of the compactor, and of all processes including the load. */
  readonly compactUs: number;
  readonly allUs: number;
}

async function importOnce(bodies: readonly string[], enriches: boolean): Promise<ImportRun> {
  const dataDir = path.join(folder, `service-${enriches}`);
  const token = await addTestApp(dataDir);
  const service = await startTestService({
    dataDir,
    settings: { TRIBUTARY_INGEST_WORKERS: '1', TRIBUTARY_ENRICH: enriches ? 'on' : 'off' },
  });
  try {
    await waitFor('the app is known', async () => {
      const call = { method: 'POST', headers: { authorization: token }, body: 'true' };
      return (await fetch(`${service.s2s}/v1/test-app-access/?idApp=1`, call)).ok;
    });
    const events = bodies.reduce((sum, body) => sum + (JSON.parse(body) as unknown[]).length, 0) / bodies.length;
    const address = new URL(`${service.s2s}/v1/customEventBatch/?idApp=1`);
    const headers = { authorization: token, 'content-type': 'application/json' };
    const measureMs = importMs;
    let before = readCosts(service);
    const onMeasure = (): void => void (before = readCosts(service));
    const load = { address, headers, body: bodies, connections: 64, warmUpMs: importWarmUpMs, measureMs, onMeasure };
    const { requestsPerSecond, statuses } = await runHttpLoad(load);
    const costs = costsBetween(before, readCosts(service));
    await service.stop();
    const rate = requestsPerSecond * events;
    const toUs = (seconds: number): number => (seconds / ((rate * measureMs) / 1000)) * 1e6;
    return {
      rate,
      statuses: Object.keys(statuses),
      compactUs: toUs(costs.get('compact') ?? 0),
      allUs: toUs([...costs.values()].reduce((sum, seconds) => sum + seconds, 0)),
    };
  } finally {
    await service.destroy();
    await rm(dataDir, { recursive: true, force: true });
  }
}

interface Run extends Cost {
  readonly rows: number;
}

async function compact(spool: string, enriches: boolean): Promise<Run> {
  const target = path.join(folder, `lake-${enriches}`);
  await rm(target, { recursive: true, force: true });
  const nats = await startTestNats({ maxStoreBytes: 16 * gibibyte, streamMaxBytes: 15 * gibibyte });
  try {
    // One more flush than the run waits for: the last flush of a stream waits for its age.
    const bytes = (await stat(spool)).size + 2 * parseConfig({}).flushMaxBytes;
    await publishSpool(spool, bytes, openPublisher(await nats.connect()));
    let streamed = 0;
    const isDone = (table: Table): boolean => (streamed = table.lake().totals.streamed) >= rows;
    const cost = await runCompactor({ folder: target, nats, enriches, isDone });
    return { ...cost, rows: streamed };
  } finally {
    await nats.stop();
  }
}

async function countFilled(): Promise<{ readonly places: number; readonly agents: number; readonly all: number }> {
  const { paths } = await readLakeSize(path.join(folder, 'lake-true'));
  const [row] = await query(
    `SELECT count(geo_date) AS places, count(browser) AS agents, count(*) AS n FROM read_parquet(${sqlList(paths)}, hive_partitioning = false)`,
  );
  return { places: Number(row?.['places']), agents: Number(row?.['agents']), all: Number(row?.['n']) };
}

describe('benchmark: enrich', () => {
  it(
    'The compactor stores a backlog with enrichment, measured next to the same without it',
    async () => {
      const spool = path.join(folder, 'events.ndjson');
      await writeEventSpool(spool, rows, 1, vary);
      const [without, enriched]: [Run[], Run[]] = [[], []];
      for (let round = 0; round < rounds; round += 1) {
        without.push(await compact(spool, false));
        enriched.push(await compact(spool, true));
      }
      const filled = await countFilled();
      expect(filled.agents).toBe(filled.all);
      expect(filled.places).toBeGreaterThan(filled.all / 2);
      const rateOf = (runs: readonly Run[]): number => median(runs.map((run) => run.rows / run.seconds));
      const line = (name: string, runs: readonly Run[]): string[] => [
        name,
        formatCount(Math.round(rateOf(runs))),
        (rateOf(runs) / rateOf(without)).toFixed(2),
        formatMb(Math.max(...runs.map((run) => run.peakBytes))),
      ];
      const head = [
        `${formatCount(rows)} events of ${formatCount(addresses)} addresses`,
        'rows/s',
        'of without',
        'peak MB',
      ];
      reportBench('enrich', head, [line('without enrichment', without), line('with enrichment', enriched)], {
        rows,
        without,
        enriched,
        filled,
      });
    },
    longestMs,
  );

  it(
    'A service accepts imports while its compactor enriches, measured next to the same without enrichment',
    async () => {
      const bodies = makeBatches(6000);
      const [without, enriched]: [ImportRun[], ImportRun[]] = [[], []];
      for (let round = 0; round < importRounds; round += 1) {
        for (const [runs, enriches] of [[without, false] as const, [enriched, true] as const]) {
          const run = await importOnce(bodies, enriches);
          expect(run.statuses).toEqual(['200']);
          runs.push(run);
        }
      }
      const medianOf = (runs: readonly ImportRun[], pick: (run: ImportRun) => number): number => median(runs.map(pick));
      const line = (name: string, runs: readonly ImportRun[]): string[] => {
        const rates = runs.map(({ rate }) => rate);
        return [
          name,
          formatCount(Math.round(median(rates))),
          (median(rates) / medianOf(without, ({ rate }) => rate)).toFixed(2),
          `${formatCount(Math.round(Math.min(...rates)))} to ${formatCount(Math.round(Math.max(...rates)))}`,
          medianOf(runs, ({ compactUs }) => compactUs).toFixed(2),
          medianOf(runs, ({ allUs }) => allUs).toFixed(2),
        ];
      };
      reportBench(
        'enrich-import',
        [
          `batches over 64 connections, ${formatCount(addresses)} addresses`,
          'events/s',
          'of without',
          'spread',
          'compactor, CPU us an event',
          'with all',
        ],
        [line('import without enrichment', without), line('import with enrichment', enriched)],
        { without, enriched },
      );
    },
    longestMs,
  );
});
