import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { datasets, events } from '../../../src/datasets/dataset.ts';
import { findEnrichedGroups } from '../../../src/datasets/enriched-columns.ts';
import { openEnrichment, type Enrichment } from '../../../src/enrichment/enrichment.ts';
import { createRowLookups, type RowLookups, type RowsToEnrich } from '../../../src/lake/files/enriched-rows.ts';
import { openDuckdb, type Duckdb, type SqlRow } from '../../../src/lake/sql/duckdb.ts';
import { testFolder } from '../../helpers/folder.ts';
import { writeMmdbFile } from '../../helpers/mmdb-file.ts';

const android =
  'Mozilla/5.0 (Linux; Android 12; SM-G970U) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/96.0.4664.61 Mobile Safari/537.36';
const said = {
  id_os_title: 'Android',
  id_os_version_title: '12',
  id_manufacturer_title: 'Samsung',
  id_device_model_title: 'SM-G970U',
  browser: 'Chrome',
  browser_version: '96.0.4664.61',
};
const installs = datasets.get('installs') ?? events;

/** Opens an engine, and a database with Bavaria for 81.0.0.0/8 and France for 82.0.0.0/8 and 2a02::/16. */
async function open(): Promise<{ duckdb: Duckdb; enrichment: Enrichment }> {
  const duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
  onTestFinished(() => duckdb.close());
  const geoDatabase = path.join(testFolder(), 'own.mmdb');
  const bavaria = { country: { iso_code: 'DE' }, subdivisions: [{ geoname_id: 7, names: { en: 'Bavaria' } }] };
  writeMmdbFile(geoDatabase, [
    ['81.0.0.0/8', bavaria],
    ['82.0.0.0/8', { country_code: 'FR' }],
    ['2a02::/16', { country_code: 'FR' }],
  ]);
  return { duckdb, enrichment: await openEnrichment({ geoDatabase }) };
}

/** Inserts rows of a dataset into the table `given`. Other columns are NULL. */
async function give(duckdb: Duckdb, rows: readonly Readonly<Record<string, unknown>>[]): Promise<RowsToEnrich> {
  const named = new Set(rows.flatMap((row) => Object.keys(row)));
  const types = Object.fromEntries(
    installs.columns.filter(({ name }) => named.has(name)).map(({ name, type }) => [name, type]),
  );
  const columns = installs.columns.map(({ name, type }) => `${name} ${type}`).join(', ');
  await duckdb.run(`CREATE OR REPLACE TEMP TABLE given (${columns})`);
  await duckdb.run(
    `INSERT INTO given BY NAME SELECT unnest(from_json($1::JSON, '${JSON.stringify([types])}'), recursive := true)`,
    [JSON.stringify(rows)],
  );
  return { source: 'given', groups: findEnrichedGroups(installs), has: () => true };
}

async function enrich(
  duckdb: Duckdb,
  enrichment: Enrichment,
  rows: RowsToEnrich,
  rowLookups: RowLookups = createRowLookups(duckdb, enrichment, 'given'),
): Promise<SqlRow[]> {
  const { select } = await rowLookups.lookUp(rows);
  const values = [...(select?.values ?? [])].map(([column, value]) => `${value} AS ${column}`);
  const replaced = values.length === 0 ? '' : ` REPLACE (${values.join(', ')})`;
  const query = `SELECT r.*${replaced} FROM given AS r ${select?.joins ?? ''} ORDER BY r.event_id`;
  const found = await rowLookups.joined(() => duckdb.rows(query));
  return found.map((row) => Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null)));
}

const germany = {
  id_country: 202n,
  id_country_iso_alpha2: 'DE',
  id_country_iso_numeric: 276n,
  id_region: 7n,
  id_region_title: 'Bavaria',
  geo_date: new Date('2023-11-14'),
};
const france = {
  id_country: 47n,
  id_country_iso_alpha2: 'FR',
  id_country_iso_numeric: 250n,
  geo_date: new Date('2023-11-14'),
};

test('Rows get the location of their IPv4 or else IPv6 address, and the data of their User-Agent', async () => {
  const { duckdb, enrichment } = await open();
  const given = [
    { event_id: 'a', ipv4: '81.2.3.4' },
    { event_id: 'b', ipv4: '81.2.3.4', ipv6: '2a02::1', user_agent: android },
    { event_id: 'c', ipv4: '9.9.9.9', ipv6: '2a02::1' },
    { event_id: 'd', ipv6: '::ffff:82.1.1.1' },
    { event_id: 'e', ipv4: 'nonsense', user_agent: 'nonsense' },
    { event_id: 'f', user_agent: android },
    { event_id: 'g' },
  ];
  const rows = await enrich(duckdb, enrichment, await give(duckdb, given));
  const added = [germany, { ...germany, ...said }, france, france, {}, said, {}];
  expect(rows).toEqual(given.map((row, index) => ({ ...row, ...added[index] })));
});

