import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { partKey, raiseHighestId } from '../../../src/reports/report-records.ts';
import { fileStem, type NewReport, type ReportJob } from '../../../src/reports/reports.ts';
import type { ReportStore } from '../../../src/reports/store.ts';
import { createRandom } from '../../helpers/export-events.ts';
import { createExportHosts, writeResult, type ExportHost } from '../../helpers/export-hosts.ts';
import { startFakeS3, type FakeS3 } from '../../helpers/fake-s3.ts';
import { isWhole } from '../../helpers/in-turn.ts';
import { waitFor } from '../../helpers/wait.ts';

const report: NewReport = { idUser: '1', idAccount: 1, event: 'customEvents', request: {} };
const failed = { state: 'failed', error: 'why' } as const;
const seeds = isWhole ? 200 : 2;

/** Opens the requests on some hosts. */
async function openStores(count: number, server?: FakeS3) {
  const hosts = await createExportHosts(server ?? (await startFakeS3()), count);
  const stores = await Promise.all(hosts.map((host) => host.open()));
  return { hosts, stores } as {
    hosts: [ExportHost, ExportHost, ...ExportHost[]];
    stores: [ReportStore, ReportStore, ...ReportStore[]];
  };
}

/** Opens the requests on two hosts. */
async function openPair() {
  const {
    hosts: [host],
    stores: [one, other],
  } = await openStores(2);
  return { host, one, other };
}

/** Follows the changes of other hosts until the test ends. */
function follow(store: ReportStore) {
  const changes: (readonly [number, ReportJob['state'] | undefined])[] = [];
  const following = store.follow((id, job) => void changes.push([id, job?.state]));
  onTestFinished(() => following.stop());
  return changes;
}

/** Begins an attempt and writes its file. */
async function begin(store: ReportStore, id: number, text: string) {
  const { job, folder } = await store.beginAttempt(id);
  return { job, folder, files: [writeResult({ folder, stem: fileStem(job) }, text)] };
}

