import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLakeReader } from '../../src/demo/demo-report.ts';
import { createExportClient, exportQuery, type ExportClient } from '../helpers/export-client.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { buildPackageCopy } from '../helpers/package-copy.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

const folder = temporaryFolder();
const dataDir = path.join(folder, 'data');
let service: TestService;
let client: ExportClient;

type Json = Record<string, Record<string, unknown>>;

/** A copy of the program with pipelines and schemas that can be changed. */
function buildPackage(): string {
  const home = path.join(folder, 'package');
  buildPackageCopy(home);
  return home;
}

function change(file: string, edit: (value: Json) => void): void {
  const value = JSON.parse(readFileSync(file, 'utf8')) as Json;
  edit(value);
  writeFileSync(file, JSON.stringify(value));
}

beforeAll(async () => {
  const home = buildPackage();
  change(path.join(home, 'pipelines', 'events.json'), (pipeline) => {
    Object.assign(pipeline, {
      table: 'happenings',
      sealing: { partitionBy: ['id_app', 'date'], sortBy: ['custom_event_name'] },
    });
    Object.assign(pipeline['exports'] ?? {}, { userRegistrations: { kind: 'custom_event', requires: 'device' } });
  });
  change(path.join(home, 'schemas', 'events', 'custom-event.json'), (schema) => {
    Object.assign(schema['properties'] ?? {}, {
      mood: { description: 'How it went.', type: 'string', 'x-column': 'mood_of_player', 'x-column-type': 'VARCHAR' },
    });
  });
  const entry = path.join(home, 'dist', 'main.js');
  const token = await addTestApp(dataDir, '1', entry);
  const user = await addTestUser(dataDir, entry);
  service = await startTestService({
    dataDir,
    entry,
    settings: { TRIBUTARY_SEAL_AGE_MS: '500', TRIBUTARY_QUOTA_USER: 'off' },
  });
  client = createExportClient(service, user);
  const events = ['zebra', 'ant', 'mole'].map((name, index) => ({
    customEventName: name,
    mood: `mood ${index}`,
    customUserId: 'u',
    ...(name === 'ant' ? { lvid: '0123456789abcdef0123456789abcdef' } : {}),
  }));
  const answer = await fetch(`${service.s2s}/v1/customEventBatch/?idApp=1`, {
    method: 'POST',
    headers: { authorization: token },
    body: JSON.stringify(events),
  });
  if (!answer.ok) throw new Error(await answer.text());
});

afterAll(async () => {
  // Undefined when the start has failed.
  await (service as TestService | undefined)?.destroy();
});

const listSealed = (): string[] =>
  readdirSync(path.join(dataDir, 'lake', 'happenings'), { recursive: true, encoding: 'utf8' }).filter((name) =>
    /^id_app=.*\.parquet$/.test(name),
  );

/** The rows of an export of app 1, without their header. */
async function exportOf(event: string): Promise<string[]> {
  const id = await client.create(exportQuery('eventName', { event, idApp: '1' }));
  return (await client.download(await client.waitForEnd(id ?? ''))).slice(1).toSorted();
}

describe('a changed pipeline file', () => {
  it('A changed pipeline file makes the service store events in the named table, sealed in the named folders and order', async () => {
    await waitFor('the rows are sealed', () => listSealed().length > 0, 60_000);
    const today = new Date().toISOString().slice(0, 10);
    expect(listSealed().map((name) => path.dirname(name))).toEqual([`id_app=1/date=${today}`]);
    const lake = await openLakeReader(dataDir);
    try {
      const file = path.join(dataDir, 'lake', 'happenings', listSealed()[0] ?? '');
      expect(
        (
          await lake.plain(`SELECT custom_event_name AS name FROM read_parquet('${file}', hive_partitioning = false)`)
        ).map((row) => row['name']),
      ).toEqual(['ant', 'mole', 'zebra']);
    } finally {
      lake.close();
    }
    expect(await service.command('lake', 'check')).toMatchObject({ problems: [] });
  });

  it('A changed pipeline file gives a field of its schema a column, and the view the name of its table', async () => {
    const lake = await openLakeReader(dataDir);
    try {
      expect(
        await lake.query('SELECT custom_event_name AS name, mood_of_player AS mood FROM happenings ORDER BY name'),
      ).toEqual([
        { name: 'ant', mood: 'mood 1' },
        { name: 'mole', mood: 'mood 2' },
        { name: 'zebra', mood: 'mood 0' },
      ]);
    } finally {
      lake.close();
    }
  });

  it('A changed pipeline file makes the service export the events of its export event', async () => {
    expect(await exportOf('userRegistrations')).toHaveLength(1);
    expect(await exportOf('customEvents')).toHaveLength(3);
  });
});
