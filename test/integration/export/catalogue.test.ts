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
import { runCommandHere } from '../../helpers/run-command.ts';

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');

const line = (index: number): Record<string, unknown> =>
  eventLine({
    kind: 'custom_event',
    custom_user_id: `u${index}`,
    custom_event_name: 'level_complete',
    custom_event_params: { level: String(index % 3) },
  });

/** Takes level_complete of app 1 into the lake of a data folder, and into its catalogue. */
async function fillLake(dataDir: string): Promise<void> {
  const stream = createMemoryStream();
  const compact = await startTestCompact(dataDir, stream, { sealAgeMs: 10 });
  stream.publish(Array.from({ length: 30 }, (_, index) => line(index)));
  await waitFor(
    'in the catalogue',
    async () => (await readCatalogue(path.join(dataDir, 'lake'), 1)).customEvents.length > 0,
  );
  await compact.stop();
}

const level = {
  name: 'level',
  type: 'integer',
  seen: 30,
  types: { integer: 30, decimal: 0, boolean: 0, date: 0, time: 0, text: 0, empty: 0 },
  values: 3,
};

test('The documented call answers the parameters of an event, to users of the account with export permission alone', async () => {
  const area = createExportArea(testFolder());
  await area.addApp({ idApp: 1, platform: 'web', idAccount: 1 });
  const user = await area.addUser({ idAccount: 1 });
  const other = await area.addUser({ idAccount: 2 });
  const limited = await area.addUser({ idAccount: 1, canExport: false });
  await fillLake(area.dataDir);
  const api = await area.start();
  const [, target = ''] = /(\/api\/catalogue\/v1\/get\.json\?[^"\s`]+)"/.exec(read('docs/api.md')) ?? [];
  const answer = await api.call(user, target);
  expect(answer.json?.data).toMatchObject({
    missingFiles: 0,
    more: { names: 0, events: 0 },
    notices: [],
    customEvents: [{ customEventName: 'level_complete', events: 30, looked: 30, parameters: [level] }],
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

test('The documented commands answer the events of an app, and the parameters of one', async () => {
  const area = createExportArea(testFolder());
  await fillLake(area.dataDir);
  const page = read('docs/lake.md');
  const commands = [...page.matchAll(/^tributary (catalogue [^#\n]*)/gm)].map(([, words = '']) =>
    words.trim().split(/\s+/).slice(1),
  );
  expect(commands).toHaveLength(2);
  const run = async (words: readonly string[]): Promise<unknown[]> => {
    const answers: unknown[] = [];
    const { signal } = new AbortController();
    await runCommandHere(
      catalogueCommand,
      words.map((word) => (word === 'data' ? area.dataDir : word)),
      {
        environment: {},
        entry: '',
        answer: (value) => void answers.push(value),
        print: () => undefined,
        note: () => undefined,
        isTerminal: false,
        stop: signal,
        force: signal,
      },
    );
    return answers;
  };
  const answered = [];
  for (const words of commands) answered.push(await run(words));
  const event = { customEventName: 'level_complete', events: 30, looked: 30 };
  expect(answered).toMatchObject([[event], [event, { parameter: level }]]);
});