describe('export requests that several hosts share', () => {
  it('A request of one host is found on another one at once, in lists after a refresh, and its end within a second', async () => {
    const { one, other } = await openPair();
    const { id } = await one.create(report);
    expect(other.list()).toEqual([]);
    await other.refresh();
    expect(other.inProgress()).toMatchObject([{ id, state: 'queued' }]);
    const next = await one.create(report);
    expect(await other.find(next.id)).toEqual(next);
    const changes = follow(other);
    await one.end(id, failed);
    await waitFor('the end is seen', () => changes.length > 0, 5000);
    expect(changes).toEqual([[id, 'failed']]);
    expect(other.lastRead(id)).toEqual(await one.find(id));
    expect(other.inProgress().map((job) => job.id)).toEqual([next.id]);
    expect(await other.find(99)).toBeUndefined();
  });

  it('A host follows what others create, run, end and remove, and not what it does itself', async () => {
    const { one, other } = await openPair();
    const changes = follow(other);
    const own = await other.create(report);
    await other.end(own.id, failed);
    const { id } = await one.create(report);
    await waitFor('it is seen', () => changes.length === 1);
    await one.beginAttempt(id);
    await waitFor('its attempt is seen', () => changes.length === 2);
    await one.remove(id);
    await waitFor('its removal is seen', () => changes.length === 3);
    expect(changes).toEqual([
      [id, 'queued'],
      [id, 'running'],
      [id, undefined],
    ]);
    expect([other.lastRead(id), await other.find(id), other.count()]).toEqual([undefined, undefined, 1]);
  });

  it('The newest state of a request that was just read is read again', async () => {
    const { one, other } = await openPair();
    const { id } = await one.create(report);
    expect(await other.find(id)).toMatchObject({ state: 'queued' });
    await one.end(id, failed);
    expect(await other.find(id, 'newest')).toMatchObject(failed);
  });

  it('A slow response does not undo a later change', async () => {
    const server = await startFakeS3();
    const {
      hosts: [{ network }],
      stores: [one],
    } = await openStores(2, server);
    const { id } = await one.create(report);
    const createdMs = performance.now();
    await waitFor('it is read again before its use', () => performance.now() - createdMs > 300);
    let isSlow = true;
    network.faultOf = ({ method }) => {
      const found = server.objects.get(`hosts/reports/${id}/job.json`);
      if (method !== 'GET' || !isSlow || found === undefined) return undefined;
      isSlow = false;
      return { isDone: false, answer: { status: 200, headers: { etag: found.etag }, body: found.bytes }, delayMs: 500 };
    };
    const reading = one.find(id);
    await waitFor('the request is in flight', () => !isSlow);
    await one.end(id, failed);
    expect(await reading).toMatchObject(failed);
    expect([one.lastRead(id), one.inProgress()]).toMatchObject([failed, []]);
  });

  it('A host that starts knows the earlier requests, and takes none of their ends for news', async () => {
    const {
      hosts,
      stores: [one],
    } = await openStores(2);
    for (let count = 0; count < 9; count += 1) await one.create(report);
    for (const id of [1, 2, 9]) await one.end(id, failed);
    const late = await hosts[1].open(4);
    const changes = follow(late);
    expect(late.isLoaded()).toBe(false);
    expect(await late.find(1)).toMatchObject(failed);
    const open: number[] = [];
    await late.load(new AbortController().signal, () => void open.push(1));
    expect([late.isLoaded(), late.count(), late.inProgress().length, open.length]).toEqual([true, 9, 6, 3]);
    expect(changes).toEqual([]);
  });

  it('A host drops requests that others removed, and finds those whose new id it did not see', async () => {
    const {
      hosts: [, host],
      stores: [one, other],
    } = await openStores(2);
    const objects = host.objects;
    const { id } = await one.create(report);
    await other.find(id);
    await one.end(id, failed);
    await waitFor('the end is seen', async () => (await other.find(id))?.state === 'failed');
    await one.remove(id);
    expect(other.count()).toBe(1);
    await raiseHighestId(objects, (highest) => highest + 5000);
    const next = await one.create(report);
    // What a killed removal leaves.
    await objects.create('77/progress', Buffer.from('5'));
    const changes = follow(other);
    await waitFor('all ids are listed', () => changes.length === 2);
    expect(changes.toSorted(([a], [b]) => a - b)).toEqual([
      [id, undefined],
      [next.id, 'queued'],
    ]);
    expect(other.list().map((job) => job.id)).toEqual([next.id]);
    await waitFor('the rest of a removal is removed', async () => (await objects.list('77/')).length === 0);
  });

  it(`No id is used twice while hosts create, remove and start (${seeds} seeds)`, async () => {
    for (let seed = 1; seed <= seeds; seed += 1) {
      const { hosts, stores } = await openStores(3);
      const random = createRandom(seed);
      const seen: number[] = [];
      const step = async (): Promise<void> => {
        const index = random(stores.length);
        const store = stores[index] as ReportStore;
        const action = random(10);
        if (action === 0) stores[index] = await (hosts[index] as ExportHost).open();
        else if (action < 4 && seen.length > 0) await store.remove(seen[random(seen.length)] as number);
        else seen.push((await store.create(report)).id);
      };
      for (let round = 0; round < 6; round += 1) await Promise.all([step(), step(), step(), step()]);
      expect(new Set(seen).size, `seed ${seed}: ${seen.join()}`).toBe(seen.length);
    }
  }, 120_000);

  it('A reserved id gives one request, even if several hosts create it', async () => {
    const { stores } = await openStores(3);
    const id = await stores[0].reserveId();
    const jobs = await Promise.all([...stores, ...stores].map((store) => store.create(report, id)));
    expect(new Set(jobs.map((job) => job.nonce)).size).toBe(1);
    expect(jobs[0]).toMatchObject({ id, state: 'queued' });
    expect((await stores[1].create(report)).id).toBe((id ?? 0) + 1);
  });

  it('A damaged request is reported by each host, and does not hide the others', async () => {
    const { host, one, other } = await openPair();
    const changes = follow(other);
    await host.objects.create('1/job.json', Buffer.from('{'));
    await raiseHighestId(host.objects, () => 1);
    const { id } = await one.create(report);
    await waitFor('the other one is seen', () => changes.length > 0);
    expect(changes).toEqual([[id, 'queued']]);
    expect(other.damaged()).toEqual([expect.stringContaining('1/job.json is damaged')]);
    expect(await other.find(1)).toBeUndefined();
  });

  it('Requests are served while the highest id is damaged, and created once it is repaired', async () => {
    const { host, one, other } = await openPair();
    const { id } = await one.create(report);
    const objects = host.objects;
    const whole = await objects.get('highest-id');
    await objects.replace('highest-id', Buffer.from('7'), 'any');
    await other.refresh();
    expect(await other.find(id)).toMatchObject({ id });
    expect(other.damaged()).toEqual([expect.stringContaining('highest-id is damaged')]);
    await expect(other.create(report)).rejects.toMatchObject({ code: 'report_damaged' });
    await objects.replace('highest-id', whole?.bytes ?? Buffer.from(''), 'any');
    expect((await other.create(report)).id).toBe(id + 1);
    await other.refresh();
    expect(other.damaged()).toEqual([]);
  });

  it(`The progress that any host shows never decreases (${seeds} seeds)`, async () => {
    const { stores } = await openStores(3);
    const [one] = stores;
    for (let seed = 1; seed <= seeds; seed += 1) {
      const random = createRandom(seed);
      const { id } = await one.create(report);
      let shown = 0;
      for (let round = 0; round < 8; round += 1) {
        const together = await Promise.all(
          Array.from({ length: 3 }, () => (stores[random(3)] as ReportStore).showProgress(id, random(100))),
        );
        expect(Math.min(...together), `seed ${seed}`).toBeGreaterThanOrEqual(shown);
        shown = Math.max(...together);
      }
    }
  });

  it('The host that runs a request notes its progress for the others, and the note ends with the request', async () => {
    const { host, one, other } = await openPair();
    const { id } = await one.create(report);
    one.noteProgress(id, 40);
    await waitFor('it is noted', async () => (await other.showProgress(id, 0)) === 40);
    expect(await one.showProgress(id, 30)).toBe(40);
    await one.end(id, failed);
    expect(await host.objects.list(`${id}/`)).toEqual([`${id}/job.json`]);
  });
});

