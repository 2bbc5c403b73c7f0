import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { removeApp, restoreApp } from '../../../src/access/apps.ts';
import { removeUser } from '../../../src/access/users.ts';
import type { CommandContext } from '../../../src/cli/command.ts';
import { scheduleCommand } from '../../../src/cli/schedule.ts';
import { isCompleteUpTo } from '../../../src/lake/watermark.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { backUp, restore } from '../../helpers/backup.ts';
import { createExportArea, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runHere } from '../../helpers/worker-here.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

beforeEach(oneTestIn(3));

const dayMs = 86_400_000;
const hourMs = 3_600_000;
const noon = Date.parse('2026-06-10T12:00:00Z');
const daily = 'every=day&at=04:00&timezone=Europe/Berlin&event=customEvents&selectors=eventId';

const defaults = { runAttempt: runHere, schedulesEveryMs: 10, linkTtlSeconds: 10 ** 9 };

type View = Readonly<Record<string, unknown>>;

/** An export area under a clock that the test sets, with a user, an app and some events of June 2026. */
async function openPlace(options: Parameters<ReturnType<typeof createExportArea>['start']>[0] = {}, hasLake = true) {
  const area = createExportArea(path.join(testFolder(), 'data'));
  await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
  const user = await area.addUser({});
  const hours = Array.from({ length: 30 * 24 }, (_, hour) => ({
    event_id: `e${hour}`,
    kind: 'custom_event' as const,
    id_app: 7,
    event_time: Date.parse('2026-06-01T00:00:00Z') / 1000 + hour * 3600,
    available_at: noon / 1000,
    custom_user_id: 'u',
  }));
  if (hasLake) await writeLake(area.tableDir, [hours]);
  const clock = { now: noon, nowMs: () => clock.now };
  const running = { area: undefined as RunningArea | undefined };
  const start = async (more: typeof options = {}): Promise<void> => {
    running.area = await area.start({ ...defaults, clock, ...options, ...more });
  };
  const stop = async (): Promise<void> => {
    await running.area?.stop();
    running.area = undefined;
  };
  onTestFinished(stop);
  await start();
  async function call(target: string, as: Credentials = user, method = 'POST') {
    const answer = await running.area?.call(as, `/api/schedule/v1/${target}`, { method });
    return {
      status: answer?.status,
      data: answer?.json?.data as View | undefined,
      text: answer?.body.toString() ?? '',
    };
  }
  const add = async (query: string): Promise<string> => {
    const { status, data, text } = await call(`create.json?${query}`);
    if (status !== 200) throw new Error(text);
    return String(data?.['idSchedule']);
  };
  const get = async (id: string): Promise<View> => (await call(`get.json?idSchedule=${id}`, user, 'GET')).data ?? {};
  /** The requests of a schedule, oldest first. */
  async function madeBy(id: string): Promise<readonly View[]> {
    const answer = await running.area?.call(user, '/api/report/v1/file/list.json');
    const all = (answer?.json?.data?.reports ?? []) as readonly View[];
    return all.filter(({ idSchedule }) => idSchedule === id).toReversed();
  }
  const slotsOf = async (id: string): Promise<unknown[]> => (await madeBy(id)).map(({ slot }) => slot);
  /** Waits until a schedule has created a number of slots, and all requests have ended; returns the slots in order. */
  async function waitForSlots(id: string, count: number): Promise<unknown[]> {
    await waitFor(`${count} slots are made`, async () => {
      const made = await madeBy(id);
      return made.length >= count && made.every(({ status }) => status !== 'In progress');
    });
    return slotsOf(id);
  }
  return { area, user, clock, start, stop, call, add, get, madeBy, slotsOf, waitForSlots, running };
}

