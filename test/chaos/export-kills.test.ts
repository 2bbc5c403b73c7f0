import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { createRandom, type Random } from '../../src/demo/random.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import type { AnswerData, Credentials } from '../helpers/export-area.ts';
import { createExportClient, exportQuery, type ExportClient } from '../helpers/export-client.ts';
import { testFolder } from '../helpers/folder.ts';
import { countLake, createLedger } from '../helpers/ledger.ts';
import { sendLoad } from '../helpers/load.ts';
import { createProcessMemory, type ProcessMemory, type ProcessRole } from '../helpers/processes.ts';
import { startWithUser } from '../helpers/service-access.ts';
import type { TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

const kills = chaosFigure('TRIBUTARY_TEST_KILLS', { short: 3, long: 500 });
const seed = chaosSeed();
const events = 8000;
/** Requests in progress during the kills: two run, the others wait. */
const requestsAtOnce = 3;
const endMs = 120_000;

const selectors = 'eventId,eventName,customUserId,lvid,params.name,params.value,dtEvent,tsEvent,tsInsert,idApp';
/** One round of kills, in random order, so that a short run has each of them. */
const round = [
  'job',
  'export',
  'job',
  'supervisor',
  'job',
  'nats-server',
  'job',
  'export',
] as const satisfies readonly ProcessRole[];
type Victim = (typeof round)[number];

const say = (text: string): void => void process.stderr.write(`export kills: ${text}\n`);

function* killOrder(random: Random): Generator<Victim, never, void> {
  for (;;) {
    const left: Victim[] = [...round];
    while (left.length > 0) yield left.splice(random.integer(0, left.length - 1), 1)[0] as Victim;
  }
}

/** Returns the content of a result, independent of the id of its request. */
function content({ files }: AnswerData): unknown {
  return files?.map(({ rows, bytes, sha256 }) => ({ rows, bytes, sha256 }));
}

/** Interruptions of a request after which its attempts are spared; after 32 it fails (attempts.ts). */
const nearBound = 24;

function countInterruptions({ dataDir }: TestService, id: string): number {
  const job = JSON.parse(readFileSync(path.join(dataDir, 'reports', id, 'job.json'), 'utf8')) as {
    interruptions?: number;
  };
  return job.interruptions ?? 0;
}

/** Starts a service with a lake that no longer changes. */
async function startFilledService(random: Random): Promise<{ service: TestService; user: Credentials }> {
  const dataDir = path.join(testFolder(), 'data');
  const { service, token, user } = await startWithUser({
    dataDir,
    settings: {
      TRIBUTARY_INGEST_WORKERS: '1',
      TRIBUTARY_QUOTA_USER: 'off',
      TRIBUTARY_QUOTA_IP: 'off',
      TRIBUTARY_MAX_EXPORTS: '1000',
      TRIBUTARY_SINGLE_FILE_MAX_BYTES: '0',
      TRIBUTARY_PART_MAX_BYTES: String(1024 * 1024),
      TRIBUTARY_FLUSH_AGE_MS: '2000',
      TRIBUTARY_LOG_LEVEL: 'warn',
    },
  });
  const ledger = createLedger('event');
  await sendLoad(ledger, events, {
    s2s: () => service.s2s,
    idApp: 1,
    token,
    random,
    clients: 8,
    batchShare: 1,
    idempotencyKeys: true,
  });
  expect(ledger.totals().acknowledged).toBe(events);
  await waitUntilWorkedOff(service, endMs);
  expect(await countLake(dataDir)).toHaveLength(events);
  return { service, user };
}

/** Observations during the kills. */
interface Killing {
  /** Requests that returned 200. */
  readonly acknowledged: string[];
  /** The end of each request, as a client saw it during the kills. */
  readonly ends: Map<string, unknown>;
  /** Every worker so far. */
  readonly workers: ProcessMemory;
  readonly killed: Record<Victim, number>;
  /** Kills that hit a worker during its attempt. */
  midExport: number;
}

/** Kills until enough kills have hit a running attempt, each at a random moment of it, and keeps creating requests. */
async function killAll(
  service: TestService,
  client: ExportClient,
  query: string,
  random: Random,
  attemptMs: number,
): Promise<Killing> {
  const seen: Killing = {
    acknowledged: [],
    ends: new Map(),
    workers: createProcessMemory(),
    killed: { job: 0, export: 0, supervisor: 0, 'nats-server': 0 },
    midExport: 0,
  };
  const open = new Set<string>();
  const order = killOrder(random);
  const jobs = (): number[] => service.processes().flatMap(({ role, pid }) => (role === 'job' ? [pid] : []));
  while (seen.midExport < kills) {
    for (const id of open) {
      // Beyond its limit it would fail as documented: a request close to it is spared.
      const isNear = countInterruptions(service, id) >= nearBound;
      const data = await (isNear ? client.waitForEnd(id) : client.find(id));
      if (data?.status === 'In progress') continue;
      open.delete(id);
      seen.ends.set(id, content(data ?? {}));
    }
    while (open.size < requestsAtOnce) {
      const id = await client.create(query);
      if (id === undefined) continue;
      seen.acknowledged.push(id);
      open.add(id);
    }
    await waitFor('an export runs', () => jobs().length > 0, endMs);
    const moment = performance.now() + random.integer(0, attemptMs);
    await waitFor('the moment has come', () => performance.now() >= moment || jobs().length === 0);
    const running = jobs();
    seen.workers.note(running);
    const victim = order.next().value;
    if ((await service.kill9(victim, random)) === undefined) continue;
    if (victim === 'supervisor') await service.startAgain();
    seen.killed[victim] += 1;
    if (running.length > 0) seen.midExport += 1;
  }
  return seen;
}

/** Lists unexpected files: temporary ones, folders of attempts, anything but a request and its files. */
function findLeftovers(dataDir: string): string[] {
  const names = readdirSync(dataDir, { recursive: true, encoding: 'utf8' }).filter((name) => !name.startsWith('nats/'));
  const reportFiles = /^reports(\/(\d+(\/(job\.json|parts(\/[\w.]+\.csv\.gz)?))?|\.lock|highest-id))?$/;
  return names.filter((name) => name.endsWith('.tmp') || (name.startsWith('reports') && !reportFiles.test(name)));
}

describe('kill -9 during exports', () => {
  it(
    `After ${kills} kills of workers, the export role, nats-server and the supervisor each request has one result with the right bytes`,
    async ({ skip }) => {
      inLongForm(skip);
      say(`seed ${seed}`);
      const startedMs = performance.now();
      const random = createRandom(seed);
      const { service, user } = await startFilledService(random);
      const client = createExportClient(service, user);
      const query = exportQuery(selectors);

      const begunMs = performance.now();
      const undisturbed = await client.waitForEnd((await client.create(query)) ?? '');
      const attemptMs = Math.ceil(performance.now() - begunMs);
      expect(undisturbed.files?.reduce((sum, file) => sum + file.rows, 0)).toBe(events);
      expect(await client.download(undisturbed)).toHaveLength(events + (undisturbed.files?.length ?? 0));
      say(`undisturbed: ${events} rows, ${undisturbed.files?.length ?? 0} parts, ${attemptMs} ms`);

      const seen = await killAll(service, client, query, random, attemptMs);
      // A create call without a response may have created a request, which must end like the others.
      const all = await client.list();
      const figures = {
        ...seen.killed,
        killsMidExport: seen.midExport,
        requests: all.length,
        rightResults: 0,
        wrongResults: 0,
        errors: 0,
        lostRequests: seen.acknowledged.filter((id) => !all.includes(id)).length,
        changedEnds: 0,
        mostInterruptions: 0,
        leftovers: 0,
        orphans: 0,
        minutes: 0,
      };
      for (const id of all) {
        const data = await client.waitForEnd(id);
        figures.mostInterruptions = Math.max(figures.mostInterruptions, countInterruptions(service, id));
        if (data.status === 'Success!') {
          await client.download(data);
          figures[
            JSON.stringify(content(data)) === JSON.stringify(content(undisturbed)) ? 'rightResults' : 'wrongResults'
          ] += 1;
        } else figures.errors += 1;
        // A client saw this end between two kills: it must not change.
        if (seen.ends.has(id) && JSON.stringify(seen.ends.get(id)) !== JSON.stringify(content(data)))
          figures.changedEnds += 1;
      }
      await service.stop();
      figures.orphans = seen.workers.alive().length;
      const leftovers = findLeftovers(service.dataDir);
      figures.leftovers = leftovers.length;
      figures.minutes = Math.round((performance.now() - startedMs) / 6000) / 10;
      recordFinding({
        promise: 'P10',
        what: 'kill -9 of workers, the export role, nats-server and the supervisor in mid-export',
        wanted: `${kills} kills in mid-export: each request one set of files with the bytes of an undisturbed run, no leftovers`,
        figures,
        reached:
          figures.wrongResults +
            figures.errors +
            figures.lostRequests +
            figures.changedEnds +
            figures.leftovers +
            figures.orphans ===
          0,
        ...(figures.errors > 0
          ? {
              shortfall: `${figures.errors} requests ended in the documented error, after as many interruptions as are allowed`,
            }
          : {}),
        seed,
        again: `make chaos PART=export-kills SEED=${seed}${kills === 500 ? '' : ` KILLS=${kills}`}`,
      });
      expect(leftovers).toEqual([]);
      expect(figures).toMatchObject({
        wrongResults: 0,
        errors: 0,
        lostRequests: 0,
        changedEnds: 0,
        orphans: 0,
        rightResults: all.length,
      });
    },
    120_000 + kills * 20_000,
  );
});
