import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { catalogueCommand } from '../../../src/cli/catalogue.ts';
import { readCatalogue } from '../../../src/lake/catalogue/read-catalogue.ts';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { createExportArea } from '../../helpers/export-area.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';
import { runDataQuery } from '../../../src/export/worker/data/run-data-query.ts';
import { readSnapshot } from '../../../src/lake/log/snapshot.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');

const line = (index: number, more: Record<string, unknown> = {}): Record<string, unknown> =>
  eventLine({
    kind: 'custom_event',
    custom_user_id: `u${index}`,
    custom_event_name: 'level_complete',
    custom_event_params: { level: String(index % 3) },
    ...more,
  });
const many = (count: number, more?: Record<string, unknown>) =>
  Array.from({ length: count }, (_, index) => line(index, more));

/** Imports level_complete of app 1 into the lake of a data folder and its catalogue. */
async function fillLake(dataDir: string, lines = many(30), stream = createMemoryStream()): Promise<void> {
  const compactor = await startTestCompact(dataDir, stream, { sealAgeMs: 10 });
  stream.publish(lines);
  await waitFor(
    'in the catalogue',
    async () => (await readCatalogue(path.join(dataDir, 'lake'), 1)).customEvents.length > 0,
  );
  await compactor.stop();
}

const level = {
  name: 'level',
  type: 'integer',
  seen: 30,
  types: { integer: 30, decimal: 0, boolean: 0, date: 0, time: 0, text: 0, empty: 0 },
  distinctValues: 3,
  values: 3,
};

