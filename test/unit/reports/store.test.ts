import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { NewReport, ReportFile } from '../../../src/reports/reports.ts';
import { openReportStore, type ReportStore } from '../../../src/reports/store.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { testFolder } from '../../helpers/folder.ts';

const nowMs = 1_700_000_000_500;
const report: NewReport = { idUser: '1', idAccount: 1, event: 'customEvents', request: {} };
const file: ReportFile = { name: 'a.csv', rows: 1, bytes: 4, sha256: '0'.repeat(64) };

function open(reportsDir: string): Promise<ReportStore> {
  return openReportStore({ nowMs: () => nowMs }, createLogger('silent'), { reportsDir, linkTtlSeconds: 60 });
}

describe('the report store', () => {
  it('The report store allocates growing ids, each once, for many concurrent callers', async () => {
    const store = await open(testFolder());
    const jobs = await Promise.all(Array.from({ length: 20 }, () => store.create(report)));
    expect(jobs.map((job) => job.id)).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
  });

  it('The report store never reuses an id, not even after its request was deleted and the process restarted', async () => {
    const folder = testFolder();
    const first = await open(folder);
    for (let count = 0; count < 3; count += 1) await first.create(report);
    for (const id of [1, 2, 3]) await first.remove(id);
    expect(readdirSync(folder).filter((name) => /^\d+$/.test(name))).toEqual([]);
    const second = await open(folder);
    expect((await second.create(report)).id).toBe(4);
  });

  it('The report store leaves nothing of a request that it could not make durable', async () => {
    const folder = testFolder();
    // The path is so long that a request's folder can be created, and the temporary file in it cannot.
    const deep = (length: number): string =>
      path
        .join(folder, ...Array.from({ length: 100 }, () => 'd'.repeat(99)))
        .slice(0, length)
        .replace(/\/$/, 'd');
    const store = await open(deep(4080));
    await expect(store.create(report)).rejects.toMatchObject({ code: 'ENAMETOOLONG' });
    expect([readdirSync(deep(4080)), store.list()]).toEqual([[], []]);
  });

  it('The report store keeps requests over a restart, with their state', async () => {
    const folder = testFolder();
    const first = await open(folder);
    const { id } = await first.create(report);
    await first.beginAttempt(id);
    await first.create(report);
    await first.end(2, { state: 'failed', error: 'why' });
    const second = await open(folder);
    expect(await second.find(id)).toMatchObject({ state: 'running', attempts: 1 });
    expect(await second.find(2)).toMatchObject({
      state: 'failed',
      error: 'why',
      finishedMs: nowMs,
      expiresSeconds: 1_700_000_060,
    });
  });

  it('The report store publishes the folder of the attempt that succeeded, and removes those that did not', async () => {
    const folder = testFolder();
    const store = await open(folder);
    const { id } = await store.create(report);
    const lost = await store.beginAttempt(id);
    writeFileSync(path.join(lost.folder, 'half.csv'), 'x');
    const { folder: attempt } = await store.beginAttempt(id);
    expect(existsSync(lost.folder)).toBe(false);
    writeFileSync(path.join(attempt, file.name), 'a\n1\n');
    await store.end(id, { state: 'success', files: [file] }, attempt);
    expect(readdirSync(path.join(folder, String(id))).toSorted()).toEqual(['job.json', 'parts']);
    expect(existsSync(path.join(folder, String(id), 'parts', file.name))).toBe(true);
  });

  it('The report store ignores an attempt whose worker ends late, after the next attempt has begun', async () => {
    const folder = testFolder();
    const store = await open(folder);
    const { id } = await store.create(report);
    const late = await store.beginAttempt(id);
    const current = await store.beginAttempt(id);
    mkdirSync(late.folder);
    writeFileSync(path.join(late.folder, 'half.csv'), 'x');
    writeFileSync(path.join(current.folder, file.name), 'a\n1\n');
    for (const as of ['failure', 'interruption', 'nothing'] as const) await store.releaseAttempt(id, late.folder, as);
    mkdirSync(late.folder);
    const lateEnd = await store.end(id, { state: 'success', files: [] }, late.folder);
    expect(lateEnd).toEqual({ job: current.job, isOwn: false });
    expect(existsSync(late.folder)).toBe(false);
    const end = await store.end(id, { state: 'success', files: [file] }, current.folder);
    expect(end.job).toMatchObject({ state: 'success', attempts: 1, interruptions: 1, files: [file] });
    expect(end.isOwn).toBe(true);
    expect(existsSync(path.join(folder, String(id), 'parts', file.name))).toBe(true);
    expect(await store.end(id, { state: 'success', files: [] }, late.folder)).toEqual({ job: end.job, isOwn: false });
  });

  it('The report store publishes no attempt that was released', async () => {
    const store = await open(testFolder());
    const { id } = await store.create(report);
    for (const as of ['failure', 'nothing'] as const) {
      const { folder: attempt } = await store.beginAttempt(id);
      await store.releaseAttempt(id, attempt, as);
      mkdirSync(attempt);
      expect(await store.end(id, { state: 'success', files: [file] }, attempt)).toMatchObject({ job: { state: 'queued' }, isOwn: false });
      expect(existsSync(attempt)).toBe(false);
    }
  });

  it('The report store ends a request by an attempt without a result, which counts, unless it was overtaken', async () => {
    const store = await open(testFolder());
    const { id } = await store.create(report);
    const late = await store.beginAttempt(id);
    const { folder: attempt } = await store.beginAttempt(id);
    const failed = { state: 'user_failed', error: 'why' } as const;
    expect(await store.end(id, failed, late.folder, 'failure')).toMatchObject({ isOwn: false });
    expect(await store.find(id)).toMatchObject({ state: 'running', attempts: 1, interruptions: 1 });
    expect(await store.end(id, failed, attempt, 'failure')).toMatchObject({ isOwn: true });
    expect(await store.find(id)).toMatchObject({ ...failed, attempts: 1, interruptions: 1 });
    expect(existsSync(attempt)).toBe(false);
  });

  it('The report store ends a request once: the first end stays', async () => {
    const store = await open(testFolder());
    const { id } = await store.create(report);
    const { folder: attempt } = await store.beginAttempt(id);
    await store.end(id, { state: 'canceled' });
    expect(await store.end(id, { state: 'success', files: [file] }, attempt)).toMatchObject({ job: { state: 'canceled' }, isOwn: false });
    expect(existsSync(attempt)).toBe(false);
    await expect(store.beginAttempt(id)).rejects.toMatchObject({ code: 'conflict' });
  });

  it('The report store removes what a crash left: a folder without its request, unpublished files, attempts', async () => {
    const folder = testFolder();
    const first = await open(folder);
    const { id } = await first.create(report);
    await first.beginAttempt(id);
    mkdirSync(path.join(folder, String(id), 'parts'));
    mkdirSync(path.join(folder, '2'));
    writeFileSync(path.join(folder, 'highest-id.7.0.tmp'), '');
    const second = await open(folder);
    expect(readdirSync(path.join(folder, String(id)))).toEqual(['job.json']);
    expect(readdirSync(folder).toSorted()).toEqual([String(id), 'highest-id']);
    expect((await second.create(report)).id).toBe(3);
  });

  it('The report store with a damaged highest id serves its requests, and creates others once the id is restored', async () => {
    const folder = testFolder();
    const first = await open(folder);
    const { id } = await first.create(report);
    await first.end(id, { state: 'canceled' });
    await first.remove(id);
    await first.create(report);
    const highest = path.join(folder, 'highest-id');
    const whole = readFileSync(highest);
    writeFileSync(highest, '7');
    const second = await open(folder);
    expect(await second.find(2)).toMatchObject({ state: 'queued' });
    expect(second.damaged()).toEqual([expect.stringContaining('highest-id is damaged')]);
    await expect(second.create(report)).rejects.toMatchObject({ code: 'report_damaged' });
    writeFileSync(highest, whole);
    expect((await second.create(report)).id).toBe(3);
  });

  it('The report store leaves a damaged request alone and serves the others', async () => {
    const folder = testFolder();
    const first = await open(folder);
    await first.create(report);
    await first.create(report);
    writeFileSync(path.join(folder, '1', 'job.json'), '{"version":1,');
    const second = await open(folder);
    expect(await second.find(1)).toBeUndefined();
    expect(await second.find(2)).toMatchObject({ state: 'queued' });
    expect((await second.create(report)).id).toBe(3);
  });

  it('The report store does not count an attempt that failed without the fault of the request', async () => {
    const store = await open(testFolder());
    const { id } = await store.create(report);
    const first = await store.beginAttempt(id);
    await store.releaseAttempt(id, first.folder, 'nothing');
    expect(await store.find(id)).toMatchObject({ state: 'queued', attempts: 0 });
    const second = await store.beginAttempt(id);
    await store.releaseAttempt(id, second.folder, 'failure');
    expect(await store.find(id)).toMatchObject({ state: 'queued', attempts: 1 });
  });

  it('The report store distinguishes an interrupted attempt, of a worker or its process, from a failed one', async () => {
    const folder = testFolder();
    const store = await open(folder);
    const { id } = await store.create(report);
    await store.releaseAttempt(id, (await store.beginAttempt(id)).folder, 'interruption');
    expect(await store.find(id)).toMatchObject({ state: 'queued', attempts: 0, interruptions: 1 });
    await store.beginAttempt(id);
    const after = await open(folder);
    await after.releaseAttempt(id, (await after.beginAttempt(id)).folder, 'failure');
    expect(await after.find(id)).toMatchObject({ state: 'queued', attempts: 1, interruptions: 2 });
  });

  it('The report store changes a request as it is stored, and overwrites no end that it did not write', async () => {
    const folder = testFolder();
    const store = await open(folder);
    const { id } = await store.create(report);
    const { folder: attempt } = await store.beginAttempt(id);
    writeFileSync(path.join(attempt, file.name), 'a\n1\n');
    await (await open(folder)).end(id, { state: 'canceled' });
    mkdirSync(attempt, { recursive: true });
    writeFileSync(path.join(attempt, file.name), 'a\n1\n');
    expect(await store.end(id, { state: 'success', files: [file] }, attempt)).toMatchObject({ job: { state: 'canceled' }, isOwn: false });
    expect(store.inProgress()).toEqual([]);
    await expect(store.beginAttempt(id)).rejects.toMatchObject({ code: 'conflict' });
  });

  it('The report store reads a request again after a change failed', async () => {
    const folder = testFolder();
    const store = await open(folder);
    const { id } = await store.create(report);
    const stored = path.join(folder, String(id), 'job.json');
    const whole = readFileSync(stored);
    writeFileSync(stored, 'damaged');
    await expect(store.beginAttempt(id)).rejects.toMatchObject({ code: 'report_damaged' });
    expect([await store.find(id), store.damaged()]).toMatchObject([
      { state: 'queued' },
      [expect.stringContaining('job.json is damaged')],
    ]);
    writeFileSync(stored, whole);
    expect([await store.find(id), store.damaged()]).toMatchObject([{ state: 'queued' }, []]);
    expect((await store.beginAttempt(id)).job).toMatchObject({ state: 'running', attempts: 1 });
  });

  it('The report store keeps the recorded progress over a crash', async () => {
    const folder = testFolder();
    const first = await open(folder);
    const { id } = await first.create(report);
    const shown = await Promise.all([
      first.showProgress(id, 30),
      first.showProgress(id, 40),
      first.showProgress(id, 35),
    ]);
    expect(shown).toEqual([30, 40, 40]);
    expect(await (await open(folder)).showProgress(id, 0)).toBe(40);
  });
});
