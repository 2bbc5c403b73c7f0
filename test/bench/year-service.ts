import { mkdtempSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { statusCommand } from '../../src/cli/status.ts';
import type { Compactor } from '../../src/compact/wait-for-repair.ts';
import { createDueRows } from '../../src/compact/seal/seal-policy.ts';
import { sealDueFiles } from '../../src/compact/seal/seal.ts';
import { events } from '../../src/datasets/dataset.ts';
import { createEventFinder, type EventFinder } from '../../src/event-lookup/finder.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { createClock } from '../../src/runtime/clock.ts';
import { noCrashPoint } from '../../src/runtime/crash-point.ts';
import { eventLine, newEventId, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream, type MemoryStream } from '../helpers/memory-stream.ts';
import { runCommandHere } from '../helpers/run-command.ts';
import { openBenchLake } from './bench-lake.ts';
import { median } from './bench-report.ts';

/** Duration of some work and the CPU time of this process meanwhile, ms. */
export interface WorkCost {
  readonly ms: number;
  readonly cpuMs: number;
}

/** Costs of the service's work on a lake. */
export interface ServiceCost {
  /** From the publication of a batch until it is purged from the stream. */
  readonly flush: WorkCost;
  readonly seal: WorkCost;
  /** From the start of the compactor until it takes events. */
  readonly start: WorkCost;
  readonly status: WorkCost;
  readonly lookup: WorkCost;
}

/** An event that a lookup has to find. */
export interface Asked {
  readonly idApp: number;
  readonly eventId: string;
}

/** A lake on which the service's work is measured. */
export interface MeasuredLake {
  readonly folder: string;
  readonly stream: MemoryStream;
  readonly finder: EventFinder;
  readonly asked: readonly Asked[];
}

const flushes = 5;
const messagesOfFlush = 10;
const linesOfMessage = 1000;
/** Part of a core below which the maintenance is idle: the stream in memory is polled meanwhile. */
const restingPart = 0.15;
/** The maintenance pauses for up to a tenth of this age between its tasks, and looks for notices after twice this age. */
const sealAgeMs = 10_000;
const sampleMs = 500;

/** Prepares a lake, whose events are `asked`. */
export function openMeasuredLake(folder: string, asked: readonly Asked[]): MeasuredLake {
  const finder = createEventFinder({
    lakeDir: path.join(folder, 'lake'),
    indexDir: path.join(folder, 'event-index'),
    workDir: path.join(folder, 'find'),
    readBacklog: async () => 'complete',
  });
  return { folder, stream: createMemoryStream(), finder, asked };
}

/** Measures some work in this process. */
export async function costOf(work: () => Promise<unknown>): Promise<WorkCost> {
  const [cpuBefore, startedAt] = [process.cpuUsage(), performance.now()];
  await work();
  const ms = performance.now() - startedAt;
  const { user, system } = process.cpuUsage(cpuBefore);
  return { ms, cpuMs: (user + system) / 1000 };
}

/** Returns the medians of some costs. */
export function medianCost(costs: readonly WorkCost[]): WorkCost {
  return { ms: median(costs.map(({ ms }) => ms)), cpuMs: median(costs.map(({ cpuMs }) => cpuMs)) };
}

/** Waits until this process has used little of a core for a while; returns false if it has not after `mostMs`. */
async function waitForRest(restMs: number, mostMs: number): Promise<boolean> {
  const startedAt = performance.now();
  let restingSince = startedAt;
  while (performance.now() - restingSince < restMs) {
    if (performance.now() - startedAt > mostMs) return false;
    const [before, beforeMs] = [process.cpuUsage(), performance.now()];
    await sleep(sampleMs);
    const { user, system } = process.cpuUsage(before);
    const nowMs = performance.now();
    if ((user + system) / 1000 > restingPart * (nowMs - beforeMs)) restingSince = nowMs;
  }
  return true;
}

/** Runs the compactor until its maintenance has done what a lake needs, for `mostMs` if it does not come to rest. */
export async function maintain(folder: string, mostMs: number): Promise<WorkCost & { readonly isIdle: boolean }> {
  const restMs = 2 * sealAgeMs;
  const compactor = await startTestCompact(folder, createMemoryStream(), { sealAgeMs, duckdbMemoryMb: 2048 });
  try {
    let isIdle = false;
    const { ms, cpuMs } = await costOf(async () => void (isIdle = await waitForRest(restMs, mostMs)));
    return { ms: isIdle ? ms - restMs : ms, cpuMs, isIdle };
  } finally {
    await compactor.stop();
  }
}

/** Publishes a batch and waits until it is purged, except its last message. */
async function flushBatch(stream: MemoryStream): Promise<void> {
  let last = 0;
  for (let message = 0; message < messagesOfFlush; message += 1) {
    const nowMs = Date.now();
    const lines = Array.from({ length: linesOfMessage }, (_, index) =>
      eventLine({
        event_id: newEventId(nowMs),
        kind: 'custom_event',
        id_app: 1 + (index % 100),
        custom_user_id: `user-${index}`,
        custom_event_name: 'level_start',
      }),
    );
    last = stream.publish(lines);
  }
  while ((stream.sequences[0] ?? 0) < last) await sleep(1);
}

/** Seals the young rows of a lake whose compactor is stopped. */
async function sealHour(folder: string): Promise<WorkCost> {
  const lakeDir = path.join(folder, 'lake');
  const table = await openBenchLake(folder);
  const duckdb = await openDuckdb({
    memoryMb: 512,
    threads: 1,
    tempDir: mkdtempSync(path.join(folder, 'spill-')),
    boundRowGroups: true,
  });
  const due = { sealAgeMs: 0, sealMaxBytes: 128 * 1024 ** 2 };
  try {
    return await costOf(async () => {
      const sealed = await sealDueFiles(
        {
          dataset: events,
          table,
          duckdb,
          clock: createClock(0),
          crashPoint: noCrashPoint,
          stagingDir: lakePaths(lakeDir).staging,
          dueRows: createDueRows(due),
        },
        due,
        new Map(),
      );
      if (sealed?.rows !== flushes * messagesOfFlush * linesOfMessage)
        throw new Error(`the seal had ${sealed?.rows} rows`);
    });
  } finally {
    duckdb.close();
  }
}

/** Runs `tributary status` in this process. */
async function readStatus(folder: string): Promise<void> {
  const { signal } = new AbortController();
  let files: unknown;
  await runCommandHere(statusCommand, ['--data', folder], {
    environment: {},
    entry: '',
    printResult: (value) => void (files = (value as { lake?: { files?: unknown } }).lake?.files),
    print: () => undefined,
    printMessage: () => undefined,
    stop: signal,
    force: signal,
  });
  if (typeof files !== 'number') throw new Error('the status has no lake');
}

/** Looks up events one after the other; returns the median. */
async function lookUp({ finder, asked }: MeasuredLake): Promise<WorkCost> {
  const costs: WorkCost[] = [];
  for (const { idApp, eventId } of asked) {
    const target = { eventId, idApp };
    const deadlineMs = performance.now() + 60_000;
    costs.push(
      await costOf(async () => {
        const { state } = await finder.find({ target, idApps: [idApp], deadlineMs });
        if (state !== 'in_lake') throw new Error(`event ${eventId} is ${state}`);
      }),
    );
  }
  return medianCost(costs);
}

/** Measures the service's work once; the batches of the flushes stay in the lake, sealed. */
export async function measureService(lake: MeasuredLake): Promise<ServiceCost> {
  const { folder, stream } = lake;
  const compacting: Compactor[] = [];
  const start = await costOf(async () =>
    compacting.push(await startTestCompact(folder, stream, { duckdbMemoryMb: 2048 })),
  );
  const costs: WorkCost[] = [];
  try {
    await waitForRest(3000, 60_000);
    for (let flush = 0; flush < flushes; flush += 1) costs.push(await costOf(() => flushBatch(stream)));
  } finally {
    for (const compactor of compacting) await compactor.stop();
  }
  return {
    flush: medianCost(costs),
    seal: await sealHour(folder),
    start,
    status: await costOf(() => readStatus(folder)),
    lookup: await lookUp(lake),
  };
}
