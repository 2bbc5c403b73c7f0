import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { openEnrichment } from '../../../src/enrichment/enrichment.ts';
import { testFolder } from '../../helpers/folder.ts';
import { writeMmdbFile } from '../../helpers/mmdb-file.ts';

const codesOf = (found: readonly { readonly code: string }[]): string[] => found.map(({ code }) => code);

describe('places by the database of the package', async () => {
  const enrichment = await openEnrichment();

  it.each([
    ['77.88.8.8', 'RU', 188, 643],
    ['8.8.8.8', 'US', 200, 840],
    ['::ffff:77.88.8.8', 'RU', 188, 643],
    ['2a02:6b8::1', 'RU', 188, 643],
  ])('The address %s is in %s, under the id of the dictionary', (address, idCountryISOAlpha2, idCountry, numeric) => {
    expect(enrichment.findLocation(address)).toEqual({ idCountryISOAlpha2, idCountry, idCountryISONumeric: numeric });
  });

  it.each([
    '0.0.0.0',
    '10.1.2.3',
    '127.0.0.1',
    '169.254.1.1',
    '172.16.0.1',
    '192.168.1.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::8.8.8.8',
    '192.0.2.1',
    '100.64.0.1',
    '2001:db8::1',
    'fe80::1',
    'fc00::1',
    'ff02::1',
    '::ffff:10.0.0.1',
    'nonsense',
    '',
  ])('The address %j has no place', (address) => {
    expect(enrichment.findLocation(address)).toBeUndefined();
  });

  it('The database has its build date, and no problem', () => {
    expect(enrichment.databaseDate).toMatch(/^20\d\d-\d\d-\d\d$/);
    expect(enrichment.problems()).toEqual([]);
  });

  it('A closed database has no places', async () => {
    const closed = await openEnrichment();
    closed.close();
    expect(closed.findLocation('8.8.8.8')).toBeUndefined();
    expect(closed.databaseDate).toBeUndefined();
  });
});

