import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createExports } from '../../../src/export/api/exports.ts';
import { startTasks } from '../../../src/export/tasks.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { createEgressPolicy, type EgressPolicy } from '../../../src/runtime/http/egress-policy.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { addSchedule, readScheduleProgress } from '../../../src/schedules/schedule-store.ts';
import { addWebhook } from '../../../src/webhooks/webhook-store.ts';
import { createRandom } from '../../helpers/export-events.ts';
import {
  createExportHosts,
  openTestAccess,
  startRunnerHost,
  succeed,
  type ExportHostOptions,
  type RunnerHost,
} from '../../helpers/export-hosts.ts';
import { startFakeS3 } from '../../helpers/fake-s3.ts';
import { formatRequest } from '../../helpers/format-request.ts';
import { isWhole } from '../../helpers/in-turn.ts';
import { waitFor } from '../../helpers/wait.ts';
import { startReceiver } from '../../helpers/webhook-receiver.ts';

const dayMs = 86_400_000;
const logger = createLogger('silent');
/** Hosts that work against each other are slow, ms. */
const slowMs = 60_000;
const seeds = isWhole ? 30 : 1;
const parseRequest = async () => formatRequest();
const local = createEgressPolicy(['127.0.0.0/8']) as EgressPolicy;

/** Starts hosts with the clock of the test, whose attempts succeed at once. */
async function startHosts(count: number, options: ExportHostOptions = {}) {
  const clock = { now: 10 * dayMs, nowMs: () => clock.now };
  const user = await openTestAccess();
  const hosts = await createExportHosts(await startFakeS3(), count, { clock, ...options });
  const runners = await Promise.all(
    hosts.map((host) => startRunnerHost(host, user, async (plan) => succeed(plan, 'a\n1\n'))),
  );
  /** Starts the tasks of a host; without the lease, as one that still believes that it has it. */
  function start({ store, runner, folder, leases, onEnd }: RunnerHost, hasLease = true) {
    const loaded = Promise.resolve();
    const tasks = startTasks({
      schedules: path.join(folder, 'schedules'),
      lakeDir: path.join(folder, 'lake'),
      store,
      exports: createExports({ store, runner, clock, parseRequest, loaded }, { maxExports: 5 }),
      slotClock: { timeOf: async (_, slot) => slot * dayMs, newest: async (_, nowMs) => Math.floor(nowMs / dayMs) },
      clock,
      access: user.access,
      parseRequest,
      crashPoint: noCrashPoint,
      logger,
      loaded,
      everyMs: 50,
      webhooks: {
        paths: { webhooks: path.join(folder, 'webhooks'), keys: path.join(folder, 'keys') },
        rules: local,
        clock,
        logger,
      },
      destinations: {
        paths: { destinations: path.join(folder, 'destinations'), keys: path.join(folder, 'keys') },
        rules: local,
        clock,
        logger,
        renderManifest: () => undefined,
      },
      leases: hasLease ? leases : undefined,
    });
    const listener = (id: number): void => tasks.onEnd(id);
    onEnd.add(listener);
    const stop = async (): Promise<void> => {
      onEnd.delete(listener);
      await tasks.stop();
    };
    onTestFinished(stop);
    return { stop };
  }
  const rule = { every: 'day', at: '00:00', timezone: 'UTC' } as const;
  const added = { idAccount: 1, idUser: user.idUser, createdMs: 0, rule, catchUp: 3, arguments: [], firstSlot: 1 };
  return { clock, runners: runners as [RunnerHost, RunnerHost, ...RunnerHost[]], start, added };
}

test(`A slot has one request, even if two hosts run the schedules at the same time (${seeds} seeds)`, async () => {
  for (let seed = 1; seed <= seeds; seed += 1) {
    const { runners, start, added, clock } = await startHosts(2);
    const random = createRandom(seed);
    /** Ids under which requests of each slot were created. */
    const created = new Map<unknown, Set<unknown>>();
    for (const { network } of runners)
      network.faultOf = ({ method, url, headers, body }) => {
        if (method === 'PUT' && headers['if-none-match'] === '*' && url.includes('/job.json')) {
          const { id, slot } = JSON.parse(body.toString()) as { id: number; slot: { slot: number } };
          created.set(slot.slot, (created.get(slot.slot) ?? new Set()).add(id));
        }
        return random(4) === 0 ? { isDone: true, answer: 'late', delayMs: random(40) } : undefined;
      };
    const schedules = path.join(runners[0].folder, 'schedules');
    const { idSchedule } = await addSchedule(schedules, added);
    const started = runners.map((host) => start(host, false));
    const waitForSlot = (slot: number): Promise<void> =>
      waitFor(
        `slot ${slot} is made`,
        async () => (await readScheduleProgress(schedules, { idAccount: 1, idSchedule })).made.at(-1)?.[1] === slot,
        slowMs,
      );
    await waitForSlot(10);
    clock.now += 2 * dayMs;
    await waitForSlot(12);
    for (const tasks of started) await tasks.stop();
    for (const host of runners) await host.stop();
    expect([...created.keys()].map(Number).toSorted((a, b) => a - b)).toEqual([8, 9, 10, 11, 12]);
    expect(
      [...created.values()].map((ids) => ids.size),
      `seed ${seed}`,
    ).toEqual([1, 1, 1, 1, 1]);
  }
}, 180_000);

test('One host runs the tasks, and another one takes over when it stops or falls silent', async () => {
  const { runners, start, clock } = await startHosts(2, { leaseMs: 2000, linkTtlSeconds: 60 });
  const [one, other] = runners;
  async function expire(): Promise<void> {
    const id = await other.create();
    await waitFor('it ends', async () => (await other.store.find(id))?.state === 'success');
    clock.now += dayMs;
    await waitFor('it is removed', async () => (await other.objects.list(`${id}/`)).length === 0);
    removed.push(id);
  }
  const removed: number[] = [];
  const holder = async (): Promise<string | undefined> =>
    (await other.leases.list()).find(({ name, isHeld }) => name === 'tasks' && isHeld === true)?.holder;
  const first = start(one);
  await waitFor('the first host has the lease', async () => (await holder()) === 'host 0');
  const second = start(other);
  await expire();
  await first.stop();
  await waitFor('the second host has the lease', async () => (await holder()) === 'host 1');
  await expire();
  other.cut(true);
  start(one);
  await waitFor('the first host has it again', async () => {
    const known = await one.leases.list();
    return known.some(({ name, holder: by, isHeld }) => name === 'tasks' && by === 'host 0' && isHeld === true);
  });
  other.cut(false);
  await expire();
  await second.stop();
  expect(removed).toEqual([1, 2, 3]);
});

test('The end of a request on any host is sent to the webhooks by the host that runs the tasks', async () => {
  const {
    runners: [one, other],
    start,
    clock,
  } = await startHosts(2);
  const { url, received } = await startReceiver(200);
  const paths = { webhooks: path.join(one.folder, 'webhooks'), keys: path.join(one.folder, 'keys') };
  await addWebhook(paths, { idAccount: 1, url, createdMs: clock.now });
  start(one);
  start(other);
  const ids = [await one.create(), await other.create()];
  await waitFor('both are sent', () => received.length >= 2);
  const sent = received.map(({ body }) => (JSON.parse(body) as { data: { idRawExport: string } }).data.idRawExport);
  expect(sent.toSorted()).toEqual(ids.map(String).toSorted());
});
