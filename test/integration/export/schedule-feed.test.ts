import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { eraseEvents } from '../../../src/admin/erase/erase.ts';
import type { RunAttempt } from '../../../src/export/jobs/worker-process.ts';
import { lakePaths } from '../../../src/lake/lake.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { openTable } from '../../../src/lake/log/table.ts';
import { openDuckdb } from '../../../src/lake/sql/duckdb.ts';
import { noCrashPoint } from '../../../src/runtime/crash-point.ts';
import { chaosFigure, chaosSeed } from '../../helpers/chaos.ts';
import { createExportArea, type RunningArea } from '../../helpers/export-area.ts';
import { createRandom } from '../../helpers/export-events.ts';
import { testFolder } from '../../helpers/folder.ts';
import { isWhole } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';
import { startReceiver } from '../../helpers/webhook-receiver.ts';
import { runHere } from '../../helpers/worker-here.ts';

const dayMs = 86_400_000;
const hourMs = 3_600_000;
const rounds = chaosFigure('TRIBUTARY_TEST_FEEDS', { short: isWhole ? 7 : 4, long: 100 });
const seed = chaosSeed();
const feed = 'every=day&timezone=UTC&event=customEvents&selectors=customUserId&sinceVersion=0';

type View = Readonly<Record<string, unknown>>;

/** A service whose lake grows while a schedule exports its new rows. */
async function openPlace() {
  const area = createExportArea(testFolder());
  await area.addApp({ idApp: 1, platform: 'web', idAccount: 1 });
  const user = await area.addUser({});
  const stream = createMemoryStream();
  const clock = { now: Date.now() - 1000 * dayMs, nowMs: () => clock.now };
  const compactor = await startTestCompact(area.dataDir, stream, {
    clock,
    retentionMs: 24 * hourMs,
    sealAgeMs: hourMs,
    checkpointEvery: 3,
  });
  onTestFinished(() => compactor.stop());
  const { table } = lakePaths(path.join(area.dataDir, 'lake'));
  const faults = { fails: false };
  const runAttempt: RunAttempt = async (plan, options) =>
    faults.fails ? { kind: 'timed_out' } : runHere(plan, options);
  const running = { area: undefined as RunningArea | undefined };
  const stop = async (): Promise<void> => {
    await running.area?.stop();
    running.area = undefined;
  };
  const start = async (more: Parameters<typeof area.start>[0] = {}): Promise<RunningArea> => {
    const options = { clock, runAttempt, schedulesEveryMs: 10, linkTtlSeconds: 10 ** 9, retentionMs: 24 * hourMs };
    return (running.area = await area.start({ ...options, ...more }));
  };
  onTestFinished(stop);
  let sent = 0;
  /** Stores some events, the first of them years late, and ages young files so that they are sealed. */
  async function store(names: readonly string[]): Promise<void> {
    for (const [index, name] of names.entries()) {
      const seconds = Math.floor(clock.now / 1000) - (index === 0 ? 400 * 86_400 : 0);
      const line = { kind: 'custom_event' as const, custom_event_name: 'e', custom_user_id: name };
      stream.publish([eventLine({ ...line, event_time: seconds, received_at: clock.now })]);
      sent += 1;
      await waitFor('it is stored', async () => ((await readSnapshot(table)).lake?.totals.stored ?? 0) === sent);
      clock.now += 1000;
    }
  }
  async function erase(person: string): Promise<void> {
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    const [crashPoint, signal] = [noCrashPoint, new AbortController().signal];
    const opened = { table: await openTable(table, { clock, crashPoint }), duckdb, clock, crashPoint, signal };
    const { publisher } = stream;
    const lakeDir = path.join(area.dataDir, 'lake');
    await eraseEvents({ ...opened, lakeDir, publisher }, { users: [person] }, { retentionMs: 24 * hourMs });
    duckdb.close();
  }
  const isSealed = async (): Promise<boolean> => (await readSnapshot(table)).young.length === 0;
  return { area, user, clock, faults, running, start, stop, store, erase, isSealed };
}