describe('schedules', () => {
  it('A schedule exports the day before each slot for its user, in an ordinary request that names the slot', async () => {
    const { area, clock, call, add, get, madeBy, waitForSlots, running, user } = await openPlace();
    const id = await add(daily);
    expect(await get(id)).toMatchObject({
      idSchedule: id,
      every: 'day',
      at: '04:00',
      timezone: 'Europe/Berlin',
      catchUp: '31',
      status: 'Active',
      timestampNextSlot: String(Date.parse('2026-06-11T02:00:00Z') / 1000),
    });
    clock.now += dayMs;
    expect(await waitForSlots(id, 1)).toEqual(['2026-06-11']);
    const [made] = await madeBy(id);
    const rows = (await running.area?.download(user, String(made?.['idRawExport'])))?.join('').trim().split('\n') ?? [];
    // From 22:00 UTC of the ninth to 22:00 of the tenth.
    expect(rows.slice(1)).toEqual(Array.from({ length: 24 }, (_, hour) => `e${9 * 24 - 2 + hour}`));
    expect(await get(id)).toMatchObject({ lastSlot: '2026-06-11', idRawExport: made?.['idRawExport'] });
    expect((await call('list.json', user, 'GET')).text).toContain(id);
    const record = path.join(area.dataDir, 'schedules', '1', `${id}.json`);
    expect(statSync(record).mode & 0o777).toBe(0o600);
    expect((await call(`delete.json?idSchedule=${id}`)).status).toBe(200);
    expect((await call(`delete.json?idSchedule=${id}`)).status).toBe(404);
    await waitFor('nothing is left of it', () => !existsSync(record.replace('.json', '.progress.json')));
  });

  it('A run that users ask for is made once, also when paused, leaves the slots, and is listed with its rows', async () => {
    const { call, add, madeBy, waitForSlots, clock, area, stop, start } = await openPlace();
    const id = await add(`${daily}&name=Morning`);
    const view = { name: 'Morning', summary: 'Custom events; columns eventId; csv' };
    expect((await call(`pause.json?idSchedule=${id}`)).data).toMatchObject({ ...view, status: 'Paused' });
    expect((await call(`runs.json?idSchedule=${id}`, undefined, 'GET')).data).toEqual({ runs: [] });
    const asked = await Promise.all([1, 2, 3].map(() => call(`run.json?idSchedule=${id}`)));
    expect(asked.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(await waitForSlots(id, 1)).toEqual(['2026-06-10']);
    const [made] = await madeBy(id);
    expect(made).toMatchObject({ name: 'Morning', rows: 24 });
    const stranger = await area.addUser({ idAccount: 2 });
    for (const name of ['run', 'runs'])
      expect((await call(`${name}.json?idSchedule=${id}`, stranger, name === 'run' ? 'POST' : 'GET')).status).toBe(404);
    expect((await call(`resume.json?idSchedule=${id}`)).status).toBe(200);
    clock.now += dayMs;
    expect(await waitForSlots(id, 2)).toEqual(['2026-06-10', '2026-06-11']);
    await stop();
    await start();
    await waitFor('the end of the slot is recorded', async () => {
      const { data } = await call(`runs.json?idSchedule=${id}`, undefined, 'GET');
      return JSON.stringify(data).split('Success!').length === 3;
    });
    const { data } = await call(`runs.json?idSchedule=${id}`, undefined, 'GET');
    expect(data?.['runs']).toMatchObject([
      { slot: '2026-06-11', isOnDemand: false, status: 'Success!', rows: 24 },
      { slot: '2026-06-10', isOnDemand: true, idRawExport: made?.['idRawExport'], rows: 24 },
    ]);
    expect(await madeBy(id)).toHaveLength(2);
  });

  it('Missed slots are exported, the oldest first, up to the limit of the schedule', async () => {
    const { clock, start, stop, add, waitForSlots } = await openPlace();
    const [all, few] = [await add(daily), await add(`${daily}&catchUp=2`)];
    await stop();
    clock.now += 4 * dayMs;
    await start();
    expect(await waitForSlots(all, 4)).toEqual(['2026-06-11', '2026-06-12', '2026-06-13', '2026-06-14']);
    expect(await waitForSlots(few, 2)).toEqual(['2026-06-13', '2026-06-14']);
  });

  it('After a clock that was ahead is set back, every slot is exported once', async () => {
    const { clock, add, waitForSlots, start, stop } = await openPlace();
    const id = await add(`${daily}&catchUp=2`);
    clock.now += 10 * dayMs;
    expect(await waitForSlots(id, 2)).toEqual(['2026-06-19', '2026-06-20']);
    clock.now = noon + dayMs;
    expect(await waitForSlots(id, 3)).toEqual(['2026-06-19', '2026-06-20', '2026-06-11']);
    await stop();
    clock.now = noon + 10 * dayMs;
    await start();
    clock.now += dayMs;
    expect(await waitForSlots(id, 4)).toEqual(['2026-06-19', '2026-06-20', '2026-06-11', '2026-06-21']);
  });

  it('A slot waits until the lake has all events acknowledged in its period, for at most three hours', async () => {
    const { area, clock, add, madeBy, waitForSlots } = await openPlace({}, false);
    const stream = createMemoryStream(clock);
    const startCompact = async () => {
      const compactor = await startTestCompact(area.dataDir, stream, { clock });
      onTestFinished(() => compactor.stop());
      return compactor;
    };
    const isComplete = (atMs: number) => isCompleteUpTo(area.tableDir, atMs, clock);
    const compactor = await startCompact();
    await waitFor('it is known how far the lake is', () => isComplete(noon));
    await compactor.stop();
    const id = await add(daily);
    // This schedule does not wait; its exports show that all schedules were checked meanwhile.
    const feed = await add('every=hour&at=:20&event=customEvents&selectors=eventId&sinceVersion=0');
    const late = eventLine({ kind: 'custom_event', custom_event_name: 'e', custom_user_id: 'u', received_at: noon });
    stream.publish([{ ...late, id_app: 7, event_time: noon / 1000 }]);
    clock.now = Date.parse('2026-06-11T02:30:00Z');
    await waitForSlots(feed, 1);
    clock.now += hourMs;
    await waitForSlots(feed, 2);
    expect(await madeBy(id)).toEqual([]);
    const again = await startCompact();
    await waitForSlots(id, 1);
    const [first] = await madeBy(id);
    expect(first).toMatchObject({ slot: '2026-06-11', rows: 1 });
    expect(first).not.toHaveProperty('slotMayBeIncomplete');
    await again.stop();
    clock.now = Date.parse('2026-06-12T02:30:00Z');
    await waitForSlots(feed, 3);
    clock.now += hourMs;
    await waitForSlots(feed, 4);
    expect(await madeBy(id)).toHaveLength(1);
    clock.now += 2 * hourMs;
    await waitForSlots(id, 2);
    expect((await madeBy(id))[1]).toMatchObject({
      slot: '2026-06-12',
      slotMayBeIncomplete: true,
      slotMayLackEvents: true,
    });
  });

  it('A slot waits while its request exceeds a limit, and is not lost', async () => {
    const waiting = { free: () => undefined as void };
    const gate = new Promise<void>((resolve) => (waiting.free = resolve));
    const { clock, add, waitForSlots, running, user, slotsOf, get } = await openPlace({
      maxExports: 1,
      runAttempt: async (plan, options) => gate.then(() => runHere(plan, options)),
    });
    const id = await add(daily);
    await running.area?.create(user, 'event=customEvents&selectors=eventId&tsFrom=0&tsTo=1');
    clock.now += 2 * dayMs;
    await waitFor('the slot is due', async () => Number((await get(id))['timestampNextSlot']) * 1000 < clock.now);
    expect(await slotsOf(id)).toEqual([]);
    waiting.free();
    expect(await waitForSlots(id, 2)).toEqual(['2026-06-11', '2026-06-12']);
  });

  it('Schedules that share one free request alternate, so that none waits for all missed slots of another', async () => {
    const { clock, start, stop, add, waitForSlots, running, user } = await openPlace({ maxExports: 1 });
    const ids = [await add(daily), await add(daily.replace('04:00', '05:00'))];
    await stop();
    clock.now += 5 * dayMs;
    await start();
    for (const id of ids) await waitForSlots(id, 5);
    const list = (await running.area?.call(user, '/api/report/v1/file/list.json'))?.json?.data?.reports ?? [];
    const order = list.toReversed().map(({ idSchedule }) => idSchedule);
    // One may occur twice in a row, if its export ends between the checks of the two.
    for (let from = 0; from + 4 <= order.length; from += 2) expect(new Set(order.slice(from, from + 4)).size).toBe(2);
    expect(order.length).toBe(10);
  });

  it('A schedule stops with a reason when its user or its apps are removed, and continues when it is resumed', async () => {
    const { area, clock, add, get, call, slotsOf, waitForSlots } = await openPlace();
    const paths = { access: path.join(area.dataDir, 'access.json'), keys: area.keysDir };
    const other = await area.addUser({});
    await area.addApp({ idApp: 8, platform: 'web', idAccount: 1 });
    const ofApp = await add(`${daily}&idApp=8`);
    await waitFor('the user is known', async () => (await call('list.json', other, 'GET')).status === 200);
    const { data } = await call(`create.json?${daily}`, other);
    const ofOther = String(data?.['idSchedule']);
    await removeApp(paths, 8, Date.now());
    await removeUser(paths, Number(other.idUser));
    await waitFor('the user is removed', async () => (await call('list.json', other, 'GET')).status === 403);
    clock.now += dayMs;
    await waitFor('both stop', async () =>
      [await get(ofApp), await get(ofOther)].every(({ status }) => status === 'Stopped'),
    );
    expect(await get(ofApp)).toMatchObject({ reason: 'the account has none of its apps' });
    expect(await get(ofOther)).toMatchObject({ reason: `user ${other.idUser} was removed` });
    expect([await slotsOf(ofApp), await slotsOf(ofOther)]).toEqual([[], []]);
    await restoreApp(paths, 8, Date.now());
    await waitFor('it continues', async () => {
      await call(`resume.json?idSchedule=${ofApp}`);
      return (await slotsOf(ofApp)).length > 0;
    });
    expect(await waitForSlots(ofApp, 1)).toEqual(['2026-06-11']);
  });

  it('Slots of a pause are not exported, not even later', async () => {
    const { clock, add, call, get, slotsOf, waitForSlots } = await openPlace();
    const [paused, other] = [await add(daily), await add(daily.replace('04:00', '05:00'))].toSorted();
    if (paused === undefined || other === undefined) throw new Error('unreachable');
    expect((await call(`pause.json?idSchedule=${paused}`)).data).toMatchObject({ status: 'Paused' });
    clock.now += 2 * dayMs;
    expect(await waitForSlots(other, 2)).toEqual(['2026-06-11', '2026-06-12']);
    expect(await slotsOf(paused)).toEqual([]);
    expect((await call(`resume.json?idSchedule=${paused}`)).data).toMatchObject({ status: 'Active' });
    clock.now += dayMs;
    expect(await waitForSlots(paused, 1)).toEqual(['2026-06-13']);
    expect(await get(paused)).not.toHaveProperty('reason');
  });

  it('A request stays until its schedule has recorded it, even if it has expired, and its slot is not exported again', async () => {
    const { area, clock, start, stop, add, slotsOf, waitForSlots } = await openPlace({ linkTtlSeconds: 3600 });
    const id = await add(daily);
    clock.now += dayMs;
    expect(await waitForSlots(id, 1)).toEqual(['2026-06-11']);
    clock.now += 2 * 3_600_000;
    await waitFor('it is deleted', () => !existsSync(path.join(area.reportsDir, '1')));
    await stop();
    await start();
    clock.now += dayMs;
    await waitFor('the next is made', async () => (await slotsOf(id)).length > 0);
    expect(await slotsOf(id)).toEqual(['2026-06-12']);
  });

  it('A backup has the schedules, and later slots are exported again after a restore', async () => {
    const { area, user, clock, stop, call, add, waitForSlots } = await openPlace({}, false);
    const id = await add(daily);
    clock.now += 2 * dayMs;
    expect(await waitForSlots(id, 2)).toEqual(['2026-06-11', '2026-06-12']);
    // A change of a schedule leaves a lock file in their folder.
    for (const act of ['pause', 'resume']) expect((await call(`${act}.json?idSchedule=${id}`)).status).toBe(200);
    const [backup, copy] = ['backup', 'copy'].map((name) => path.join(area.dataDir, '..', name)) as [string, string];
    await backUp(area.dataDir, backup, undefined);
    clock.now += dayMs;
    expect(await waitForSlots(id, 3)).toEqual(['2026-06-11', '2026-06-12', '2026-06-13']);
    await stop();
    await restore(backup, copy);
    const restored = await createExportArea(copy).start({ ...defaults, clock });
    onTestFinished(() => restored.stop());
    await waitFor('the third is made there', async () => {
      const { body } = await restored.call(user, `/api/schedule/v1/get.json?idSchedule=${id}`);
      return body.includes('"lastSlot":"2026-06-13"');
    });
    const list = (await restored.call(user, '/api/report/v1/file/list.json')).json?.data?.reports ?? [];
    expect(list.map(({ slot }) => slot)).toEqual(['2026-06-13', '2026-06-12', '2026-06-11']);
  });

  it('A damaged schedule is reported and creates no exports, blocks no other, and can be deleted', async () => {
    const { area, clock, add, call, running, waitForSlots } = await openPlace();
    const [broken, whole] = [await add(daily), await add(daily.replace('04:00', '05:00'))];
    writeFileSync(path.join(area.dataDir, 'schedules', '1', `${broken}.json`), '{"damaged":1}');
    clock.now += dayMs;
    expect(await waitForSlots(whole, 1)).toEqual(['2026-06-11']);
    await waitFor('it is reported', () => JSON.stringify(running.area?.stage.facts()).includes('schedule_unreadable'));
    const progress = path.join(area.dataDir, 'schedules', '1', `${whole}.progress.json`);
    await waitFor('its end is recorded', () => readFileSync(progress, 'utf8').includes('"endedReport":1'));
    const good = readFileSync(progress);
    expect((await call('list.json', undefined, 'GET')).data).toMatchObject({
      schedules: [{ idSchedule: whole }],
      damaged: [broken],
    });
    writeFileSync(progress, '{"damaged":1}');
    expect((await call('list.json', undefined, 'GET')).data).toEqual({ schedules: [], damaged: [broken, whole] });
    writeFileSync(progress, good);
    expect(await add(daily.replace('04:00', '05:00'))).toBe(whole);
    expect((await call(`delete.json?idSchedule=${broken}`)).status).toBe(200);
    await waitFor('all is well', () => !JSON.stringify(running.area?.stage.facts()).includes('schedule_unreadable'));
  });

  it.each([
    ['without every', 'event=customEvents&selectors=eventId', 'Argument every is expected but not set'],
    ['with a time that no clock shows', daily.replace('04:00', '24:00'), 'Argument at is invalid'],
    ['with a day of the week for a day', `${daily}&weekday=monday`, 'Argument weekday is invalid'],
    ['with dates', `${daily}&dateFrom=2026-01-01&dateTo=2026-01-02`, 'the schedule sets it'],
    ['with an unknown zone', daily.replace('Berlin', 'Bonn'), 'Argument timezone is invalid'],
    ['with an unknown selector', `${daily},nothing`, 'Argument selectors is invalid'],
    ['with no app of the account', `${daily}&idApp=99`, 'none of its apps'],
    ['with a place of the future', `${daily}&sinceVersion=999`, 'Argument sinceVersion is invalid'],
    ['with a place and missed slots', `${daily}&sinceVersion=0&catchUp=3`, 'Argument catchUp is invalid'],
  ])('A schedule is refused %s', async (_how, query, detail) => {
    const { call } = await openPlace();
    const { status, text } = await call(`create.json?${query}`);
    expect(status).toBe(400);
    expect(text).toContain(detail);
  });

  it('A repeated create adds nothing, an account has at most twenty schedules, and those of others do not exist', async () => {
    const { area, add, call } = await openPlace();
    const first = await add(daily);
    expect(await add(daily)).toBe(first);
    for (let n = 1; n < 20; n += 1) await add(`${daily}&eventName=e${n}`);
    expect((await call(`create.json?${daily}&eventName=more`)).text).toContain('The account already has 20 schedules');
    const stranger = await area.addUser({ idAccount: 2 });
    await waitFor('the other user is known', async () => (await call('list.json', stranger, 'GET')).status === 200);
    expect((await call('list.json', stranger, 'GET')).data).toEqual({ schedules: [] });
    for (const verb of ['pause', 'resume', 'delete'])
      expect((await call(`${verb}.json?idSchedule=${first}`, stranger)).status).toBe(404);
    const reader = await area.addUser({ canExport: false });
    await waitFor('the reader is known', async () => (await call('list.json', reader, 'GET')).status === 200);
    expect((await call(`create.json?${daily}`, reader)).text).toContain('lacks export permissions');
  });

  it('The examples of docs/api.md are accepted verbatim', async () => {
    const { add, get, call } = await openPlace();
    const page = readFileSync(path.join(packageRoot, 'docs', 'api.md'), 'utf8');
    const section = page.slice(page.indexOf('### Schedules'), page.indexOf('### Links'));
    const examples = [...section.matchAll(/-d '([^']+)'/g)].map(([, body = '']) => body);
    expect(examples.length).toBe(2);
    const statuses = await Promise.all(examples.map(async (example) => (await get(await add(example)))['status']));
    expect(statuses).toEqual(['Active', 'Active']);
    const named = [...section.matchAll(/`(GET|POST) \/api\/schedule\/v1\/(\w+)\.json/g)];
    expect(named.length).toBe(8);
    for (const [, method, name = ''] of named)
      expect((await call(`${name}.json`, undefined, method)).text).not.toContain('The method does not exist');
  });

  it('The command adds, lists, pauses, resumes and removes schedules while the service runs', async () => {
    const { area, user, clock, waitForSlots } = await openPlace();
    async function run(...words: string[]): Promise<View[]> {
      const answers: View[] = [];
      const context = { environment: {}, printResult: (value: View) => void answers.push(value) };
      await runCommandHere(scheduleCommand, [...words, '--data', area.dataDir], context as unknown as CommandContext);
      return answers;
    }
    const [added] = await run('add', '--user', user.idUser, daily);
    const id = String(added?.['idSchedule']);
    // The command uses the clock of the machine, which has another slot.
    expect(await run('list', '--account', '1')).toMatchObject([{ idSchedule: id, status: 'Active' }]);
    expect(await run('pause', id, '--account', '1')).toMatchObject([{ status: 'Paused' }]);
    expect(await run('resume', id, '--account', '1')).toMatchObject([{ status: 'Active' }]);
    expect(await run('run', id, '--account', '1')).toMatchObject([{ status: 'Active' }]);
    await waitFor('the run is made', async () => (await run('runs', id, '--account', '1')).length === 1);
    await waitForSlots(id, 1);
    const [asked] = await run('runs', id, '--account', '1');
    clock.now = Number(added?.['timestampNextSlot']) * 1000 + 60_000;
    const slot = new Date(clock.now).toISOString().slice(0, 10);
    expect(await waitForSlots(id, 2)).toEqual([asked?.['slot'], slot]);
    expect(await run('remove', id, '--account', '1')).toEqual([{ idSchedule: id, removed: true }]);
    await expect(run('remove', id, '--account', '1')).rejects.toThrow('has no schedule');
    await expect(run('add', '--user', user.idUser, 'every=day')).rejects.toThrow('Argument event is expected');
  });
});