test('The documented call returns the parameters of an event, only to users of the account with export permission', async () => {
  const area = createExportArea(testFolder());
  await area.addApp({ idApp: 1, platform: 'web', idAccount: 1 });
  const user = await area.addUser({ idAccount: 1 });
  const other = await area.addUser({ idAccount: 2 });
  const limited = await area.addUser({ idAccount: 1, canExport: false });
  await fillLake(area.dataDir);
  const api = await area.start({ runDataQuery: runDataQuery });
  const [, target = ''] = /(\/api\/catalogue\/v1\/get\.json\?[^"\s`]+)"/.exec(read('docs/api.md')) ?? [];
  const answer = await api.call(user, target);
  expect(answer.json?.data).toMatchObject({
    missingFiles: 0,
    more: { names: 0, events: 0 },
    notices: [],
    customEvents: [
      { customEventName: 'level_complete', events: 30, sampledEvents: 30, looked: 30, parameters: [level] },
    ],
  });
  const [whole = ''] = target.split('&');
  const listed = (await api.call(user, whole)).json?.data as { customEvents?: readonly object[] } | null;
  expect(listed?.customEvents).toHaveLength(1);
  expect(listed?.customEvents?.[0]).not.toHaveProperty('parameters');
  expect((await api.call(other, target)).status).toBe(404);
  expect((await api.call(limited, target)).status).toBe(400);
  expect((await api.call(user, whole.replace('idApp=1', 'idApp=99'))).status).toBe(404);
  for (const wrong of ['idApp=x', 'idApp=1&idApp=2', 'idApp=1&customEventName=', 'idApp=1&other=1', ''])
    expect([wrong, (await api.call(user, `/api/catalogue/v1/get.json?${wrong}`)).status]).toEqual([wrong, 400]);
  await api.stop();
});

/** Output of the command. */
async function runCatalogue(words: readonly string[], notes: string[] = []): Promise<readonly object[]> {
  const answers: object[] = [];
  const { signal } = new AbortController();
  await runCommandHere(catalogueCommand, words, {
    environment: {},
    entry: '',
    printResult: (value) => void answers.push(JSON.parse(JSON.stringify(value)) as object),
    print: () => undefined,
    printMessage: (text) => void notes.push(text),
    isTerminal: false,
    stop: signal,
    force: signal,
  });
  return answers;
}

const at = (date: string) => ({ event_time: Date.parse(`${date}T12:00:00Z`) / 1000 });

test('The counts of events equal those of the chart of the same days, unsealed ones included, and parameters have their time', async () => {
  const area = createExportArea(testFolder());
  await area.addApp({ idApp: 1, platform: 'web', idAccount: 1 });
  await area.addApp({ idApp: 2, platform: 'web', idAccount: 1 });
  const user = await area.addUser({ idAccount: 1 });
  const stream = createMemoryStream();
  const days = ['2024-05-01', '2024-05-02', '2024-05-03'] as const;
  await fillLake(area.dataDir, [...many(30, at(days[0])), ...many(20, at(days[1]))], stream);
  const compactor = await startTestCompact(area.dataDir, stream, { sealAgeMs: 3_600_000 });
  stream.publish([
    ...many(5, at(days[1])),
    ...many(7, { ...at(days[2]), custom_event_name: 'brand_new' }),
    ...many(100, { ...at(days[2]), id_app: 2 }),
  ]);
  const tableDir = path.join(area.dataDir, 'lake', 'events');
  await waitFor('young', async () => (await readSnapshot(tableDir)).young.length > 0);
  await compactor.stop();
  const api = await area.start({ runDataQuery: runDataQuery });
  const ask = async (target: string) => (await api.call(user, `/api/${target}`)).json?.data as Record<string, unknown>;
  for (const [from, to] of [
    [days[0], days[2]],
    [days[1], days[2]],
    [days[1], days[1]],
    ['2024-04-01', '2024-04-30'],
  ] as const) {
    const dates = `idApp=1&dateFrom=${from}&dateTo=${to}`;
    const found = await ask(`catalogue/v1/get.json?${dates}`);
    const listed = found['customEvents'] as { customEventName: string; events: number; days: object[] }[];
    const charted = (await ask(`data/v1/volume.json?${dates}`))['days'] as { date: string; events: number }[];
    const total = charted.reduce((sum, { events }) => sum + events, 0);
    expect([from, to, listed.reduce((sum, { events }) => sum + events, 0)]).toEqual([from, to, total]);
    expect([found['isComplete'], found['isWhole']]).toEqual([true, true]);
    const printed = await runCatalogue(['1', '--from', from, '--to', to, '--data', area.dataDir]);
    expect(printed.map((event) => ({ ...event, parameters: undefined }))).toEqual(listed);
  }
  const whole = await ask('catalogue/v1/get.json?idApp=1');
  expect(whole).toMatchObject({
    sealedUntil: expect.stringMatching(/^20.*Z$/),
    customEvents: [
      {
        customEventName: 'level_complete',
        events: 55,
        sealed: 50,
        sampledEvents: 50,
        looked: 50,
        days: [
          { date: days[1], events: 25 },
          { date: days[0], events: 30 },
        ],
      },
      { customEventName: 'brand_new', events: 7, sealed: 0, sampledEvents: 0, looked: 0 },
    ],
  });
  const { young } = await readSnapshot(tableDir);
  expect(Date.parse(String(whole['sealedUntil']))).toBeLessThanOrEqual(
    Date.parse(String(young[0]?.minValues['available_at'])),
  );
  const [one] = (await ask('catalogue/v1/get.json?idApp=1&customEventName=level_complete'))['customEvents'] as object[];
  expect(one).toMatchObject({ events: 55, sealed: 50, parameters: [{ ...level, seen: 50, types: { integer: 50 } }] });
  const notes: string[] = [];
  await runCatalogue(['1', '--data', area.dataDir], notes);
  expect(notes.join()).toContain(`parameters are as of ${String(whole['sealedUntil'])}`);
  await api.stop();
});

test('The documented commands return the events of an app and the parameters of an event', async () => {
  const area = createExportArea(testFolder());
  await fillLake(area.dataDir);
  const page = read('docs/lake.md');
  const commands = [...page.matchAll(/^tributary (catalogue [^#\n]*)/gm)].map(([, words = '']) =>
    words.trim().split(/\s+/).slice(1),
  );
  expect(commands).toHaveLength(2);
  const answered = [];
  for (const words of commands)
    answered.push(await runCatalogue(words.map((word) => (word === 'data' ? area.dataDir : word))));
  const event = { customEventName: 'level_complete', events: 30, sampledEvents: 30, looked: 30 };
  expect(answered).toMatchObject([[event], [event, { parameter: level }]]);
});
