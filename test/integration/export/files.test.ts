import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../src/lake/sql/literals.ts';
import { selectors } from '../../../src/datasets/dictionaries.ts';
import { createExportArea, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { hostileTexts, importedEvents, oracleApps, toFixtureEvent } from '../../helpers/export-events.ts';
import { expectedRows, parseCsv } from '../../helpers/export-oracle.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { inTurn, oneTestIn } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { specParameters } from '../../helpers/export-parameters.ts';
import { runHere } from '../../helpers/worker-here.ts';

beforeEach(oneTestIn(2));

const may = 'dateFrom=2025-05-01&dateTo=2025-05-11&timezone=UTC';
const create = '/api/raw/v1/export/create.json';

/** The rows without the header, sorted. */
function sorted(rows: readonly string[][]): string[] {
  return rows
    .slice(1)
    .map((row) => JSON.stringify(row))
    .toSorted();
}

describe('exported files', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;
  let duckdb: Duckdb;

  beforeAll(async () => {
    for (const app of oracleApps) await area.addApp(app);
    user = await area.addUser({});
    await writeLake(area.tableDir, [
      importedEvents.slice(0, 300).map(toFixtureEvent),
      importedEvents.slice(300, 700).map(toFixtureEvent),
    ]);
    duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
    running = await area.start({ runAttempt: runHere, maxExports: 100 });
  });
  afterAll(async () => {
    await running.stop();
    duckdb.close();
  });

  async function exportRows(query: string): Promise<string[][]> {
    return parseCsv((await running.export(user, query)).join(''));
  }

  async function exportFile(query: string, name: string): Promise<string> {
    const file = path.join(area.dataDir, name);
    writeFileSync(file, (await running.export(user, query)).join(''));
    return file;
  }

  const every = `event=customEvents&selectors=${[...selectors.keys()].join(',')}`;

  const hostile = {
    event: 'customEvents',
    selectors: ['eventId', 'customUserId', 'eventName', 'userAgent', 'params.name', 'params.value'],
    dateFrom: '2025-06-15',
    dateTo: '2025-06-15',
    timezone: 'UTC',
  };
  const hostileFile = (name: string): Promise<string> =>
    exportFile(new URLSearchParams({ ...hostile, selectors: hostile.selectors.join(',') }).toString(), name);

  it('Exported files are read by DuckDB as RFC 4180, cell by cell', async () => {
    const file = await hostileFile('hostile-duckdb.csv');
    const names = hostile.selectors.map((_, index) => `c${index}`);
    const columns = names.map((name) => `${name}: 'VARCHAR'`).join(', ');
    // As JSON, because the client drops a byte order mark at the beginning of a text.
    const lines = await duckdb.rows(
      `SELECT to_json([${names.join(', ')}])::VARCHAR AS cells FROM read_csv(${sqlText(file)}, auto_detect = false, header = false, delim = ',', quote = '"', escape = '"', nullstr = '\\N', columns = {${columns}})`,
    );
    const rows = lines.map(({ cells }) => JSON.parse(String(cells)) as string[]);
    expect(rows).toEqual(expectedRows(hostile, importedEvents));
    expect(rows.slice(1).map((row) => row[1])).toEqual(hostileTexts);
  });

  it('Exported files are read by the csv module of Python without options, cell by cell', async (context) => {
    if (spawnSync('python3', ['--version']).status !== 0)
      context.skip('python3 is not here: its csv module does not read the exported file');
    const file = await hostileFile('hostile-python.csv');
    const script =
      "import csv,json,sys\nprint(json.dumps(list(csv.reader(open(sys.argv[1], newline='', encoding='utf-8')))))";
    const rows = JSON.parse(
      execFileSync('python3', ['-c', script, file], { encoding: 'utf8', maxBuffer: 2 ** 26 }),
    ) as string[][];
    expect(rows).toEqual(expectedRows(hostile, importedEvents));
    expect(rows.slice(1).map((row) => row[1])).toEqual(hostileTexts);
  });

  it('Exported files are read by the sniffer of DuckDB without options, with every row and column', async () => {
    const file = await exportFile(`${every}&${may}`, 'every.csv');
    const [counted] = await duckdb.rows(
      `SELECT count(*) AS rows, count(DISTINCT "eventId") AS ids FROM ${sqlText(file)}`,
    );
    const expected =
      expectedRows(
        {
          event: 'customEvents',
          selectors: ['eventId'],
          dateFrom: '2025-05-01',
          dateTo: '2025-05-11',
          timezone: 'UTC',
        },
        importedEvents,
      ).length - 1;
    expect([Number(counted?.['rows']), Number(counted?.['ids'])]).toEqual([expected, expected]);
    const columns = await duckdb.rows(`DESCRIBE SELECT * FROM ${sqlText(file)}`);
    expect(columns.map((column) => column['column_name'])).toEqual([...selectors.keys()]);
  });

  it('An export of two days is the union of the exports of each day', async () => {
    const base = 'event=customEvents&selectors=eventId,tsEvent,params.value&timezone=America/New_York';
    const [both, first, second] = [
      await exportRows(`${base}&dateFrom=2025-05-04&dateTo=2025-05-05`),
      await exportRows(`${base}&dateFrom=2025-05-04&dateTo=2025-05-04`),
      await exportRows(`${base}&dateFrom=2025-05-05&dateTo=2025-05-05`),
    ];
    expect(sorted(both)).toEqual([...sorted(first), ...sorted(second)].toSorted());
    expect(sorted(first).length * sorted(second).length).toBeGreaterThan(0);
  });

  it('An export of all apps is the union of the exports of each app', async () => {
    const base = `event=customEvents&selectors=eventId,idApp,SDKKey,idAppTitle&${may}`;
    const each: string[] = [];
    for (const { idApp } of oracleApps) each.push(...sorted(await exportRows(`${base}&idApp=${idApp}`)));
    expect(each.toSorted()).toEqual(sorted(await exportRows(base)));
  });

  it('An export with an inverted filter is the complement of the one without inversion', async () => {
    const base = `event=customEvents&selectors=eventId,eventName&${may}`;
    const names = ['level_up', 'a,b', 'логин'].map((name) => `eventName[]=${encodeURIComponent(name)}`).join('&');
    const [all, chosen, others] = [
      await exportRows(base),
      await exportRows(`${base}&${names}`),
      await exportRows(`${base}&${names}&eventNameInvert=1`),
    ];
    expect([...sorted(chosen), ...sorted(others)].toSorted()).toEqual(sorted(all));
    expect(sorted(chosen).length * sorted(others).length).toBeGreaterThan(0);
  });

  it('Exports of availability before and after a moment are together the complete export', async () => {
    const base = `event=userRegistrations&selectors=eventId&${may}`;
    const moment = Date.parse('2025-05-06T00:00:00Z') / 1000;
    const [all, before, after] = [
      await exportRows(base),
      await exportRows(`${base}&availabilityTsTo=${moment}`),
      await exportRows(`${base}&availabilityTsFrom=${moment + 1}`),
    ];
    expect([...sorted(before), ...sorted(after)].toSorted()).toEqual(sorted(all));
  });

  it('An export has as many rows as DuckDB counts in the files of the lake', async () => {
    const rows = await exportRows(`event=customEvents&selectors=eventId&${may}`);
    const [counted] = await duckdb.rows(
      `SELECT count(*) AS rows FROM read_parquet(${sqlText(`${area.tableDir}/_young/*.parquet`)}) WHERE kind = 'custom_event' AND id_app < 90 AND date BETWEEN '2025-05-01' AND '2025-05-11'`,
    );
    expect(rows.length - 1).toBe(Number(counted?.['rows']));
  });

  it('A repeated export returns the same bytes', async () => {
    const ids = [await running.create(user, `${every}&${may}`), await running.create(user, `${every}&${may}`)];
    const [first, second] = await Promise.all(ids.map((id) => running.waitForEnd(user, id)));
    expect(second?.files?.[0]?.sha256).toBe(first?.files?.[0]?.sha256);
  });

  it('An export has its rows in the order of the lake for more apps and names than are compared one by one', async () => {
    for (let idApp = 1000; idApp < 1070; idApp += 1)
      await area.addApp({ idApp, platform: 'web', idAccount: 3, title: `App ${idApp}`, idProject: idApp });
    const analyst = await area.addUser({ idAccount: 3 });
    const events = importedEvents.slice(0, 600).map((event, index) => ({ ...event, idApp: 1000 + (index % 70) }));
    const other = createExportArea(path.join(area.dataDir, 'many'));
    await writeLake(path.join(area.dataDir, 'many', 'lake', 'events'), [
      events.slice(0, 200).map(toFixtureEvent),
      events.slice(200).map(toFixtureEvent),
    ]);
    await running.stop();
    running = await area.start({ runAttempt: runHere, lakeDir: path.dirname(other.tableDir) });
    const [csv] = await running.export(
      analyst,
      `event=customEvents&selectors=eventId,idAppTitle,idProject,idAccount&${may}`,
    );
    const expected = events
      .filter((event) => event.kind === 'custom_event')
      .map(({ eventId, idApp }) => [eventId, `App ${idApp}`, String(idApp), '3']);
    expect(parseCsv(csv ?? '').slice(1)).toEqual(expected);
  });
});

describe('input in the shape of SQL', () => {
  const area = createExportArea(temporaryFolder());
  let running: RunningArea;
  let user: Credentials;

  beforeAll(async () => {
    await area.addApp({ idApp: 13, platform: 'web', idAccount: 1 });
    user = await area.addUser({});
    await writeLake(area.tableDir, [
      importedEvents.filter(({ eventId }) => eventId.startsWith('hostile')).map(toFixtureEvent),
    ]);
    running = await area.start({ runAttempt: runHere, maxExports: 1000 });
  });
  afterAll(() => running.stop());

  const whole: Readonly<Record<string, string>> = {
    event: 'customEvents',
    selectors: 'eventId',
    dateFrom: '2025-06-15',
    dateTo: '2025-06-15',
    timezone: 'UTC',
  };
  const shapes = [
    "'; DROP TABLE apps; --",
    "' OR '1'='1",
    '1) OR (1=1',
    '$kind',
    "\"; COPY (SELECT 1) TO '/tmp/x'; --",
    "read_csv('/etc/passwd')",
    "1; ATTACH '/tmp/x.db'",
    '*',
    '%',
  ];
  // These two accept any text.
  const names = specParameters.filter((name) => name !== 'SDKKey' && name !== 'eventName');

  it.each(names)('Input in the shape of SQL is refused in %s', async (name) => {
    for (const shape of shapes) {
      const query = Object.entries({ ...whole, [name]: shape })
        .map(([key, value]) => `${key}=${encodeURIComponent(value)}`)
        .join('&');
      expect((await running.call(user, `${create}?${query}`, { method: 'POST' })).status).toBe(400);
    }
  });

  it('Input in the shape of SQL selects nothing as an SDK key, and only the event of that name as an event name', async () => {
    const base = Object.entries(whole)
      .map(([key, value]) => `${key}=${encodeURIComponent(value)}`)
      .join('&');
    for (const shape of inTurn(shapes, 4))
      expect(await running.export(user, `${base}&SDKKey[]=${encodeURIComponent(shape).replaceAll('%2C', '')}`)).toEqual(
        ['eventId\n'],
      );
    for (const shape of inTurn(hostileTexts.slice(0, 5), 3))
      expect(await running.export(user, `${base}&eventName[]=${encodeURIComponent(shape)}`)).toEqual([
        `eventId\nhostile-${hostileTexts.indexOf(shape)}\n`,
      ]);
  }, 120_000);
});
