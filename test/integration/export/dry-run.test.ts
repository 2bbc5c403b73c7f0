import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { exportExamples } from '../../../src/export/api/openapi-examples.ts';
import type { DryRunEnd, RunDryRun } from '../../../src/export/jobs/worker-process.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { createExportArea, basic, type Answer, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { parseCsv } from '../../helpers/export-oracle.ts';
import { runDryRunJob as lookHere } from '../../../src/export/worker/dry-run/run-dry-run.ts';
import { temporaryFolder, testFolder } from '../../helpers/folder.ts';
import { oneTestIn } from '../../helpers/in-turn.ts';
import { writeLake, type FixtureEvent } from '../../helpers/lake-fixture.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runHere } from '../../helpers/worker-here.ts';

// Whether one account learns of another is tested in each run.
beforeEach(oneTestIn(2, /another account/));

const time = Date.parse('2025-05-02T00:00:00Z') / 1000;
const event = (n: number, idApp: number): FixtureEvent => ({
  event_id: `event ${n}`,
  kind: 'custom_event',
  id_app: idApp,
  event_time: time + n,
  available_at: time + n,
  // A byte order mark is an ordinary character of the text.
  custom_event_name: n % 2 === 0 ? '\uFEFFsay "hi"' : 'level_up',
  custom_event_params: { level: String(n), "it's": 'a\nb' },
});
const days = 'dateFrom=2025-05-01&dateTo=2025-05-31&timezone=UTC';
const query = `event=customEvents&selectors=eventId,tsEvent,eventName,params.name,params.value,idProject&${days}`;
const [estimate, preview] = ['estimate', 'preview'].map((name) => `/api/raw/v1/export/${name}.json`) as [
  string,
  string,
];

type Data = Readonly<Record<string, unknown>>;
const dataOf = (answer: Answer): Data => (answer.json?.data ?? {}) as unknown as Data;

const listFiles = (folder: string): string[] => readdirSync(folder, { recursive: true, encoding: 'utf8' }).toSorted();

/** Eight rows of the account's app in one file with rows of another account. */
const sharedFile = (foreign: (row: FixtureEvent, n: number) => FixtureEvent, many: number) => [
  ...Array.from({ length: 8 }, (_, n) => ({
    ...event(n, 7),
    custom_user_id: `m${n}`,
    id_country: 188,
    age: 40 + n,
  })),
  ...Array.from({ length: many }, (_, n) => foreign(event(n, 8), n)),
];

/** A row whose values include the range of all other values. */
const wide = (row: FixtureEvent, n: number): FixtureEvent => ({
  ...row,
  event_time: row.event_time - 5000 + 9000 * (n % 2),
  custom_user_id: n % 2 === 0 ? 'a secret' : `z ${'secret '.repeat(30)}`,
  custom_event_name: n % 2 === 0 ? 'a secret event' : 'z secret event',
  custom_event_params: { ['p'.repeat(1 + n)]: 'secret', z: '\u{1F600}'.repeat(40) },
  age: n % 2 === 0 ? 1 : 99,
  id_country: n % 2 === 0 ? 1 : 250,
  user_agent: 'x'.repeat(n * 10),
});

/** An area whose dry runs a test ends. */
async function openArea() {
  const area = createExportArea(testFolder());
  await area.addApp({ idApp: 7, platform: 'web', idAccount: 1, sdkKey: 'own' });
  await area.addApp({ idApp: 8, platform: 'web', idAccount: 2, sdkKey: 'strange' });
  const users = [await area.addUser({ idAccount: 1 }), await area.addUser({ idAccount: 2 })] as const;
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const runDryRun: RunDryRun = ({ apps }, { signal }) =>
    new Promise((resolve) => {
      const end = (how: DryRunEnd): void => resolve(how);
      begun.push(apps[0]?.idAccount ?? 0);
      ends.push(() => end({ kind: 'timed_out' }));
      signal.addEventListener('abort', () => end({ kind: 'aborted' }), { once: true });
    });
  const running = await area.start({ runDryRun });
  return { running, users, begun, ends };
}

const limits = { partMaxBytes: 1_000_000, exportMaxRows: 59 };

