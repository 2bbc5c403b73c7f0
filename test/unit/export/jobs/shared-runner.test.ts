import { expect, onTestFinished, test } from 'vitest';
import { removeOldClaims } from '../../../../src/export/jobs/claims.ts';
import type { WorkerPlan } from '../../../../src/export/jobs/worker-messages.ts';
import type { AttemptOutcome, RunAttempt } from '../../../../src/export/jobs/worker-process.ts';
import { partKey } from '../../../../src/reports/report-records.ts';
import { createRandom } from '../../../helpers/export-events.ts';
import {
  createExportHosts,
  openTestAccess,
  startRunnerHost,
  succeed,
  type ExportHostOptions,
  type RunnerHost,
} from '../../../helpers/export-hosts.ts';
import { startFakeS3 } from '../../../helpers/fake-s3.ts';
import { isWhole } from '../../../helpers/in-turn.ts';
import { waitFor } from '../../../helpers/wait.ts';

const seeds = isWhole ? 30 : 1;

/** An attempt that waits for the test. */
interface HeldAttempt {
  readonly host: number;
  readonly plan: WorkerPlan;
  readonly signal: AbortSignal;
  readonly onPercent: (percent: number) => void;
  readonly finish: (outcome: AttemptOutcome) => void;
}

/** Starts hosts whose attempts wait for the test, and end at an abort unless they are `isDeaf`. */
async function startHosts(count: number, options: ExportHostOptions & { readonly isDeaf?: boolean } = {}) {
  const server = await startFakeS3();
  const access = await openTestAccess();
  const attempts: HeldAttempt[] = [];
  const hosts = await createExportHosts(server, count, options);
  const runners = await Promise.all(
    hosts.map((host, number) => {
      const run: RunAttempt = (plan, { signal, onPercent }) =>
        new Promise((finish) => {
          attempts.push({ host: number, plan, signal, onPercent, finish });
          if (options.isDeaf !== true) signal.addEventListener('abort', () => finish({ kind: 'aborted' }));
        });
      return startRunnerHost(host, access, run);
    }),
  );
  // The stores outlive the runners: their stop writes.
  onTestFinished(() => attempts.forEach(({ finish }) => finish({ kind: 'aborted' })));
  const leases = (): string[] => [...server.objects.keys()].filter((key) => key.includes('/leases/'));
  return { server, attempts, runners: runners as [RunnerHost, RunnerHost, ...RunnerHost[]], leases };
}

/** Starts two hosts, the first of which runs a request. */
async function startRunning() {
  const {
    attempts,
    runners: [one, other],
    leases,
  } = await startHosts(2);
  const id = await one.create();
  await waitFor('it runs', () => attempts.length === 1);
  return { attempts, one, other, leases, id };
}

const finish = ({ plan, finish: end }: HeldAttempt, text: string): void => end(succeed(plan, text));

async function findEnd({ store }: RunnerHost, id: number) {
  await waitFor(`request ${id} ends`, async () => (await store.find(id))?.finishedMs !== undefined);
  return await store.find(id);
}

test('The host that creates a request runs it at once, and another one takes what it has no worker for', async () => {
  const {
    attempts,
    runners: [one, other],
    leases,
  } = await startHosts(2);
  other.cut(true);
  const ids = [await one.create(), await one.create()];
  await waitFor('two run', () => attempts.length === 2);
  other.cut(false);
  ids.push(await one.create());
  await waitFor('all run', () => attempts.length === 3);
  expect(attempts.map(({ host }) => host)).toEqual([0, 0, 1]);
  for (const [index, attempt] of attempts.entries()) finish(attempt, `a\n${index}\n`);
  for (const id of ids) expect(await findEnd(one, id)).toMatchObject({ state: 'success', attempts: 1 });
  await waitFor('the claims are removed', () => leases().length === 0);
  expect([one.ended.length, other.ended.length]).toEqual([2, 1]);
  expect([one.runner.waiting(), other.runner.waiting()]).toEqual([0, 0]);
});

test(`Each request runs once, on any host that is free (${seeds} seeds)`, async () => {
  for (let seed = 1; seed <= seeds; seed += 1) {
    const { attempts, runners } = await startHosts(3);
    const random = createRandom(seed);
    const ids: number[] = [];
    let done = 0;
    for (let round = 0; round < 6; round += 1) {
      const creators = Array.from({ length: 1 + random(2) }, () => runners[random(3)] as RunnerHost);
      ids.push(...(await Promise.all(creators.map((host) => host.create()))));
      while (random(3) > 0 && done < attempts.length) finish(attempts[done] as HeldAttempt, `a\n${(done += 1)}\n`);
    }
    await waitFor(
      'all have run',
      () => {
        while (done < attempts.length) finish(attempts[done] as HeldAttempt, `a\n${(done += 1)}\n`);
        return done >= ids.length;
      },
      60_000,
    );
    for (const id of ids)
      expect(await findEnd(runners[random(3)] as RunnerHost, id)).toMatchObject({ state: 'success' });
    const ended = (): number[] => runners.flatMap((host) => host.ended.map(({ id }) => id));
    await waitFor('all ends are reported', () => ended().length >= ids.length);
    expect(attempts.length, `seed ${seed}`).toBe(ids.length);
    expect(ended().toSorted((a, b) => a - b)).toEqual(ids.toSorted((a, b) => a - b));
    for (const host of runners) await host.stop();
  }
}, 120_000);

