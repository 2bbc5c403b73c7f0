import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openDuckdb } from '../../src/lake/sql/duckdb.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { createExportClient, type ExportClient } from '../helpers/export-client.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { oneTestIn } from '../helpers/in-turn.ts';
import { addTestApp, addTestUser } from '../helpers/service-access.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';

beforeEach(oneTestIn(2));

const folder = temporaryFolder();
const dataDir = path.join(folder, 'data');
let service: TestService;
let client: ExportClient;
let loaded: unknown;

/** Writes a file of the operator's datasets. */
function declare(file: string, value: object): void {
  const place = path.join(dataDir, 'datasets', file);
  mkdirSync(path.dirname(place), { recursive: true });
  writeFileSync(place, JSON.stringify(value));
}

const properties = {
  idSurvey: {
    description: 'Id of the survey.',
    type: 'integer',
    minimum: 1,
    maximum: 1000,
    'x-column': 'id_survey',
    'x-column-type': 'BIGINT',
    'x-filter': 'set',
  },
  mood: {
    description: 'How it went.',
    type: 'string',
    enum: ['good', 'bad'],
    'x-column': 'mood',
    'x-column-type': 'VARCHAR',
  },
  score: { description: 'The score.', type: 'number', 'x-column': 'score', 'x-column-type': 'DECIMAL(6,2)' },
  answeredOn: { description: 'The day.', type: 'string', 'x-column': 'answered_on', 'x-column-type': 'DATE' },
};

/** A dataset in the data folder: two files, no code. */
function declareSurveys(): void {
  declare('schemas/rows/surveys.json', { title: 'Survey', description: 'An answered survey.', properties });
  declare('pipelines/surveys.json', {
    table: 'surveys',
    description: 'Answered surveys.',
    rows: 'schemas/rows/surveys.json',
    sealing: { partitionBy: ['date'], sortBy: ['id_app', 'event_time'] },
    exports: { surveys: {} },
  });
}

const csv = `tsEvent,idApp,eventId,idSurvey,mood,score,answeredOn
1700000000,1,a,7,good,1.50,2024-02-29
1700000001,1,b,8,bad,2.25,
`;

const selectors = 'tsEvent,idApp,eventId,idSurvey,mood,score,answeredOn,idAccount,dtEvent,total';

/** Exports the surveys and returns the downloaded CSV. */
async function exportSurveys(more: string): Promise<string[]> {
  const query = `event=surveys&selectors=${selectors}&dateFrom=2023-11-01&dateTo=2023-11-30&timezone=UTC${more}`;
  const id = await client.create(query);
  return client.download(await client.waitForEnd(id ?? ''));
}

beforeAll(async () => {
  declareSurveys();
  await addTestApp(dataDir);
  const user = await addTestUser(dataDir);
  service = await startTestService({ dataDir, settings: { TRIBUTARY_QUOTA_USER: 'off' } });
  client = createExportClient(service, user);
  const file = path.join(folder, 'surveys.csv');
  writeFileSync(file, csv);
  loaded = await runCommand(['load', 'surveys', file, '--data', dataDir]);
});

afterAll(async () => {
  // Undefined when the start has failed.
  await (service as TestService | undefined)?.destroy();
});

describe('a dataset that two files add', () => {
  it('A dataset that two files add is exported and filtered, and loading its export adds nothing', async () => {
    expect(loaded).toMatchObject({ stored: 2 });
    const all = await exportSurveys('');
    expect(all.slice(1).toSorted()).toEqual([
      '1700000000,1,a,7,good,1.50,2024-02-29,1,2023-11-14,',
      '1700000001,1,b,8,bad,2.25,,1,2023-11-14,',
    ]);
    expect((await exportSurveys('&idSurvey=8')).slice(1)).toEqual(['1700000001,1,b,8,bad,2.25,,1,2023-11-14,']);
    const file = path.join(folder, 'exported.csv');
    writeFileSync(file, `${all.join('\n')}\n`);
    expect(await runCommand(['load', 'surveys', file, '--data', dataDir])).toMatchObject({
      stored: 0,
      repeats: 2,
    });
    expect((await exportSurveys('')).toSorted()).toEqual(all.toSorted());
  });

  it('A dataset that two files add is a table that DuckDB queries', async () => {
    const { files } = await readSnapshot(path.join(dataDir, 'lake', 'surveys'));
    const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    try {
      expect(
        await duckdb.rows(
          `SELECT id_survey, mood, CAST(score AS VARCHAR) AS score FROM read_parquet(${sqlList(files.map((file) => file.absolutePath))}) ORDER BY id_survey`,
        ),
      ).toEqual([
        { id_survey: 7n, mood: 'good', score: '1.50' },
        { id_survey: 8n, mood: 'bad', score: '2.25' },
      ]);
    } finally {
      duckdb.close();
    }
  });

  it('A dataset that two files add is in the API reference and in the help', async () => {
    const reference = await (await fetch(`${service.api}/openapi.json`)).text();
    expect(reference).toContain('idSurvey');
    expect(reference).toContain('surveys');
    const help = execFileSync(
      process.execPath,
      [path.join(packageRoot, 'dist/main.js'), 'load', '--help', '--data', dataDir],
      { encoding: 'utf8' },
    );
    expect(help).toMatch(/surveys FILE\.\.\. +load answered surveys\n/);
  });

  it('A dataset that two files add is in the backup, and without it the restored folder rejects an erasure', async () => {
    const copy = path.join(folder, 'copy');
    await service.command('backup', path.join(folder, 'backup'));
    await runCommand(['restore', path.join(folder, 'backup'), '--data', copy]);
    const rows = await runCommand(['query', 'SELECT count(*) AS n FROM surveys', '--data', copy]);
    expect(rows).toEqual({ n: 2 });

    rmSync(path.join(copy, 'datasets'), { recursive: true });
    await expect(runCommand(['erase', '--user', 'ann', '--dry-run', '--data', copy])).rejects.toThrow(
      'no pipeline names lake/surveys',
    );
  });

  it('A dataset whose column was renamed is not exported, and the service does not start', async () => {
    const { mood, ...others } = properties;
    const renamed = { properties: { ...others, mood: { ...mood, 'x-column': 'humour' } } };
    declare('schemas/rows/surveys.json', renamed);
    const query = 'event=surveys&selectors=mood&dateFrom=2023-11-01&dateTo=2023-11-30';
    expect(await client.waitForEnd((await client.create(query)) ?? '')).toMatchObject({ status: 'Error occurred' });
    await service.stop();
    await expect(service.startAgain()).rejects.toThrow(
      "the lake's column mood is VARCHAR, but the event schemas lack it",
    );
  });
});