describe('dry runs of exports', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let owner: Credentials;
  let other: Credentials;
  let stranger: Credentials;

  beforeAll(async () => {
    await area.addApp({ idApp: 7, platform: 'web', idAccount: 1, sdkKey: 'own' });
    await area.addApp({ idApp: 8, platform: 'web', idAccount: 2, sdkKey: 'strange' });
    owner = await area.addUser({ idAccount: 1 });
    other = await area.addUser({ idAccount: 1, canExport: false });
    stranger = await area.addUser({ idAccount: 2 });
    const own = (from: number): FixtureEvent[] => Array.from({ length: 30 }, (_, n) => event(from + n, 7));
    await writeLake(area.tableDir, [own(0), [...own(30), event(90, 8)]]);
    running = await area.start({ ...limits, runAttempt: runHere, runDryRun: lookHere });
  });
  afterAll(() => running.stop());

  it('An estimate has the numbers of rows and bytes of an export, and the exceeded limit of rows', async () => {
    const answer = await running.call(owner, `${estimate}?${query}`);
    expect(answer.status).toBe(200);
    expect(dataOf(answer)).toMatchObject({
      rows: { atLeast: 60, expected: 60, atMost: 60 },
      parts: { atLeast: 1, atMost: 1 },
      overLimit: true,
      overLimits: [{ limit: 'rows', allowed: 59, isCertain: true, action: expect.stringContaining('fewer days') }],
      version: '0',
    });
    const id = await running.create(owner, query);
    expect(await running.waitForEnd(owner, id)).toMatchObject({ status: 'Error occurred' });
  });

  it('A preview has the first 20 rows of the file that the same request creates, with the estimated bytes', async () => {
    const narrow = `${query}&tsFrom=${time}&tsTo=${time + 40}`;
    const looked = dataOf(await running.call(owner, preview, { method: 'POST', body: narrow }));
    const told = dataOf(await running.call(owner, `${estimate}?${narrow}`));
    const [csv = ''] = await running.export(owner, narrow);
    const [header, ...rows] = parseCsv(csv);
    expect(looked).toMatchObject({ columns: header, isTruncated: true, isCut: true });
    expect((looked['rows'] as (string | null)[][]).map((row) => row.map((cell) => cell ?? ''))).toEqual(
      rows.slice(0, 20),
    );
    expect(told['rows']).toEqual({ atLeast: 41, expected: 41, atMost: 41 });
    const named = `${narrow}&eventName=level_up`;
    expect(dataOf(await running.call(owner, `${estimate}?${named}`))['rows']).toMatchObject({
      expected: 20,
      atMost: 20,
    });
    const bytes = Buffer.byteLength(csv);
    expect(told['bytes']).toEqual({ atLeast: bytes, expected: bytes, atMost: bytes });
  });

  it('The rows of an export are counted by date in its time zone, and not those of another account', async () => {
    const daily = `/api/raw/v1/export/daily.json?${query.replace('timezone=UTC', 'timezone=America/New_York')}`;
    expect(dataOf(await running.call(owner, daily))).toMatchObject({
      days: [{ date: '2025-05-01', rows: 60 }],
      version: '0',
    });
    const named = `/api/raw/v1/export/daily.json?${query}&eventName=level_up&paramsLess[level]=10`;
    expect(dataOf(await running.call(owner, named))['days']).toEqual([{ date: '2025-05-02', rows: 5 }]);
    expect(dataOf(await running.call(stranger, named))['days']).toEqual([]);
    expect((await running.call(owner, `/api/raw/v1/export/daily.json?${days}`)).status).toBe(400);
  });

  it('The responses have the members of the API reference, and the examples of docs/api.md work', async () => {
    const page = readFileSync(path.join(packageRoot, 'docs', 'api.md'), 'utf8');
    const today = new Date().toISOString().slice(0, 10);
    for (const name of ['estimate', 'preview']) {
      const example = new RegExp(`http://127.0.0.1:8081(/api/raw/v1/export/${name}\\.json\\?[^"]+)`).exec(page)?.[1];
      const answer = await running.call(owner, (example ?? '').replaceAll('$TODAY', today));
      expect(answer.status, name).toBe(200);
      const shown = exportExamples[`/api/raw/v1/export/${name}.json`]?.answer as { readonly data: Data };
      expect(Object.keys(dataOf(answer)).toSorted()).toEqual(
        [...Object.keys(shown.data), ...(name === 'preview' ? ['isCut'] : [])].toSorted(),
      );
    }
  });

  it('For a lake without a table of the event, the estimate is zero and the preview has no rows', async () => {
    const none = `event=payments&selectors=eventId&${days}`;
    expect(dataOf(await running.call(owner, `${estimate}?${none}`))).toMatchObject({
      rows: { atLeast: 0, expected: 0, atMost: 0 },
      bytes: { atLeast: 8, expected: 8, atMost: 8 },
      version: '0',
    });
    expect(dataOf(await running.call(owner, `${preview}?${none}`))).toMatchObject({
      columns: ['eventId'],
      rows: [],
      isTruncated: false,
      isCut: false,
    });
  });

  it.each([estimate, preview])(
    'The method %s refuses the same requests as create, with the same texts',
    async (target) => {
      const create = target.replace(/estimate|preview/, 'create');
      for (const body of [
        `${query}&idApp=x`,
        'event=customEvents&selectors=eventId',
        `${query}&eventName=${'n'.repeat(256)}`,
        `event=hits&selectors=eventId&${days}&idSegment=9`,
        `${query}&asOf=77`,
        `${query}&idApp=${Array.from({ length: 1000 }, (_, id) => id).join(',')}`,
      ]) {
        const [refused, created] = await Promise.all(
          [target, create].map((called) => running.call(owner, called, { method: 'POST', body })),
        );
        expect(refused?.status, body.slice(0, 200)).toBe(400);
        expect(refused?.json).toEqual(created?.json);
      }
      expect((await running.call(other, target, { method: 'POST', body: query })).json?.data?.error?.detail).toBe(
        'The account lacks export permissions',
      );
      expect((await running.call({ idUser: '99', secret: 'x' }, `${target}?${query}`)).status).toBe(403);
    },
  );

  it('No bound of an estimate reveals how many rows of another account share the files', async () => {
    const ofBoth = `${query}&tsFrom=${time + 30}&tsTo=${time + 100}`;
    expect(dataOf(await running.call(owner, `${estimate}?${ofBoth}`))['rows']).toMatchObject({
      atLeast: 30,
      atMost: 30,
    });
    const answer = dataOf(await running.call(stranger, `${estimate}?${ofBoth}`));
    expect(answer['rows']).toMatchObject({ atLeast: 1, atMost: 1 });
  });

  it('An estimate is the same for any rows of another account in the same files, and for any requested values', async () => {
    const shared = [sharedFile((row) => row, 1), sharedFile(wide, 6)];
    const selectors = 'eventId,tsEvent,eventName,customUserId,age,userAgent,params.name,params.value';
    const filters = ['', 'eventName=b', 'params[q]=secret', `format=parquet&tsFrom=${time - 6000}&tsTo=${time - 10}`];
    const told: string[] = [];
    for (const rows of shared) {
      const place = createExportArea(testFolder());
      await place.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
      await place.addApp({ idApp: 8, platform: 'web', idAccount: 2 });
      const user = await place.addUser({ idAccount: 1 });
      await writeLake(place.tableDir, [rows]);
      const here = await place.start({ runDryRun: lookHere });
      const answers = [];
      for (const filter of filters) {
        const body = `event=customEvents&selectors=${selectors}&${days}&${filter}`;
        const { rows: count, bytes } = dataOf(await here.call(user, estimate, { method: 'POST', body }));
        answers.push([filter, count, bytes]);
      }
      told.push(JSON.stringify(answers));
      await here.stop();
    }
    expect(told[0]).toContain('"atLeast":8,"expected":8,"atMost":8');
    expect(told[1]).toBe(told[0]);
  });

  it('Apps of another account have no rows under any of their names', async () => {
    for (const filter of ['idApp=8', 'SDKKey=strange', 'idAccount=2']) {
      expect(dataOf(await running.call(owner, `${estimate}?${query}&${filter}`))['rows']).toMatchObject({ atMost: 0 });
      expect(dataOf(await running.call(owner, `${preview}?${query}&${filter}`))['rows']).toEqual([]);
    }
  });

  it('Dry runs leave no file and no request, and use no id', async () => {
    // Separate processes, as in the service.
    await running.stop();
    running = await area.start(limits);
    const before = listFiles(area.dataDir);
    const first = Number(await running.create(owner, query));
    await running.waitForEnd(owner, String(first));
    const ordered = listFiles(area.dataDir);
    await Promise.all(
      [estimate, preview, estimate, preview].map((target) => running.call(owner, `${target}?${query}`)),
    );
    expect(listFiles(area.dataDir)).toEqual(ordered);
    expect(ordered.length).toBeGreaterThanOrEqual(before.length);
    expect(Number(await running.create(owner, query))).toBe(first + 1);
  });
});