test('A request of a host that falls silent runs on another one after the lease time, and its late end is refused', async () => {
  const {
    attempts,
    runners: [one, other],
    server,
  } = await startHosts(2, { leaseMs: 2000, isDeaf: true });
  const id = await one.create();
  await waitFor('it runs', () => attempts.length === 1);
  const [late] = attempts as [HeldAttempt];
  late.onPercent(60);
  await waitFor('its progress is noted', async () => (await other.runner.progress(id)) === 60);
  one.cut(true);
  const cutMs = performance.now();
  await waitFor('it runs elsewhere', () => attempts.length === 2);
  expect(performance.now() - cutMs).toBeGreaterThan(1000);
  expect(late.signal.aborted).toBe(true);
  const [, current] = attempts as [HeldAttempt, HeldAttempt];
  expect(current.host).toBe(1);
  current.onPercent(10);
  expect(await other.runner.progress(id)).toBe(60);
  one.cut(false);
  finish(late, 'a\nlate\n');
  await waitFor('the late host has seen the other attempt', async () => {
    const job = await one.store.find(id);
    return (
      job?.attemptNonce !== undefined && !late.plan.folder.endsWith(job.attemptNonce) && one.runner.running() === 0
    );
  });
  expect(await other.store.find(id)).toMatchObject({ state: 'running', attempts: 1, interruptions: 1 });
  finish(current, 'a\nright\n');
  const job = await findEnd(one, id);
  expect(job).toMatchObject({ state: 'success', attempts: 1, interruptions: 1 });
  await waitFor('the end is reported', () => other.ended.length > 0);
  expect([one.ended, other.ended]).toMatchObject([[], [{ id }]]);
  const parts = await other.objects.list(`${id}/parts/`);
  expect(parts).toEqual([partKey(job ?? { id }, job?.files?.[0]?.name ?? '')]);
  expect(server.objects.get(`hosts/reports/${parts[0]}`)?.bytes.toString()).toBe('a\nright\n');
});

test('A host that stops hands its requests over at once, and their attempts do not count', async () => {
  const {
    attempts,
    runners: [one, other],
  } = await startHosts(2, { leaseMs: 60_000 });
  const id = await one.create();
  await waitFor('it runs', () => attempts.length === 1);
  await one.stop();
  await waitFor('it runs elsewhere', () => attempts.length === 2);
  finish(attempts[1] as HeldAttempt, 'a\n1\n');
  const job = await findEnd(other, id);
  expect(job).toMatchObject({ state: 'success', attempts: 1 });
  expect(job?.interruptions).toBeUndefined();
});

test('A cancel by another host ends the worker within about a second', async () => {
  const { attempts, one, other, leases, id } = await startRunning();
  expect(await other.runner.cancel(id)).toMatchObject({ id, state: 'canceled' });
  const canceledMs = performance.now();
  await waitFor('its worker ends', () => attempts[0]?.signal.aborted === true);
  expect(performance.now() - canceledMs).toBeLessThan(5000);
  await waitFor('the claim is removed', () => leases().length === 0);
  expect(await one.store.find(id)).toMatchObject({ state: 'canceled' });
  expect([one.ended, other.ended]).toMatchObject([[], [{ id }]]);
  expect(await one.runner.cancel(id)).toBeUndefined();
});

test('The worker of a removed request ends', async () => {
  const { one, other, id } = await startRunning();
  await other.store.remove(id);
  await waitFor('its worker ends', () => one.runner.running() === 0);
  expect(await other.objects.list(`${id}/`)).toEqual([]);
});

test('Claims of requests that have ended are removed, and others stay', async () => {
  const { other, leases, id } = await startRunning();
  await other.leases.tryHold('job-77', async () => undefined);
  await other.leases.tryHold('compact', async () => undefined);
  await removeOldClaims(other.store, other.leases);
  expect(
    leases()
      .map((key) => key.replace(/.*\//, ''))
      .toSorted(),
  ).toEqual(['compact.json', `job-${id}.json`]);
});
