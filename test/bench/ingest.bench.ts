import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatCount } from '../../src/demo/demo-report.ts';
import { bundleChild } from '../helpers/bundled.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { formatSpread, median, reportBench, sumOf } from './bench-report.ts';
import { inQuick } from './bench-size.ts';
import type { LoadResult } from './http-load.ts';
import { makeBodies, type Bodies } from './ingest-bodies.ts';
import { costsBetween, readCosts, readProcessSeconds, type Worker } from './process-cost.ts';
import { loadName, runLoad } from './wrk.ts';

/*
 * Cost of an import. One worker of the real service (validation, group commit, fsync in JetStream) is compared with
 * three others: the same worker with a stream that confirms at once, bare Fastify that responds to the same bodies, and
 * two workers. All get the same load, one after the other; only ratios of one run count. CPU is that of the workers,
 * and of all processes of the service.
 */
const rounds = inQuick(1, 5);
const warmUpMs = 1000;
const measureMs = inQuick(1000, 4000);

interface Target {
  readonly name: string;
  readonly address: string;
  readonly connections: number;
  /** Value of the `Prefer` header. */
  readonly prefer?: string;
  /** Returns the processor seconds so far: of the workers, and of all processes of the service. */
  readonly costs: () => { readonly worker: number; readonly tree: number };
}

interface Run extends LoadResult {
  /** Processor microseconds per request. */
  readonly workerUs: number;
  readonly treeUs: number;
}

const baseCosts = (pid: number) => (): { worker: number; tree: number } => {
  const seconds = readProcessSeconds(pid);
  return { worker: seconds, tree: seconds };
};

const serviceCosts = (service: TestService) => (): { worker: number; tree: number } => {
  const all: ReadonlyMap<Worker, number> = costsBetween(new Map(), readCosts(service));
  const parts = [...all].filter(([worker]) => worker !== 'load').map(([, seconds]) => seconds);
  return { worker: all.get('ingest') ?? 0, tree: sumOf(parts) };
};

async function startBaseline(mode: string, name: string, dataDir: string): Promise<{ child: ChildProcess } & Target> {
  const child = fork(bundleChild(path.join(dataDir, `baseline-${mode}`), 'baseline-server'), [mode, dataDir]);
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  return { child, name, address: `http://127.0.0.1:${port}`, connections: 64, costs: baseCosts(child.pid ?? 0) };
}

async function startService(workers: number, folder: string): Promise<{ service: TestService; token: string }> {
  const dataDir = path.join(folder, `workers-${workers}`);
  const token = await addTestApp(dataDir);
  // No compactor runs: the stream keeps all that is sent.
  const settings = { TRIBUTARY_INGEST_WORKERS: String(workers), TRIBUTARY_STREAM_MAX_BYTES: String(24 * 1024 ** 3) };
  const service = await startTestService({ dataDir, settings, words: ['--role', 'ingest'] });
  await waitFor('the app is known', async () => {
    const call = { method: 'POST', headers: { authorization: token }, body: 'true' };
    return (await fetch(`${service.s2s}/v1/test-app-access/?idApp=1`, call)).ok;
  });
  return { service, token };
}

async function runOnce(target: Target, { method, bodies }: Bodies, token: string): Promise<Run> {
  const address = new URL(`${target.address}/v1/${method}/?idApp=1`);
  const { prefer } = target;
  const headers = {
    authorization: token,
    'content-type': 'application/json',
    ...(prefer === undefined ? {} : { prefer }),
  };
  let before = target.costs();
  const onMeasure = (): void => void (before = target.costs());
  const { connections } = target;
  const run = await runLoad({ address, headers, body: bodies, connections, warmUpMs, measureMs, onMeasure });
  const after = target.costs();
  return {
    ...run,
    workerUs: ((after.worker - before.worker) / run.requests) * 1e6,
    treeUs: ((after.tree - before.tree) / run.requests) * 1e6,
  };
}

function renderRow({ name, events }: Bodies, server: string, runs: readonly Run[], bare: readonly Run[]): string[] {
  const middle = (pick: (run: Run) => number): number => median(runs.map(pick));
  // Each against its neighbour in time: a machine that slows down slows both.
  const ratios = runs.map((run, index) => run.requestsPerSecond / (bare[index]?.requestsPerSecond ?? Number.NaN));
  const rate = middle((run) => run.requestsPerSecond);
  return [
    name,
    server,
    formatCount(Math.round(rate)),
    formatCount(Math.round(rate * events)),
    middle((run) => run.p50Ms).toFixed(1),
    middle((run) => run.p99Ms).toFixed(1),
    formatSpread(ratios),
    middle((run) => run.workerUs).toFixed(1),
    (middle((run) => run.workerUs) / median(bare.map((run) => run.workerUs))).toFixed(2),
    (middle((run) => run.treeUs) / events).toFixed(1),
  ];
}

describe('benchmark: ingest', () => {
  it('Import accepts events, measured next to its baselines', async () => {
    const folder = temporaryFolder();
    const [one, two] = [await startService(1, folder), await startService(2, folder)];
    const baselines = [
      await startBaseline('bare', 'bare Fastify', one.service.dataDir),
      await startBaseline('no-publish', 'tributary without the publish', one.service.dataDir),
    ];
    const ofOne = { address: one.service.s2s, costs: serviceCosts(one.service) };
    const targets: (Target & { readonly token?: string })[] = [
      ...baselines,
      ...baselines.slice(0, 1).map((bare) => ({ ...bare, name: `${bare.name}, 256 connections`, connections: 256 })),
      { ...ofOne, name: 'tributary', connections: 64 },
      { ...ofOne, name: 'tributary, 256 connections', connections: 256 },
      { ...ofOne, name: 'tributary, a receipt each', connections: 64, prefer: 'receipt' },
      {
        name: 'tributary, two workers',
        address: two.service.s2s,
        costs: serviceCosts(two.service),
        connections: 64,
        token: two.token,
      },
    ];
    const figures: { bodies: Omit<Bodies, 'bodies'>; server: string; runs: Run[] }[] = [];
    const rows: string[][] = [];
    for (const sent of makeBodies()) {
      const runs: Run[][] = targets.map(() => []);
      for (let round = 0; round < rounds; round += 1)
        for (const [index, target] of targets.entries())
          runs[index]?.push(await runOnce(target, sent, target.token ?? one.token));
      const { bodies: _, ...bodies } = sent;
      for (const [index, { name }] of targets.entries()) {
        figures.push({ bodies, server: name, runs: runs[index] ?? [] });
        // Bare Fastify with as many connections.
        const bare = targets.findIndex((target) => target.connections === targets[index]?.connections);
        rows.push(renderRow(sent, name, runs[index] ?? [], runs[bare] ?? []));
      }
    }
    const statuses = figures.flatMap(({ runs }) => runs.flatMap((run) => Object.keys(run.statuses)));
    expect(new Set(statuses), 'the answers').toEqual(new Set(['200']));
    for (const { child } of baselines) child.disconnect();
    for (const { service } of [one, two]) await service.stop();
    const head = ['bodies', 'server', 'requests/s', 'events/s', 'p50 ms', 'p99 ms', 'of bare'];
    head.push('worker us a request', 'of bare', 'all us an event');
    reportBench('ingest', head, rows, { load: loadName, figures });
  }, 900_000);
});