it(
  `The exports of a change feed together have every row once, late ones included, despite failures, seals and stops (seed ${seed})`,
  { timeout: 60_000 + rounds * 5000 },
  async () => {
    const { user, clock, faults, start, stop, store, isSealed } = await openPlace();
    const random = createRandom(seed);
    let area = await start();
    const get = async (target: string): Promise<View> => ((await area.call(user, target)).json?.data ?? {}) as View;
    const created = await area.call(user, `/api/schedule/v1/create.json?${feed}`, { method: 'POST' });
    const idSchedule = String(((created.json?.data ?? {}) as View)['idSchedule']);
    const names: string[] = [];
    const ids: string[] = [];
    const states: unknown[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const some = Array.from({ length: random(4) }, (_, index) => `r${round}-${index}`);
      await store(some);
      names.push(...some);
      // The last export succeeds, so that every row is in some export.
      faults.fails = round < rounds - 1 && random(3) === 0;
      const isStopped = random(3) === 0;
      if (isStopped) await stop();
      clock.now += (1 + random(3)) * dayMs;
      if (random(2) === 0) await waitFor('all is sealed', isSealed);
      if (isStopped) area = await start();
      const slot = new Date(clock.now - 4 * hourMs).toISOString().slice(0, 10);
      await waitFor(`slot ${slot} is made`, async () => {
        const view = await get(`/api/schedule/v1/get.json?idSchedule=${idSchedule}`);
        return view['lastSlot'] === slot && Number(view['idRawExport']) === round + 1;
      });
      const id = String(round + 1);
      await area.waitForEnd(user, id);
      ids.push(id);
      states.push((await get(`/api/raw/v1/export/get.json?idRawExport=${id}`))['status']);
      expect(states.at(-1)).toBe(faults.fails ? 'Error occurred' : 'Success!');
    }
    const rowsOf = async (id: string): Promise<string[]> =>
      (await area.download(user, id)).flatMap((part) => part.trim().split('\n').slice(1));
    const fed: string[] = [];
    for (const [index, id] of ids.entries()) if (states[index] === 'Success!') fed.push(...(await rowsOf(id)));
    expect(fed.toSorted()).toEqual(names.toSorted());
    const now = Math.floor(clock.now / 1000);
    const whole = await area.create(user, `event=customEvents&selectors=customUserId&tsFrom=0&tsTo=${now}`);
    expect((await rowsOf(whole)).toSorted()).toEqual(fed.toSorted());
  },
);

it('A change feed whose export can never succeed stops with the reason, and keeps its cursor', async () => {
  const { user, clock, start, stop, store } = await openPlace();
  const area = await start({ exportMaxRows: 2 });
  const created = await area.call(user, `/api/schedule/v1/create.json?${feed}`, { method: 'POST' });
  const idSchedule = String(((created.json?.data ?? {}) as View)['idSchedule']);
  await store(['a', 'b', 'c']);
  clock.now += dayMs;
  const target = `/api/schedule/v1/get.json?idSchedule=${idSchedule}`;
  let view: View = {};
  await waitFor('it stops', async () => {
    view = ((await area.call(user, target)).json?.data ?? {}) as View;
    return view['status'] === 'Stopped';
  });
  expect(String(view['reason'])).toMatch(/^export 1 failed: Too many lines/);
  expect(view).toMatchObject({ nextSinceVersion: '0', idRawExport: '1' });
  await stop();
  const wider = await start();
  await wider.call(user, `/api/schedule/v1/resume.json?idSchedule=${idSchedule}`, { method: 'POST' });
  clock.now += dayMs;
  await waitFor('it continues', async () => (await wider.call(user, target)).body.includes('"idRawExport":"2"'));
  expect((await wider.download(user, '2'))[0]?.trim().split('\n').slice(1).toSorted()).toEqual(['a', 'b', 'c']);
});

it('A webhook notifies who keeps a copy of each erasure once, with the export that has the erased ids', async () => {
  const { user, start, store, erase } = await openPlace();
  const area = await start({ webhooksAllow: ['127.0.0.0/8'] });
  const { url, received } = await startReceiver(200);
  const post = async (target: string): Promise<View> =>
    ((await area.call(user, `/api/${target}`, { method: 'POST' })).json?.data ?? {}) as View;
  await post(`webhook/v1/create.json?url=${encodeURIComponent(url)}`);
  const list = 'every=day&timezone=UTC&event=customEvents&sinceVersion=0&erasures=1';
  const idSchedule = String((await post(`schedule/v1/create.json?${list}`))['idSchedule']);
  await store(['ann', 'ben', 'ann']);
  /** Runs the schedule, and returns the data of the message about its export. */
  async function runOnce(): Promise<View> {
    const earlier = received.length;
    await post(`schedule/v1/run.json?idSchedule=${idSchedule}`);
    await waitFor('the message comes', () => received.length > earlier);
    return (JSON.parse(received.at(-1)?.body ?? '') as { readonly data: View }).data;
  }
  const counts: number[] = [];
  for (const person of [undefined, 'ann', undefined, 'ben']) {
    if (person !== undefined) await erase(person);
    const { idRawExport, rows, ...message } = await runOnce();
    expect(message).toMatchObject({ idSchedule, event: 'customEvents', status: 'Success!' });
    const erased = (await area.download(user, String(idRawExport))).flatMap((part) => part.trim().split('\n').slice(1));
    expect(erased).toHaveLength(Number(rows));
    counts.push(erased.length);
  }
  expect(counts).toEqual([0, 2, 0, 1]);
});
