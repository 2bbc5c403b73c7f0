import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import type * as FsPromises from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import type { ReportJob } from '../../../src/reports/reports.ts';
import { openReportStore, type ReportStore } from '../../../src/reports/store.ts';
import { renderChecksummed } from '../../../src/runtime/files/checksummed-json.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { testFolder } from '../../helpers/folder.ts';

const calls = vi.hoisted(() => ({ made: 0, syncs: 0 }));

// Counts the calls to the file system, which determine the duration of a start.
vi.mock('node:fs/promises', async (importOriginal) => {
  const fs = await importOriginal<typeof FsPromises>();
  const counted = Object.entries(fs).map(([name, value]: [string, unknown]) => {
    if (typeof value !== 'function' || name === 'open') return [name, value];
    return [name, (...given: unknown[]) => ((calls.made += 1), (value as (...given: unknown[]) => unknown)(...given))];
  });
  const openCounted = async (...given: Parameters<typeof fs.open>): Promise<FsPromises.FileHandle> => {
    calls.made += 1;
    const handle = await fs.open(...given);
    const sync = handle.sync.bind(handle);
    handle.sync = () => ((calls.syncs += 1), sync());
    return handle;
  };
  return { ...Object.fromEntries(counted), open: openCounted };
});

const nowMs = 1_700_000_000_000;
const never = new AbortController().signal;

function jobOf(id: number, change: Partial<ReportJob> = {}): ReportJob {
  return {
    id,
    idUser: '1',
    idAccount: 1,
    createdMs: nowMs - 10_000,
    state: 'canceled',
    attempts: 1,
    event: 'customEvents',
    nonce: '0'.repeat(32),
    request: {},
    finishedMs: nowMs - 5000,
    expiresSeconds: nowMs / 1000 + 60,
    ...change,
  };
}

function put(folder: string, job: ReportJob): void {
  mkdirSync(path.join(folder, String(job.id)));
  writeFileSync(path.join(folder, String(job.id), 'job.json'), renderChecksummed({ ...job }));
}

/** A folder of ended requests, with ids from 1 on. */
function historyOf(count: number): string {
  const folder = testFolder();
  for (let id = 1; id <= count; id += 1) put(folder, jobOf(id));
  return folder;
}

function open(reportsDir: string, readFirst = 5): Promise<ReportStore> {
  return openReportStore({ nowMs: () => nowMs }, createLogger('silent'), { reportsDir, linkTtlSeconds: 60, readFirst });
}

async function countCalls(work: () => Promise<unknown>): Promise<{ made: number; syncs: number }> {
  Object.assign(calls, { made: 0, syncs: 0 });
  await work();
  return { ...calls };
}

describe('the requests of earlier processes', () => {
  it('Few or many requests of earlier processes delay a start by the same time, without a sync each', async () => {
    const [few, many] = [historyOf(300), historyOf(1200)];
    const ofFew = await countCalls(() =>
      openReportStore({ nowMs: () => nowMs }, createLogger('silent'), { reportsDir: few, linkTtlSeconds: 60 }),
    );
    const ofMany = await countCalls(() =>
      openReportStore({ nowMs: () => nowMs }, createLogger('silent'), { reportsDir: many, linkTtlSeconds: 60 }),
    );
    expect(ofMany).toEqual(ofFew);
    expect(ofMany.syncs).toBeLessThan(10);
  });

  it('Requests of earlier processes are read later without a sync each', async () => {
    const store = await open(historyOf(100));
    expect((await countCalls(() => store.load(never))).syncs).toBe(0);
    expect(store.list()).toHaveLength(100);
  });

  it('Requests of earlier processes are found by their own file before they are loaded, and are durable then', async () => {
    const folder = historyOf(50);
    const store = await open(folder);
    const cost = await countCalls(async () => expect(await store.find(3)).toEqual(jobOf(3)));
    expect(cost.syncs).toBe(1);
    expect(await countCalls(() => store.find(3))).toEqual({ made: 0, syncs: 0 });
    expect(await countCalls(async () => expect(await store.find(51)).toBeUndefined())).toEqual({ made: 0, syncs: 0 });
    expect(store.count()).toBe(50);
  });

  it('Requests of earlier processes keep their ids, from the first creation on', async () => {
    const store = await open(historyOf(50), 0);
    expect((await store.create({ idUser: '1', idAccount: 1, event: 'customEvents', request: {} })).id).toBe(51);
  });

  it('Unfinished requests of earlier processes are known at once among the newest, and otherwise once they are read', async () => {
    const folder = historyOf(0);
    for (let id = 1; id <= 40; id += 1)
      put(folder, id % 10 === 0 ? jobOf(id, { state: id === 40 ? 'queued' : 'running' }) : jobOf(id));
    const store = await open(folder);
    expect(store.inProgress().map(({ id }) => id)).toEqual([40]);
    let told = 0;
    await store.load(never, () => (told += 1));
    expect(store.inProgress().map(({ id }) => id)).toEqual([10, 20, 30, 40]);
    expect(told).toBe(3);
    const { job } = await store.beginAttempt(10);
    expect(job).toMatchObject({ state: 'running', attempts: 1, interruptions: 1 });
  });

  it('The list of requests of earlier processes is complete and durable once they are read', async () => {
    const store = await open(historyOf(30));
    await store.load(never);
    const cost = await countCalls(async () => expect(await store.select(({ id }) => id <= 7)).toHaveLength(7));
    expect(cost.syncs).toBe(7);
  });

  it('Leftovers of a crash are removed when a request is read, and the id of a folder without a request stays used', async () => {
    const folder = historyOf(20);
    mkdirSync(path.join(folder, '2', 'attempt-1'));
    writeFileSync(path.join(folder, '3', 'job.json.1.2.tmp'), '');
    mkdirSync(path.join(folder, '21'));
    const store = await open(folder, 0);
    await store.load(never);
    expect(readdirSync(path.join(folder, '2'))).toEqual(['job.json']);
    expect(readdirSync(path.join(folder, '3'))).toEqual(['job.json']);
    expect(readdirSync(folder)).not.toContain('21');
    expect(
      (await (await open(folder)).create({ idUser: '1', idAccount: 1, event: 'customEvents', request: {} })).id,
    ).toBe(22);
  });

  it('Damaged requests of earlier processes are reported and not served, for a lookup and a load', async () => {
    const folder = historyOf(20);
    for (const id of [4, 5]) writeFileSync(path.join(folder, String(id), 'job.json'), '{"version":2');
    const store = await open(folder);
    expect(await store.find(4)).toBeUndefined();
    expect(store.damaged()).toHaveLength(1);
    await store.load(never);
    expect(store.damaged()).toHaveLength(2);
    expect(await store.find(5)).toBeUndefined();
    expect(store.list()).toHaveLength(18);
  });

  it('Changes by this process to requests of earlier processes survive their load', async () => {
    const folder = historyOf(200);
    put(folder, jobOf(201, { state: 'queued' }));
    for (let id = 202; id <= 230; id += 1) put(folder, jobOf(id));
    const store = await open(folder);
    const loading = store.load(never);
    expect(await store.find(201)).toMatchObject({ state: 'queued' });
    await store.end(201, { state: 'canceled' });
    await store.remove(100);
    await loading;
    expect(await store.find(201)).toMatchObject({ state: 'canceled' });
    expect(await store.find(100)).toBeUndefined();
  });

  it('A stop of the process ends the load of requests of earlier processes', async () => {
    const store = await open(historyOf(100));
    await store.load(AbortSignal.abort());
    expect(store.list()).toHaveLength(5);
  });
});
