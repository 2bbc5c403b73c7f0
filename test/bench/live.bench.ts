import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { dataPaths } from '../../src/config.ts';
import { formatCount } from '../../src/demo/demo-report.ts';
import { readEvents, type ServerSentEvent } from '../helpers/event-stream.ts';
import { testFolder } from '../helpers/folder.ts';
import { basic, type Credentials } from '../helpers/export-area.ts';
import { startWithUser } from '../helpers/service-access.ts';
import type { TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';
import { formatSpread, median, reportBench, sumOf } from './bench-report.ts';
import { inQuick, isFull } from './bench-size.ts';
import type { LoadResult } from './http-load.ts';
import { makeBodies, type Bodies } from './ingest-bodies.ts';
import { costsBetween, readCosts } from './process-cost.ts';
import { loadName, runLoad } from './wrk.ts';

/*
 * Cost of live listeners for the import. One worker runs at its full rate with ten listeners of its app at its own
 * port, with one at the export area, and with none. The one listener is an open page Live. The three loads alternate.
 * Then a flood of rejected requests is sent: its cost, and the size of the kept records.
 */
const rounds = inQuick(1, isFull ? 11 : 5);
const warmUpMs = 1000;
const measureMs = inQuick(1000, 3000);
const listeners = 10;
/** An app is sampled for six more seconds after its last listener has left. */
const restMs = inQuick(0, 6500);

interface Run extends LoadResult {
  /** Processor microseconds per request: of the worker, and of all processes of the service. */
  readonly workerUs: number;
  readonly treeUs: number;
}

interface Target {
  readonly service: TestService;
  readonly token: string;
  readonly user: Credentials;
}

async function runOnce({ service, token }: Target, method: string, bodies: readonly string[]): Promise<Run> {
  const address = new URL(`${service.s2s}/v1/${method}/?idApp=1`);
  let before = readCosts(service);
  const run = await runLoad({
    address,
    headers: { authorization: token, 'content-type': 'application/json' },
    body: bodies,
    connections: 64,
    warmUpMs,
    measureMs,
    onMeasure: () => void (before = readCosts(service)),
  });
  const costs = costsBetween(before, readCosts(service));
  const tree = sumOf([...costs].flatMap(([worker, seconds]) => (worker === 'load' ? [] : [seconds])));
  return {
    ...run,
    workerUs: ((costs.get('ingest') ?? 0) / run.requests) * 1e6,
    treeUs: (tree / run.requests) * 1e6,
  };
}

/** Connects listeners of the app; `stop` disconnects them. */
async function listen(url: string, authorization: string, count: number) {
  const events: (readonly ServerSentEvent[])[] = [];
  const asked = Array.from({ length: count }, () => request(url, { headers: { authorization }, agent: false }));
  for (const one of asked) {
    one.on('error', () => undefined);
    one.end();
    const [answer] = (await once(one, 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(200);
    events.push(readEvents(answer));
  }
  return { events, stop: () => asked.forEach((one) => one.destroy()) };
}

function renderRow({ name }: Pick<Bodies, 'name'>, who: string, runs: readonly Run[], beside: readonly Run[]) {
  const middle = (pick: (run: Run) => number): number => median(runs.map(pick));
  const of = (pick: (run: Run) => number): string =>
    formatSpread(runs.map((run, index) => pick(run) / pick(beside[index] ?? run)));
  return [
    name,
    who,
    formatCount(Math.round(middle((run) => run.requestsPerSecond))),
    middle((run) => run.p99Ms).toFixed(1),
    of((run) => run.requestsPerSecond),
    middle((run) => run.workerUs).toFixed(1),
    of((run) => run.workerUs),
    of((run) => run.treeUs),
  ];
}

function folderBytes(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).reduce(
    (sum, entry) => sum + (entry.isFile() ? statSync(path.join(entry.parentPath, entry.name)).size : 0),
    0,
  );
}

describe('benchmark: live', () => {
  it('Import accepts events with ten listeners and rejects a flood, measured next to an import without both', async () => {
    const dataDir = testFolder();
    const settings = { TRIBUTARY_STREAM_MAX_BYTES: String(24 * 1024 ** 3) };
    // No compactor runs: the stream keeps all that is sent.
    const target = await startWithUser({ dataDir, settings, words: ['--role', 'ingest,export'] });
    const rows: string[][] = [];
    const figures: { bodies: string; who: string; runs: readonly Run[] }[] = [];
    let shown = 0;
    for (const { bodies, ...sent } of makeBodies()) {
      const [nobody, ten, page]: [Run[], Run[], Run[]] = [[], [], []];
      const runBeside = async (runs: Run[], url = '', by = '', count = 0): Promise<void> => {
        const heard = await listen(url, by, count);
        runs.push(await runOnce(target, sent.method, bodies));
        await waitFor('each has seen events', () => heard.events.every((events) => events.length > 0));
        shown += sumOf(heard.events.map((events) => events.length));
        heard.stop();
        if (count > 0) await sleep(restMs);
      };
      const turns = [
        () => runBeside(nobody),
        () => runBeside(ten, `${target.service.s2s}/v1/live?idApp=1`, target.token, listeners),
        () => runBeside(page, `${target.service.api}/api/app/v1/live?idApp=1`, basic(target.user), 1),
      ];
      // In another order each time: the state that a run leaves affects the next one.
      for (let round = 0; round < rounds; round += 1)
        for (const [index] of turns.entries()) await turns[(index + round) % turns.length]?.();
      rows.push(renderRow(sent, 'none', nobody, nobody), renderRow(sent, 'ten listeners', ten, nobody));
      rows.push(renderRow(sent, 'an open page', page, nobody));
      const flood: Run[] = [];
      // Each with another reason: equal rejections would be one record.
      const refused = bodies.map((body, index) => body.replace(/\}(\]?)$/, `,"customEventParams":{"n${index}":5}}$1`));
      for (let round = 0; round < rounds; round += 1) flood.push(await runOnce(target, sent.method, refused));
      expect(
        flood.flatMap(({ statuses }) => Object.keys(statuses)),
        'answers',
      ).not.toContain('500');
      rows.push(renderRow(sent, 'refused', flood, nobody));
      figures.push({ bodies: sent.name, who: 'nobody', runs: nobody });
      figures.push({ bodies: sent.name, who: 'page', runs: page });
      figures.push({ bodies: sent.name, who: 'ten', runs: ten }, { bodies: sent.name, who: 'refused', runs: flood });
    }
    const keptBytes = folderBytes(dataPaths(dataDir).refusals);
    expect(shown).toBeGreaterThan(0);
    expect(keptBytes).toBeLessThan(300_000);
    rows.push(['kept of refusals', `${keptBytes} bytes`, '', '', '', '', '', '']);
    const head = ['bodies', 'who listens', 'requests/s', 'p99 ms', 'of none', 'worker us a request', 'of none'];
    reportBench('live', [...head, 'all us, of none'], rows, { load: loadName, shown, keptBytes, figures });
  }, 1_800_000);
});
