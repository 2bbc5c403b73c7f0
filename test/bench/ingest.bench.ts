import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatCount } from '../../src/demo/text-table.ts';
import { generateGameSessions } from '../../src/demo/game-sessions.ts';
import { bundleChild } from '../helpers/bundled.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { addTestApp } from '../helpers/service-access.ts';
import { startTestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { median, reportBench } from './bench-report.ts';
import { runHttpLoad, type LoadResult } from './http-load.ts';

/*
 * What an import costs: one worker of the real service (validated, grouped, fsynced in JetStream) beside the same worker
 * with a stream that confirms at once, and beside bare Fastify that answers the same bodies. One run, the same load
 * generator, the servers in turn, so that only the ratios count.
 */
const rounds = 3;
const connections = 64;
const maxBodyBytes = 10_240;

interface Target {
  readonly name: string;
  readonly address: string;
}

function startBaseline(mode: string, dataDir: string): ChildProcess {
  return fork(bundleChild(path.join(dataDir, `baseline-${mode}`), 'baseline-server'), [mode, dataDir]);
}

async function addressOf(child: ChildProcess): Promise<string> {
  const [message] = (await once(child, 'message')) as [{ port: number }];
  return `http://127.0.0.1:${message.port}`;
}

/** A single event, and the largest batch of up to 20 that fits into a body. */
function makeBodies(): { name: string; method: string; body: string; events: number }[] {
  const made = [...generateGameSessions({ seed: 1, events: 20, until: 1_700_000_000, days: 1 })];
  const params = {
    ...made[0]?.customEventParams,
    route: 'north-gate/market/old-bridge/harbour',
    build: '1.42.0-release+20240501',
  };
  const events = made.map((event) => ({ ...event, customEventParams: params }));
  while (JSON.stringify(events).length > maxBodyBytes) events.pop();
  return [
    { name: 'single events', method: 'customEvent', body: JSON.stringify(events[0]), events: 1 },
    {
      name: `batches of ${events.length}`,
      method: 'customEventBatch',
      body: JSON.stringify(events),
      events: events.length,
    },
  ];
}

describe('benchmark: ingest', () => {
  it('Import accepts events, measured beside its baselines', async () => {
    const dataDir = path.join(temporaryFolder(), 'data');
    const token = await addTestApp(dataDir);
    const service = await startTestService({
      dataDir,
      settings: { TRIBUTARY_INGEST_WORKERS: '1' },
      words: ['--role', 'ingest'],
    });
    const baselines = ['bare', 'no-publish'].map((mode) => startBaseline(mode, dataDir));
    const [bare = '', withoutPublish = ''] = await Promise.all(baselines.map(addressOf));
    const targets: Target[] = [
      { name: 'bare Fastify', address: bare },
      { name: 'tributary without the publish', address: withoutPublish },
      { name: 'tributary', address: service.s2s },
    ];
    await waitFor(
      'the app is known',
      async () =>
        (
          await fetch(`${service.s2s}/v1/test-app-access/?idApp=1`, {
            method: 'POST',
            headers: { authorization: token },
            body: 'true',
          })
        ).ok,
    );

    const figures: { bodies: string; bodyBytes: number; events: number; server: string; runs: LoadResult[] }[] = [];
    for (const { name, method, body, events } of makeBodies()) {
      const results = targets.map((target) => ({
        bodies: name,
        bodyBytes: body.length,
        events,
        server: target.name,
        runs: [] as LoadResult[],
      }));
      for (let round = 0; round < rounds; round += 1) {
        for (const [index, target] of targets.entries()) {
          const address = new URL(`${target.address}/v1/${method}/?idApp=1`);
          const headers = { authorization: token, 'content-type': 'application/json' };
          const run = await runHttpLoad({ address, headers, body, connections, warmUpMs: 1000, measureMs: 4000 });
          expect(Object.keys(run.statuses), target.name).toEqual(['200']);
          results[index]?.runs.push(run);
        }
      }
      figures.push(...results);
    }
    for (const child of baselines) child.disconnect();
    await service.stop();

    const rows = figures.map(({ bodies, bodyBytes, events, server, runs }, index) => {
      const middle = (pick: (run: LoadResult) => number): number => median(runs.map(pick));
      const requests = middle((run) => run.requestsPerSecond);
      const baseline = figures[index - (index % targets.length)]?.runs.map((run) => run.requestsPerSecond) ?? [];
      const cells = [requests, requests * events].map((figure) => formatCount(Math.round(figure)));
      return [
        `${bodies} (${formatCount(bodyBytes)} bytes)`,
        server,
        ...cells,
        middle((run) => run.p50Ms).toFixed(1),
        middle((run) => run.p99Ms).toFixed(1),
        (requests / median(baseline)).toFixed(2),
      ];
    });
    reportBench('ingest', ['bodies', 'server', 'requests/s', 'events/s', 'p50 ms', 'p99 ms', 'of bare'], rows, figures);
  }, 300_000);
});
