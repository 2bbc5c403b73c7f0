import path from 'node:path';
import { expect, test } from 'vitest';
import { openEnrichment } from '../../../src/enrichment/enrichment.ts';
import type { Enricher } from '../../../src/lake/files/enriched-rows.ts';
import { testFolder } from '../../helpers/folder.ts';
import { openLoadArea } from '../../helpers/loads.ts';
import { writeMmdbFile } from '../../helpers/mmdb-file.ts';

const firefox = 'Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0';
const rows = [
  { tsEvent: 1700000000, idApp: 1, eventId: 'a', ipv4: '81.2.3.4', userAgent: firefox },
  { tsEvent: 1700000001, idApp: 1, eventId: 'b', ipv4: '81.2.3.4', idCountryISOAlpha2: 'RU' },
  { tsEvent: 1700000002, idApp: 1, ipv4: '81.2.3.4', userAgent: firefox },
  { tsEvent: 1700000003, idApp: 1, eventId: 'd', ipv4: '9.9.9.9' },
];
const jsonLines = `${rows.map((row) => JSON.stringify(row)).join('\n')}\n`;
/** Id of the country that one of the rows names by its code. */
const russia = 188n;
const columns = 'event_id, id_country_iso_alpha2 AS country, id_country, browser';

/** Opens an enrichment by a database in which 81.0.0.0/8 is Germany. */
async function openOwn(folder: string) {
  const geoDatabase = path.join(folder, 'own.mmdb');
  writeMmdbFile(geoDatabase, [['81.0.0.0/8', { country_code: 'DE' }]]);
  return openEnrichment({ geoDatabase });
}

test('Loaded rows get missing values and keep their identity, and the same file adds nothing', async () => {
  const folder = testFolder();
  const plain = await openLoadArea(testFolder(), 'installs');
  await plain.load(plain.write('rows.jsonl', jsonLines));
  const identities = (await plain.rows('event_id')).map((row) => row['event_id']);

  const enricher = await openOwn(folder);
  const area = await openLoadArea(folder, 'installs');
  const file = area.write('rows.jsonl', jsonLines);
  expect(await area.load(file, {}, { enricher })).toMatchObject({ rows: 4, stored: 4, repeats: 0 });
  const germany = { country: 'DE', id_country: 202n };
  const expected = [
    { event_id: 'a', ...germany, browser: 'Firefox' },
    { event_id: 'b', country: 'RU', id_country: russia, browser: null },
    { event_id: identities[2], ...germany, browser: 'Firefox' },
    { event_id: 'd', country: null, id_country: null, browser: null },
  ];
  expect(await area.rows(columns)).toEqual(expected);
  expect(await area.load(file, {}, { enricher })).toMatchObject({ stored: 0, loadedBefore: true });
  // Another content with the same rows: they are known by their identities.
  const again = area.write('again.jsonl', `${jsonLines}\n`);
  expect(await area.load(again, {}, { enricher })).toMatchObject({ stored: 0, repeats: 4 });
  expect(await area.rows(columns)).toEqual(expected);
  expect(enricher.problems()).toEqual([]);
});

test('A load whose enrichment fails stores its rows unchanged, and reports it', async () => {
  const folder = testFolder();
  const enrichment = await openOwn(folder);
  const enricher: Enricher = { ...enrichment, databaseDate: 'no date' };
  const area = await openLoadArea(folder, 'installs');
  const loaded = await area.load(area.write('rows.jsonl', jsonLines), {}, { enricher });
  expect(loaded).toMatchObject({ rows: 4, stored: 4 });
  expect((await area.rows('id_country, browser')).map((row) => [row['id_country'], row['browser']])).toEqual(
    rows.map((row) => ['idCountryISOAlpha2' in row ? russia : null, null]),
  );
  expect(enrichment.problems()).toMatchObject([{ code: 'enrichment_failing' }]);
});

test('A code of a country fills its other columns, and the identity of the row stays', async () => {
  const area = await openLoadArea(testFolder(), 'installs');
  const csv = [
    'tsEvent,idApp,idCountry,idCountryISOAlpha2,idCountryISONumeric',
    '1700000001,1,,DE,',
    '1700000002,1,,,276',
    '1700000003,1,202,,',
    '1700000004,1,,HK,',
    '1700000005,1,,ZZ,',
    '1700000006,1,,,',
  ].join('\n');
  expect(await area.load(area.write('rows.csv', csv))).toMatchObject({ stored: 6 });
  const germany = [202n, 'DE', 276n];
  const codes = 'id_country, id_country_iso_alpha2 AS alpha2, id_country_iso_numeric AS numeric';
  const found = (await area.rows(codes)).map((row) => [row['id_country'], row['alpha2'], row['numeric']]);
  expect(found).toEqual([germany, germany, germany, [null, 'HK', 344n], [null, 'ZZ', null], [null, null, null]]);
  const own = await openLoadArea(testFolder(), 'installs');
  const alone = own.write('alone.csv', 'tsEvent,idApp,idCountryISOAlpha2\n1700000001,1,DE\n');
  await own.load(alone);
  expect(await own.rows(`event_id, ${codes}`)).toEqual((await area.rows(`event_id, ${codes}`)).slice(0, 1));
});