describe('attempts on several hosts', () => {
  it.each([
    ['first', true],
    ['last', false],
  ])('Of the attempts of two hosts, the earlier one ends %s and publishes nothing', async (_name, isFirst) => {
    const { host, one, other } = await openPair();
    const { id } = await one.create(report);
    const attempts = [
      { store: one, ...(await begin(one, id, 'a\n1\n')) },
      { store: other, ...(await begin(other, id, 'a\n2\n')) },
    ];
    const ends: boolean[] = [];
    for (const { store, folder, files } of isFirst ? attempts : attempts.toReversed())
      ends.push((await store.end(id, { state: 'success', files }, folder)).isOwn);
    expect(ends).toEqual(isFirst ? [false, true] : [true, false]);
    const job = await (await host.open()).find(id);
    expect(job).toMatchObject({ state: 'success', attempts: 1, interruptions: 1, files: attempts[1]?.files });
    const key = partKey(job ?? { id }, job?.files?.[0]?.name ?? '');
    expect(await host.objects.list(`${id}/parts/`)).toEqual([key]);
    for (const { folder } of attempts) expect(existsSync(path.dirname(folder))).toBe(false);
  });

  it('An attempt that was overtaken neither fails, cancels nor releases the request', async () => {
    const { one, other } = await openPair();
    const { id } = await one.create(report);
    const late = await begin(one, id, 'a\n1\n');
    const current = await begin(other, id, 'a\n2\n');
    const before = await other.find(id);
    for (const as of ['failure', 'interruption', 'nothing'] as const) {
      await one.releaseAttempt(id, late.folder, as);
      expect(await one.end(id, failed, late.folder, as)).toMatchObject({ isOwn: false });
    }
    expect(await other.find(id)).toEqual(before);
    expect(await other.end(id, { state: 'success', files: current.files }, current.folder)).toMatchObject({
      isOwn: true,
    });
  });

  it('A host that starts leaves the files of an attempt on another host, and removes its own work folders', async () => {
    const {
      hosts: [host, second],
      stores: [one],
    } = await openStores(2);
    const { id } = await one.create(report);
    const { job, folder } = await begin(one, id, 'a\n1\n');
    const { objects } = host;
    await objects.create(partKey(job, 'a.csv'), Buffer.from('a'));
    const left = path.join(second.reportsDir, '7', 'attempt-1');
    mkdirSync(left, { recursive: true });
    // A folder that was a store has requests, which are left alone.
    const stored = path.join(second.reportsDir, '8', 'job.json');
    mkdirSync(path.join(path.dirname(stored), 'attempt-1'), { recursive: true });
    writeFileSync(stored, '{}');
    const other = await second.open();
    expect([path.dirname(left), stored, folder].map((place) => existsSync(place))).toEqual([false, true, true]);
    expect(readdirSync(path.dirname(stored))).toEqual(['job.json']);
    expect(await objects.list(`${id}/parts/`)).toHaveLength(1);
    await other.end(id, { state: 'canceled' });
    expect(await objects.list(`${id}/`)).toEqual([`${id}/job.json`]);
    await other.remove(id);
    expect(await objects.list(`${id}/`)).toEqual([]);
  });
});
