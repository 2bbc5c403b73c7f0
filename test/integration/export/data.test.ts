import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunDataQuery } from '../../../src/export/jobs/worker-process.ts';
import { runDataQuery } from '../../../src/export/worker/data/run-data-query.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { createExportArea, type Answer, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';

const dayOf = (day: number): number => Date.parse(`2025-05-0${day}T12:00:00Z`) / 1000;
let made = 0;
const event = (idApp: number, kind: string, day: number, fields: Partial<FixtureEvent> = {}): FixtureEvent => ({
  event_id: `event ${(made += 1)}`,
  kind,
  id_app: idApp,
  event_time: dayOf(day) + made,
  available_at: dayOf(9),
  ...fields,
});
const many = <T>(n: number, make: (index: number) => T): T[] => Array.from({ length: n }, (_, index) => make(index));

/** An area with one event, whose queries run as the test defines, by default in a separate process. */
async function openArea(runQuestion?: RunDataQuery) {
  const area = createExportArea(testFolder());
  await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
  const owner = await area.addUser({ idAccount: 1 });
  await writeLake(area.tableDir, [[event(7, 'login', 1)]]);
  return { owner, running: await area.start(runQuestion === undefined ? {} : { runDataQuery: runQuestion }) };
}

/** As the import stores fields that a client of a website does not send. */
const defaults = { connection_type: 0, bluetooth_enabled: 0, ad_tracking_enabled: 1, ad_blocker: 0 };

const days = 'dateFrom=2025-05-01&dateTo=2025-05-07';
const zeros = (n: number): number[] => Array.from({ length: n }, () => 0);
const dataOf = ({ json }: Answer) => (json?.data ?? {}) as unknown as Readonly<Record<string, unknown>>;
const appId = ({ idApp }: { readonly idApp: string }): string => idApp;