describe('many dry runs', () => {
  it('An account with more than eight concurrent dry runs is refused the others with Retry-After', async () => {
    const { running, users, begun, ends } = await openArea();
    let refused = 0;
    const asked = Array.from({ length: 12 }, async () => {
      const answer = await running.call(users[0], `${preview}?${query}`);
      if (answer.status === 429) refused += 1;
      return answer;
    });
    await waitFor('four are refused', () => refused === 4);
    expect(begun).toHaveLength(1);
    for (let n = 0; n < 8; n += 1) {
      await waitFor('the next runs', () => ends.length > n);
      ends[n]?.();
    }
    const answers = await Promise.all(asked);
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(8);
    expect(answers.find(({ status }) => status === 429)?.headers['retry-after']).toBe('5');
    await running.stop();
  });

  it('A dry run ends when its client disconnects, and the next one begins', async () => {
    const { running, users, begun } = await openArea();
    const [ann, bob] = users;
    for (let n = 0; n < 4; n += 1) {
      const socket = connect(running.port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.write(
        `GET ${preview}?${query} HTTP/1.1\r\nHost: a\r\nAuthorization: ${basic(n % 2 === 0 ? ann : bob)}\r\n\r\n`,
      );
      await waitFor('the dry run begins', () => begun.length === n + 1);
      socket.destroy();
    }
    expect(begun).toEqual([1, 2, 1, 2]);
    await running.stop();
  });
});