test('Values of a row are kept: a group with any value stays unchanged, and the others are filled', async () => {
  const { duckdb, enrichment } = await open();
  const given = [
    { event_id: 'a', ipv4: '81.2.3.4', id_country_iso_alpha2: 'RU' },
    { event_id: 'b', ipv4: '81.2.3.4', id_country_title: 'Atlantis', user_agent: android },
    { event_id: 'c', ipv4: '81.2.3.4', user_agent: android, id_os_title: 'iOS' },
    { event_id: 'd', user_agent: android, id_device_model: 'own', browser: '' },
  ];
  const { id_os_title: _, id_os_version_title: __, ...withoutOs } = said;
  const rows = await enrich(duckdb, enrichment, await give(duckdb, given));
  const os = { id_os_title: 'Android', id_os_version_title: '12' };
  const added = [{}, said, { ...germany, ...withoutOs, id_os_title: 'iOS' }, os];
  expect(rows).toEqual(given.map((row, index) => ({ ...row, ...added[index] })));
});

test('Six thousand different texts are looked up, regardless of their characters', async () => {
  const { duckdb, enrichment } = await open();
  const odd = ['\uFEFF', "'", '"', '\\', '{', '\u0000', 'é', '\u{1F600}', ''];
  const given = Array.from({ length: 6000 }, (_, index) => ({
    event_id: String(index).padStart(5, '0'),
    ipv4: `81.${index >> 8}.${index & 255}.1`,
    user_agent: `${odd[index % odd.length]}Mozilla/5.0 (Linux; Android ${index}) Chrome/${index}.0 Safari/1`,
  }));
  // Unlimited: how many are parsed in the default time depends on the machine.
  const rows = await enrich(duckdb, enrichment, { ...(await give(duckdb, given)), agentBudgetMs: Infinity });
  expect(rows.map((row) => row['browser_version'])).toEqual(given.map((_, index) => `${index}.0`));
  expect(new Set(rows.map((row) => row['id_country']))).toEqual(new Set([202n]));
});

test('User-Agents that time out stay unknown, and locations are still found', async () => {
  const { duckdb, enrichment } = await open();
  const given = await give(duckdb, [{ event_id: 'a', ipv4: '81.2.3.4', user_agent: android }]);
  const rowLookups = createRowLookups(duckdb, enrichment, 'given');
  const { select, isCutShort } = await rowLookups.lookUp({ ...given, agentBudgetMs: -1 });
  expect(isCutShort).toBe(true);
  expect([...(select?.values.keys() ?? [])].toSorted()).toEqual(Object.keys(germany).toSorted());
  expect(await enrich(duckdb, enrichment, given, rowLookups), 'they are asked for again').toEqual([
    { event_id: 'a', ipv4: '81.2.3.4', user_agent: android, ...germany, ...said },
  ]);
});

test('Lookups are cached for the next rows, until the database changes or the cache is dropped', async () => {
  const { duckdb, enrichment } = await open();
  const asked: string[] = [];
  let edition = 0;
  const counting: Enrichment = {
    ...enrichment,
    databaseDate: enrichment.databaseDate,
    get databaseVersion() {
      return edition;
    },
    findLocation(address) {
      asked.push(address);
      return enrichment.findLocation(address);
    },
    parseUserAgent(userAgent) {
      asked.push(userAgent);
      return enrichment.parseUserAgent(userAgent);
    },
  };
  const rowLookups = createRowLookups(duckdb, counting, 'given');
  const rows = [
    { event_id: 'a', ipv4: '81.2.3.4', user_agent: android },
    { event_id: 'b', ipv4: '9.9.9.9' },
  ];
  const expected = [{ ...rows[0], ...germany, ...said }, rows[1]];
  expect(await enrich(duckdb, counting, await give(duckdb, rows), rowLookups)).toEqual(expected);
  await rowLookups.release();
  expect(asked.splice(0).toSorted()).toEqual(['81.2.3.4', '9.9.9.9', android].toSorted());

  const more = [...rows, { event_id: 'c', ipv4: '82.1.1.1', user_agent: 'nonsense' }];
  expect(await enrich(duckdb, counting, await give(duckdb, more), rowLookups)).toEqual([
    ...expected,
    { ...more[2], ...france },
  ]);
  await rowLookups.release();
  expect(asked.splice(0).toSorted()).toEqual(['82.1.1.1', 'nonsense']);

  edition = 1;
  expect(await enrich(duckdb, counting, await give(duckdb, rows), rowLookups)).toEqual(expected);
  expect(asked.splice(0), 'places are asked for again').toHaveLength(2);
  await rowLookups.forget();
  expect(await enrich(duckdb, counting, await give(duckdb, rows), rowLookups)).toEqual(expected);
  expect(asked).toHaveLength(3);
});

