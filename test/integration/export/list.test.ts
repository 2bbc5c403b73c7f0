import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createExportArea, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { runHere } from '../../helpers/worker-here.ts';

const list = '/api/raw/v1/export/list.json';
const query = 'event=customEvents&selectors=eventId&dateFrom=2025-05-01&dateTo=2025-05-31';

interface Line {
  readonly idRawExport: string;
  readonly status: string;
  readonly isCancellable?: true;
  readonly timestampFinished?: string;
  readonly arguments: Readonly<Record<string, string | readonly string[]>>;
}

interface Page {
  readonly exports: readonly Line[];
  readonly total: number;
  readonly before?: string;
}

/** All arguments of a request, and the arguments in its list in addition to event, selectors and zone. */
const orders: readonly (readonly [string, Readonly<Record<string, unknown>>])[] = [
  [query, { tsFrom: '1746046800', tsTo: '1748725199', timezone: 'Europe/Moscow' }],
  // Clocks that go back over midnight: the seconds between include moments of another day.
  [
    'event=customEvents&selectors=eventId&dateFrom=2010-11-07&dateTo=2010-11-07&timezone=America/St_Johns',
    { dateFrom: '2010-11-07', dateTo: '2010-11-07', timezone: 'America/St_Johns' },
  ],
  [
    `${query}&timezone=UTC&idApp=7,8&SDKKey=key&idProject=5&idAccount=1&idCountry=16,17&rooted=1`,
    { idApp: ['7', '8'], SDKKey: ['key'], idProject: ['5'], idAccount: ['1'], idCountry: ['16', '17'], rooted: ['1'] },
  ],
  [
    `${query}&eventName=a%2Cb&eventName=c&eventNameInvert=1&params[level]=3&params[level]=4&params[$%26]=x`,
    { eventName: ['a,b', 'c'], eventNameInvert: '1', 'params[level]': ['3', '4'], 'params[$&]': ['x'] },
  ],
  [
    `${query}&availabilityTsFrom=1746046800&availabilityTsTo=1746046900&format=jsonl&compression=zstd&order=time`,
    {
      availabilityTsFrom: '1746046800',
      availabilityTsTo: '1746046900',
      format: 'jsonl',
      compression: 'zstd',
      order: 'time',
    },
  ],
  ['event=customEvents&selectors=eventId,eventName&sinceVersion=0', { sinceVersion: '0' }],
];

describe('the paged list of requests', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;
  let colleague: Credentials;
  let ids: readonly string[];

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1, sdkKey: 'key', idProject: 5 });
    [user, colleague] = [await area.addUser({}), await area.addUser({})];
    const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
    const event = { event_id: 'e', kind: 'custom_event', id_app: 7, event_time: time, available_at: time } as const;
    await writeLake(area.tableDir, [[{ ...event, custom_event_name: 'n' }]]);
    running = await area.start({ runAttempt: runHere, maxExports: 100 });
    const made: string[] = [];
    for (const [order] of orders) made.push(await running.create(user, order));
    for (const id of made) await running.waitForEnd(user, id);
    ids = made.toReversed();
  });
  afterAll(() => running.stop());

  async function ask(by: Credentials, more = ''): Promise<Page> {
    const answer = await running.call(by, `${list}${more}`);
    expect(answer.status).toBe(200);
    return answer.json?.data as unknown as Page;
  }

  it('The pages are the complete list, newest first, and only the last page has no next one', async () => {
    const found: string[] = [];
    let before: string | undefined;
    do {
      const page = await ask(user, `?limit=4${before === undefined ? '' : `&before=${before}`}`);
      expect(page.total).toBe(orders.length);
      found.push(...page.exports.map(({ idRawExport }) => idRawExport));
      ({ before } = page);
    } while (before !== undefined);
    expect(found).toEqual(ids);
    expect((await ask(user, `?limit=${orders.length}`)).before).toBeUndefined();
  });

  it('A list has no request of a colleague, and a list without requests is empty', async () => {
    expect(await ask(colleague)).toEqual({ exports: [], total: 0 });
    expect((await ask(colleague, `?before=${ids[0]}`)).exports).toEqual([]);
  });

  it.each(orders.map(([order, wanted], place) => [order, wanted, place] as const))(
    'The request %s is listed with the arguments that repeat it',
    async (order, wanted, place) => {
      const { exports } = await ask(user);
      const line = exports.find(({ idRawExport }) => idRawExport === ids.at(-1 - place));
      expect(line?.arguments).toMatchObject(wanted);
      expect(Number(line?.timestampFinished)).toBeGreaterThan(1_746_046_800);
      const again = Object.entries(line?.arguments ?? {}).flatMap(([name, value]) =>
        [value].flat().map((each) => `${encodeURIComponent(name)}=${encodeURIComponent(each)}`),
      );
      const id = await running.create(colleague, again.join('&'));
      await running.waitForEnd(colleague, id);
      const { exports: others } = await ask(colleague, '?limit=1');
      expect(others[0]?.arguments).toEqual(line?.arguments);
      expect(order.startsWith(`event=${String(line?.arguments['event'])}`)).toBe(true);
    },
  );

  it.each(['limit=0', 'limit=201', 'limit=x', 'limit=', 'before=0', 'before=x', 'limit=1&limit=2', 'idUser=2'])(
    'A list by %s is refused',
    async (given) => {
      expect((await running.call(user, `${list}?${given}`)).status).toBe(400);
    },
  );

  it('An export is found by its name, event, event name, id and apps, and only by its user', async () => {
    const other = await area.addUser({});
    await area.addApp({ idApp: 70, platform: 'web', idAccount: 1, title: 'Paper Shop' });
    const made = {
      named: await running.create(other, `${query}&name=${encodeURIComponent(' Weekly Größe ')}`),
      ofApp: await running.create(other, `${query}&idApp=70`),
      ofNames: await running.create(other, `${query}&eventName=checkout`),
      ofHits: await running.create(other, query.replace('customEvents', 'hits')),
    };
    const find = async (text: string): Promise<readonly string[]> =>
      (await ask(other, `?search=${encodeURIComponent(text)}`)).exports.map(({ idRawExport }) => idRawExport);
    expect(await find('größe')).toEqual([made.named]);
    expect(await find('paper shop')).toEqual([made.ofApp]);
    expect(await find('CHECKOUT')).toEqual([made.ofNames]);
    expect(await find('hits')).toEqual([made.ofHits]);
    expect(await find(made.ofHits)).toContain(made.ofHits);
    expect(await find('nothing of it')).toEqual([]);
    expect((await ask(user, '?search=paper')).total).toBe(0);
    const page = await ask(other, '?search=custom&limit=2');
    expect(page).toMatchObject({ total: 3, before: made.ofApp });
    expect((await ask(other, `?search=custom&limit=2&before=${page.before}`)).exports).toMatchObject([
      { name: 'Weekly Größe', arguments: { name: 'Weekly Größe' }, summary: 'Custom events; columns eventId; csv' },
    ]);
    expect((await running.call(other, `${list}?search=${'x'.repeat(101)}`)).status).toBe(400);
    for (const name of ['', 'a%0Ab', 'x'.repeat(101)])
      expect((await running.call(other, `/api/raw/v1/export/create.json?${query}&name=${name}`)).status).toBe(400);
  });
});