describe('places by a database of the operator', () => {
  const city = {
    country: { iso_code: 'DE' },
    subdivisions: [{ geoname_id: 2_951_839, names: { en: 'Bavaria' } }],
  };

  it('A custom database has regions, for both versions of addresses, and its date', async () => {
    const file = path.join(testFolder(), 'own.mmdb');
    writeMmdbFile(file, [
      ['81.2.0.0/16', city],
      ['2a02:100::/32', { country_code: 'FR' }],
    ]);
    const enrichment = await openEnrichment({ geoDatabase: file });
    expect(enrichment.findLocation('81.2.69.142')).toMatchObject({ idRegion: 2_951_839, idRegionTitle: 'Bavaria' });
    expect(enrichment.findLocation('::ffff:81.2.69.142')).toMatchObject({ idRegionTitle: 'Bavaria' });
    expect(enrichment.findLocation('2a02:100:1::1')).toMatchObject({ idCountryISOAlpha2: 'FR' });
    expect(enrichment.findLocation('81.3.0.0')).toBeUndefined();
    expect(enrichment.databaseDate).toBe('2023-11-14');
  });

  it('A custom database may have the place of private addresses', async () => {
    const file = path.join(testFolder(), 'own.mmdb');
    writeMmdbFile(file, [['10.0.0.0/8', city]]);
    const enrichment = await openEnrichment({ geoDatabase: file });
    expect(enrichment.findLocation('10.1.2.3')).toMatchObject({ idRegionTitle: 'Bavaria' });
  });

  it('A database of IPv4 alone knows no IPv6 address', async () => {
    const file = path.join(testFolder(), 'own.mmdb');
    writeMmdbFile(file, [['0.0.0.0/1', city]], { ipVersion: 4 });
    const enrichment = await openEnrichment({ geoDatabase: file });
    expect(enrichment.findLocation('81.2.69.142')).toMatchObject({ idCountryISOAlpha2: 'DE' });
    expect(enrichment.findLocation('2a02:100::1')).toBeUndefined();
  });

  it('A replaced database is read at the next refresh, and a damaged one leaves the previous one in use', async () => {
    const file = path.join(testFolder(), 'own.mmdb');
    writeMmdbFile(file, [['81.2.0.0/16', city]]);
    const enrichment = await openEnrichment({ geoDatabase: file });
    writeMmdbFile(file, [['81.2.0.0/16', { country_code: 'FR' }]], { builtAt: 1_800_000_000 });
    expect(enrichment.findLocation('81.2.0.1')).toMatchObject({ idCountryISOAlpha2: 'DE' });
    await enrichment.refresh();
    expect(enrichment.findLocation('81.2.0.1')).toMatchObject({ idCountryISOAlpha2: 'FR' });
    expect(enrichment.databaseDate).toBe('2027-01-15');
    writeFileSync(file, 'no database');
    await enrichment.refresh();
    expect(enrichment.findLocation('81.2.0.1')).toMatchObject({ idCountryISOAlpha2: 'FR' });
    expect(codesOf(enrichment.problems())).toEqual(['geo_database_unreadable']);
    expect(enrichment.problems()[0]?.message).toContain('the geo database of 2027-01-15 stays in use');
  });

  it('Without a database that can be read places are unknown, which is a problem until there is one', async () => {
    const file = path.join(testFolder(), 'own.mmdb');
    const enrichment = await openEnrichment({ geoDatabase: file });
    expect(enrichment.findLocation('8.8.8.8')).toBeUndefined();
    expect(enrichment.databaseDate).toBeUndefined();
    expect(enrichment.problems()).toMatchObject([{ code: 'geo_database_unreadable', subject: file }]);
    expect(enrichment.parseUserAgent('Mozilla/5.0 (X11; Linux) Gecko/20100101 Firefox/115.0').browser).toBe('Firefox');
    writeMmdbFile(file, [['8.0.0.0/8', { country_code: 'US' }]]);
    await enrichment.refresh();
    expect(enrichment.findLocation('8.8.8.8')).toMatchObject({ idCountry: 200 });
    expect(enrichment.problems()).toEqual([]);
    rmSync(file);
    await enrichment.refresh();
    expect(enrichment.findLocation('8.8.8.8')).toMatchObject({ idCountry: 200 });
    expect(codesOf(enrichment.problems())).toEqual(['geo_database_unreadable']);
  });

  it('A lookup in damaged data finds no place and is a problem; other lookups continue', async () => {
    const file = path.join(testFolder(), 'own.mmdb');
    writeMmdbFile(file, [
      ['81.2.0.0/16', city],
      ['82.0.0.0/8', { country_code: 'US' }],
    ]);
    const bytes = readFileSync(file);
    // A type that there is none of, in the place of the first record's map.
    bytes.writeUInt16BE(0x00ff, bytes.indexOf(Buffer.from('country')) - 2);
    writeFileSync(file, bytes);
    const enrichment = await openEnrichment({ geoDatabase: file });
    expect(enrichment.problems()).toEqual([]);
    expect(enrichment.findLocation('81.2.69.142')).toBeUndefined();
    expect(codesOf(enrichment.problems())).toEqual(['geo_database_unreadable']);
    expect(enrichment.findLocation('82.1.1.1')).toMatchObject({ idCountryISOAlpha2: 'US' });
  });

  it('Opening and querying a database never throws, regardless of its damage', async () => {
    const file = path.join(testFolder(), 'own.mmdb');
    const networks = Array.from({ length: 64 }, (_, part) => [`${part * 4}.0.0.0/7`, city] as const);
    writeMmdbFile(file, networks);
    const whole = readFileSync(file);
    let problems = 0;
    for (let seed = 1; seed <= 300; seed += 1) {
      const bytes = Buffer.from(whole.subarray(0, seed % 5 === 0 ? (whole.length * seed) / 300 : whole.length));
      for (let hit = 0; hit < 3; hit += 1)
        bytes[(seed * 7919 + hit * 104_729) % bytes.length] = (seed * 31 + hit) % 256;
      writeFileSync(file, bytes);
      const enrichment = await openEnrichment({ geoDatabase: file });
      for (let part = 0; part < 256; part += 1) enrichment.findLocation(`${part}.1.1.1`);
      for (const problem of enrichment.problems()) expect(problem.code).toBe('geo_database_unreadable');
      problems += enrichment.problems().length;
    }
    expect(problems).toBeGreaterThan(30);
  });
});