test('Texts that exceed the cache are dropped with their rows', async () => {
  const { enrichment } = await open();
  // A sixteenth of 8 MiB fits 4,096 addresses.
  const duckdb = await openDuckdb({ memoryMb: 8, threads: 1 });
  onTestFinished(() => duckdb.close());
  const rowLookups = createRowLookups(duckdb, enrichment, 'given');
  const countTables = async (rows: number): Promise<number> => {
    const source = `(SELECT '81.2.' || (i // 256) || '.' || (i % 256) AS ipv4, NULL::VARCHAR AS ipv6, NULL::VARCHAR AS user_agent FROM range(${rows}) AS numbers(i))`;
    await rowLookups.lookUp({ source, groups: findEnrichedGroups(installs), has: () => false });
    await rowLookups.release();
    const tables = await duckdb.rows(
      "SELECT count(*) AS n FROM duckdb_tables() WHERE table_name = 'enrich_given_places_cached'",
    );
    return Number(tables[0]?.['n']);
  };
  expect(await countTables(4000)).toBe(1);
  expect(await countTables(5000)).toBe(0);
});

test('The engine builds hash tables from the lookup results, also for fewer rows', async () => {
  const { duckdb, enrichment } = await open();
  const rowLookups = createRowLookups(duckdb, enrichment, 'given');
  const rows = Array.from({ length: 3000 }, (_, index) => ({
    event_id: String(index),
    ipv4: `81.2.${index >> 8}.${index & 255}`,
  }));
  const { select } = await rowLookups.lookUp(await give(duckdb, rows));
  const query = `EXPLAIN SELECT r.event_id, places.id_country FROM (FROM given WHERE event_id < '2') AS r ${select?.joins ?? ''}`;
  const explain = async (): Promise<string> => JSON.stringify(await duckdb.rows(query));
  expect(await explain(), 'left to itself').toContain('RIGHT');
  expect(await rowLookups.joined(explain)).not.toContain('RIGHT');
  expect(await explain(), 'what others run is as it was').toContain('RIGHT');
});

test('Without results nothing is selected, and no lookup stays in the engine', async () => {
  const { duckdb, enrichment } = await open();
  const given = await give(duckdb, [{ event_id: 'a', ipv4: '9.9.9.9' }, { event_id: 'b' }]);
  const rowLookups = createRowLookups(duckdb, enrichment, 'given');
  expect(await rowLookups.lookUp(given)).toEqual({ select: undefined, isCutShort: false });
  await rowLookups.lookUp(await give(duckdb, [{ event_id: 'a', ipv4: '81.2.3.4', user_agent: android }]));
  await rowLookups.forget();
  expect(await duckdb.rows("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'enrich%'")).toEqual([]);
});

test('The region of an address is filled only if the row has just its country, by any of its codes', async () => {
  const { duckdb, enrichment } = await open();
  const ipv4 = '81.2.3.4';
  const rows = await give(duckdb, [
    { id_app: 1, ipv4, id_country_iso_alpha2: 'DE' },
    { id_app: 2, ipv4, id_country_iso_numeric: 276 },
    { id_app: 3, ipv4, id_country: 188 },
    { id_app: 4, ipv4, id_country_title: 'Germany' },
    { id_app: 5, ipv4, id_country_iso_alpha2: 'DE', id_region_title: 'Hesse' },
    { id_app: 6, ipv4, id_country_iso_alpha2: 'DE', geo_date: '2020-01-01' },
    { id_app: 7, ipv4, id_region_title: 'Hesse' },
  ]);
  const found = await enrich(duckdb, enrichment, rows);
  const columns = ['id_country', 'id_region_title', 'id_region'];
  expect(found.map((row) => [...columns.map((name) => row[name] ?? null), (row['geo_date'] ?? null) !== null])).toEqual(
    [
      [null, 'Bavaria', 7n, true],
      [null, 'Bavaria', 7n, true],
      [188n, null, null, false],
      [null, null, null, false],
      [null, 'Hesse', null, false],
      [null, null, null, true],
      [202n, 'Hesse', null, true],
    ],
  );
});

test('Every dataset with addresses and User-Agents can be enriched, and its columns are those of its table', () => {
  for (const dataset of datasets.values()) {
    const names = new Set(dataset.columns.map(({ name }) => name));
    const groups = findEnrichedGroups(dataset);
    expect(groups.map(({ from }) => from)).toEqual(['address', 'address', 'agent', 'agent', 'agent']);
    for (const { columns, saidBy } of groups)
      for (const column of [...columns.map((one) => one.column), ...saidBy]) expect(names).toContain(column);
    expect(names).toContain('geo_date');
  }
});