describe('the data of an account', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let owner: Credentials;
  let reader: Credentials;
  let stranger: Credentials;
  let crowd: Credentials;

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1, title: 'Dragons' });
    await area.addApp({ idApp: 8, platform: 'web', idAccount: 2 });
    await area.addApp({ idApp: 9, platform: 'game', idAccount: 1, title: '<img src=x onerror=alert(1)>' });
    owner = await area.addUser({ idAccount: 1 });
    reader = await area.addUser({ idAccount: 1, canExport: false });
    stranger = await area.addUser({ idAccount: 2 });
    crowd = await area.addUser({ idAccount: 3 });
    // A file of one app, kind and day; one of several; and one in which another account's app is between them.
    await writeLake(area.tableDir, [
      many(5, () => event(7, 'login', 1, { custom_user_id: 'ann' })),
      [
        ...many(3, () => event(7, 'custom_event', 2, { custom_event_name: 'level' })),
        ...many(4, (n) =>
          event(7, 'registration', 3, {
            ...defaults,
            ...(n === 0 ? { custom_user_id: 'bob', connection_type: 2 } : {}),
          }),
        ),
      ],
      [
        event(7, 'login', 2, { custom_user_id: 'ann' }),
        ...many(100, () => event(8, 'login', 2, { custom_user_id: 'secret' })),
        event(9, 'login', 4),
      ],
    ]);
    // A process per query would take most of the time; one test has a separate process.
    running = await area.start({ runDataQuery: runDataQuery });
  });
  afterAll(() => running.stop());

  const ask = async (user: Credentials, target: string) => await running.call(user, `/api/data/v1/${target}`);

  it('The apps of an account are listed by id, found by title or id, and paged', async () => {
    expect(dataOf(await ask(owner, 'apps.json'))).toEqual({
      apps: [
        { idApp: '7', title: 'Dragons', platform: 'web' },
        { idApp: '9', title: '<img src=x onerror=alert(1)>', platform: 'game' },
      ],
      total: 2,
    });
    expect(dataOf(await ask(owner, 'apps.json?search=DRAG'))).toMatchObject({ apps: [{ idApp: '7' }], total: 1 });
    expect(dataOf(await ask(owner, 'apps.json?limit=1&offset=1'))).toMatchObject({ apps: [{ idApp: '9' }], total: 2 });
    expect(dataOf(await ask(owner, 'apps.json?idApp=9'))).toMatchObject({ apps: [{ idApp: '9' }], total: 1 });
    expect((await ask(owner, 'apps.json?idApp=8')).status).toBe(404);
    expect(dataOf(await ask(crowd, 'apps.json'))).toEqual({ apps: [], total: 0 });
    expect((dataOf(await ask(stranger, 'apps.json'))['apps'] as { idApp: string }[]).map(appId)).toEqual(['8']);
  });

  it('Events are counted by day and kind, exactly, and those of another account never', async () => {
    expect(dataOf(await ask(owner, `volume.json?${days}`))).toEqual({
      version: '0',
      dateFrom: '2025-05-01',
      dateTo: '2025-05-07',
      days: [
        { date: '2025-05-01', kind: 'login', events: 5 },
        { date: '2025-05-02', kind: 'custom_event', events: 3 },
        { date: '2025-05-02', kind: 'login', events: 1 },
        { date: '2025-05-03', kind: 'registration', events: 4 },
        { date: '2025-05-04', kind: 'login', events: 1 },
      ],
    });
    expect(dataOf(await ask(owner, `volume.json?${days}&idApp=9`))['days']).toEqual([
      { date: '2025-05-04', kind: 'login', events: 1 },
    ]);
    expect(dataOf(await ask(stranger, `volume.json?${days}`))['days']).toEqual([
      { date: '2025-05-02', kind: 'login', events: 100 },
    ]);
    expect(dataOf(await ask(owner, 'volume.json?dateFrom=2025-05-03&dateTo=2025-05-03'))['days']).toHaveLength(1);
    expect(dataOf(await ask(crowd, `volume.json?${days}`))['days']).toEqual([]);
  });

  it('All events of each app are counted with its newest day and kinds, and those of another account never', async () => {
    expect(dataOf(await ask(owner, 'activity.json'))).toEqual({
      apps: [
        {
          idApp: '7',
          title: 'Dragons',
          platform: 'web',
          events: 13,
          firstDate: '2025-05-01',
          lastDate: '2025-05-03',
          days: [...zeros(27), 5, 4, 4],
          kinds: [
            { kind: 'login', events: 6, lastDate: '2025-05-02' },
            { kind: 'registration', events: 4, lastDate: '2025-05-03' },
            { kind: 'custom_event', events: 3, lastDate: '2025-05-02' },
          ],
        },
        {
          idApp: '9',
          title: '<img src=x onerror=alert(1)>',
          platform: 'game',
          events: 1,
          firstDate: '2025-05-04',
          lastDate: '2025-05-04',
          days: [...zeros(29), 1],
          kinds: [{ kind: 'login', events: 1, lastDate: '2025-05-04' }],
        },
      ],
      total: 2,
      events: 14,
      lastDate: '2025-05-04',
      kinds: [
        { kind: 'login', events: 7, lastDate: '2025-05-04' },
        { kind: 'registration', events: 4, lastDate: '2025-05-03' },
        { kind: 'custom_event', events: 3, lastDate: '2025-05-02' },
      ],
      isComplete: true,
    });
    expect(dataOf(await ask(owner, 'activity.json?search=img&limit=1'))).toMatchObject({ total: 1, events: 14 });
    expect(dataOf(await ask(owner, 'activity.json?idApp=9'))).toMatchObject({ total: 1, events: 1 });
    expect(dataOf(await ask(stranger, 'activity.json'))).toMatchObject({ events: 100, lastDate: '2025-05-02' });
    expect(dataOf(await ask(crowd, 'activity.json'))).toMatchObject({ apps: [], events: 0, kinds: [] });
  });

  it('Fill rates count only events of the app and kind, and have the basis of the count', async () => {
    const answer = dataOf(await ask(owner, `fields.json?idApp=7&kind=registration&${days}`));
    expect(answer).toMatchObject({
      version: '0',
      kind: 'registration',
      sampledEvents: 4,
      looked: 4,
      dateFrom: '2025-05-03',
      dateTo: '2025-05-03',
      isComplete: true,
      isWhole: true,
    });
    const fields = answer['fields'] as { readonly name: string; readonly nonNullEvents: number }[];
    expect(fields.find(({ name }) => name === 'customUserId')).toMatchObject({
      column: 'custom_user_id',
      nonNullEvents: 1,
      filled: 1,
    });
    expect(fields.some(({ name }) => name === 'customEventName')).toBe(false);
    // Fields that no client sent have the default; one event has another value.
    const withDefault = fields.filter((field) => 'default' in field);
    expect(withDefault.map(({ name, nonNullEvents }) => `${name} ${nonNullEvents}`)).toEqual([
      'connectionType 1',
      'bluetoothEnabled 0',
      'adTrackingEnabled 0',
      'adBlocker 0',
    ]);
    // In the same file as a hundred rows of another account.
    const logins = dataOf(await ask(owner, `fields.json?idApp=7&kind=login&${days}`));
    expect(logins).toMatchObject({ sampledEvents: 6, looked: 6, isComplete: true, isWhole: true });
    expect(dataOf(await ask(owner, `fields.json?idApp=7&kind=payments&${days}`))).toMatchObject({
      sampledEvents: 0,
      looked: 0,
    });
    expect(dataOf(await ask(owner, `fields.json?idApp=9&kind=registration&${days}`))).toMatchObject({
      sampledEvents: 0,
      looked: 0,
      isComplete: true,
      isWhole: true,
    });
  });

  it('The calls of docs/api.md return the documented members', async () => {
    const page = readFileSync(path.join(packageRoot, 'docs/api.md'), 'utf8');
    const section = page.slice(page.indexOf('### Data overview'), page.indexOf('### Operations'));
    const targets = [...section.matchAll(/^curl .*"http:\/\/127\.0\.0\.1:8081\/api\/data\/v1\/([^"]+)"/gm)].map(
      ([, target = '']) => target,
    );
    expect(targets).toHaveLength(3);
    const shown = [
      'apps total',
      'dateFrom dateTo days version',
      'fields isComplete isWhole kind looked sampledEvents version',
    ];
    for (const [index, target] of targets.entries()) {
      // The page uses another app, and the last days.
      const answer = await ask(owner, target.replace('idApp=1', 'idApp=7'));
      expect(answer.status).toBe(200);
      expect(
        Object.keys(dataOf(answer))
          .toSorted((a, b) => (a < b ? -1 : 1))
          .join(' '),
      ).toBe(shown[index]);
    }
  });

  it('An app of another account looks like an unknown app, and a call without permission gets no information', async () => {
    for (const target of ['volume.json?', 'fields.json?kind=login&'])
      for (const idApp of ['8', '404'])
        expect([idApp, (await ask(owner, `${target}${days}&idApp=${idApp}`)).body.toString()]).toEqual([
          idApp,
          '{"code":404,"message":"Not Found","data":{"error":{"detail":"The app is not found"}}}',
        ]);
    for (const target of ['apps.json', 'volume.json', 'fields.json?idApp=7&kind=login'])
      expect((await ask(reader, target)).status).toBe(400);
    expect((await ask({ idUser: owner.idUser, secret: 'wrong' }, 'apps.json')).status).toBe(403);
  });

  it('An unknown argument, date, kind or app is refused with its name', async () => {
    for (const [target, named] of [
      ['apps.json?limit=0', 'limit'],
      ['apps.json?limit=1001', 'limit'],
      ['apps.json?offset=-1', 'offset'],
      ['apps.json?idAccount=2', 'idAccount'],
      ['volume.json?dateFrom=2025-05-01', 'dateTo'],
      ['volume.json?dateFrom=2025-02-30&dateTo=2025-03-01', 'dateFrom'],
      ['volume.json?dateFrom=2025-05-02&dateTo=2025-05-01', 'dateTo'],
      ['volume.json?dateFrom=2024-01-01&dateTo=2025-05-01', '400'],
      ['volume.json?idApp=7&idApp=8', 'idApp'],
      [`volume.json?idApp=${encodeURIComponent("7' OR 1=1 --")}`, 'idApp'],
      ['fields.json?idApp=7', 'kind'],
      [`fields.json?idApp=7&kind=${encodeURIComponent("login'; DROP TABLE apps")}`, 'kind'],
      ['fields.json?kind=login', 'idApp'],
    ] as const) {
      const answer = await ask(owner, target);
      expect([target, answer.status]).toEqual([target, 400]);
      expect(answer.json?.data?.error?.detail).toContain(named);
    }
  });

  it('A query runs in a separate process', async () => {
    const other = await openArea();
    const answer = await other.running.call(other.owner, `/api/data/v1/volume.json?${days}`);
    expect(dataOf(answer)['days']).toEqual([{ date: '2025-05-01', kind: 'login', events: 1 }]);
    await other.running.stop();
  });

  it('A query above the limit of an account is answered 429, and a stop ends running queries', async () => {
    const ends: (() => void)[] = [];
    const other = await openArea((_plan, { signal }) => {
      return new Promise((resolve) => {
        ends.push(() => resolve({ kind: 'timed_out' }));
        signal.addEventListener('abort', () => resolve({ kind: 'aborted' }), { once: true });
      });
    });
    const asked = many(9, () => other.running.call(other.owner, `/api/data/v1/volume.json?${days}`));
    expect((await Promise.race(asked)).status).toBe(429);
    ends[0]?.();
    expect(
      (
        await Promise.race(
          asked.map(async (one) => ((await one).status === 429 ? new Promise<Answer>(() => undefined) : one)),
        )
      ).status,
    ).toBe(400);
    await other.running.stop();
    expect((await Promise.all(asked)).map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      400,
      429,
      ...many(7, () => 500),
    ]);
  });
});
