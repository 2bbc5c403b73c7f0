import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openEnrichment, type Enrichment } from '../../../src/enrichment/enrichment.ts';
import { openBatchTables, type KnownEvents } from '../../../src/lake/batch/batch-tables.ts';
import { openDuckdb, type Duckdb } from '../../../src/lake/sql/duckdb.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { writeWorkFile } from '../../../src/runtime/files/work-files.ts';
import { testFolder } from '../../helpers/folder.ts';
import { eventLine, query, readRows, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { writeMmdbFile } from '../../helpers/mmdb-file.ts';
import { waitFor } from '../../helpers/wait.ts';

const firefox = 'Mozilla/5.0 (X11; Ubuntu; Linux i686; rv:109.0) Gecko/20100101 Firefox/115.0';
const columns = 'custom_user_id, id_country, id_country_iso_alpha2, geo_date, id_os_title, browser, browser_version';
const nothing: KnownEvents = { rule: 'stream', load: () => Promise.resolve() };

async function openOwn(): Promise<Enrichment> {
  const geoDatabase = path.join(testFolder(), 'own.mmdb');
  writeMmdbFile(geoDatabase, [['81.0.0.0/8', { country_code: 'DE' }]]);
  return openEnrichment({ geoDatabase });
}

const told = {
  id_country: 202n,
  id_country_iso_alpha2: 'DE',
  geo_date: new Date('2023-11-14'),
  id_os_title: 'Ubuntu',
  browser: 'Firefox',
  browser_version: '115.0',
};
const untold = Object.fromEntries(Object.keys(told).map((name) => [name, null]));

test('The compactor enriches events by their addresses and User-Agents, and stores the others unchanged', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const compactor = await startTestCompact(folder, stream, { enrichment: await openOwn() });
  onTestFinished(() => compactor.stop());
  stream.publish([
    eventLine({ custom_user_id: 'a', ipv4: '81.2.3.4', user_agent: firefox }),
    eventLine({ custom_user_id: 'b', ipv4: '9.9.9.9', user_agent: 'x' }),
    eventLine({ custom_user_id: 'c' }),
    eventLine({ custom_user_id: 'd', ipv4: '81.2.3.4', user_agent: firefox, age: 'bad' }),
    eventLine({ custom_user_id: 'e', ipv6: '::ffff:81.2.3.4' }),
  ]);
  await waitFor('the rows are stored', async () => (await readRows(folder)).length === 4);
  const { id_os_title: _, browser: __, browser_version: ___, ...place } = told;
  const rows = await readRows(folder, columns);
  expect(rows.toSorted((a, b) => (String(a['custom_user_id']) < String(b['custom_user_id']) ? -1 : 1))).toEqual([
    { custom_user_id: 'a', ...told },
    { custom_user_id: 'b', ...untold },
    { custom_user_id: 'c', ...untold },
    { custom_user_id: 'e', ...untold, ...place },
  ]);
  expect(compactor.facts()['warnings']).toMatchObject([{ code: 'events_failed' }]);
});

test('A compactor without a readable database stores every event, and reports a warning', async () => {
  const folder = testFolder();
  const stream = createMemoryStream();
  const enrichment = await openEnrichment({ geoDatabase: path.join(folder, 'missing.mmdb') });
  const compactor = await startTestCompact(folder, stream, { enrichment });
  onTestFinished(() => compactor.stop());
  stream.publish([eventLine({ ipv4: '81.2.3.4', user_agent: firefox })]);
  await waitFor('the row is stored', async () => (await readRows(folder)).length === 1);
  expect(await readRows(folder, 'id_country, geo_date, browser')).toEqual([
    { id_country: null, geo_date: null, browser: 'Firefox' },
  ]);
  expect(compactor.facts()).toMatchObject({ problems: [], warnings: [{ code: 'geo_database_unreadable' }] });
});

test.each([
  ['when texts are asked for', /enrich_events_places_texts AS/],
  ['when what was found is joined', /^COPY .*LEFT JOIN/],
])('Events are stored without enrichment when the engine fails %s', async (_, failsAt) => {
  const folder = testFolder();
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  let fails = true;
  const failing = (sql: string): void => {
    if (fails && failsAt.test(sql.replaceAll('\n', ' '))) throw new AppError('memory', 'duckdb: Out of Memory Error');
  };
  const engine: Duckdb = {
    ...duckdb,
    run: async (sql, values) => (failing(sql), duckdb.run(sql, values)),
    rows: async (sql, values) => (failing(sql), duckdb.rows(sql, values)),
  };
  const enrichment = await openOwn();
  const tables = await openBatchTables(engine, enrichment);
  const spool = path.join(folder, 'spool.ndjson');
  await writeWorkFile(spool, `${JSON.stringify(eventLine({ ipv4: '81.2.3.4', user_agent: firefox }))}\n`);
  // A column in which no row has a value is not written.
  const write = async (name: string): Promise<unknown> => {
    const judged = await (await tables.load(spool, 1)).classify(nothing);
    const file = path.join(folder, name);
    await judged.writeYoung(file, Date.now(), 1000);
    const [{ id_country = null, browser = null } = {}] = await query(`SELECT * FROM read_parquet('${file}')`);
    return { id_country, browser };
  };
  expect(await write('first.parquet')).toEqual({ id_country: null, browser: null });
  expect(enrichment.problems()).toMatchObject([{ code: 'enrichment_failing' }]);
  fails = false;
  expect(await write('second.parquet')).toEqual({ id_country: 202n, browser: 'Firefox' });
  expect(enrichment.problems()).toEqual([]);
});
