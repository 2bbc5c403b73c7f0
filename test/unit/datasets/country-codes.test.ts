import { readFileSync } from 'node:fs';
import { Reader, type Response } from 'mmdb-lib';
import { describe, expect, it } from 'vitest';
import { countryCodes, findCountry, countries } from '../../../src/datasets/dictionaries.ts';
import { findPackagedFile } from '../../../src/runtime/files/package-files.ts';

const { byId, idsWithoutCode, codesWithoutId, codesOutsideIso } = countryCodes;
const codes = [...Object.values(byId).map(({ alpha2 }) => alpha2), ...Object.keys(codesWithoutId), ...codesOutsideIso];

/** Titles of the dictionary that differ from the Unicode names of countries, with those. */
const otherTitles: Readonly<Record<string, string>> = {
  'Ivory Coast': 'Côte d’Ivoire',
  'Great Britain': 'United Kingdom',
  'Czech Republic': 'Czechia',
  Turkey: 'Türkiye',
  Macedonia: 'North Macedonia',
  Palestine: 'Palestinian Territories',
  'United States Of America': 'United States',
  Vatican: 'Vatican City',
  'Democratic Republic Of Congo': 'Congo - Kinshasa',
  Congo: 'Congo - Brazzaville',
  Swaziland: 'Eswatini',
  'East Timor': 'Timor-Leste',
  Myanmar: 'Myanmar (Burma)',
  'Saint Vincent And The Grenadines': 'St. Vincent & Grenadines',
};

/** Lists the countries of the package's address database: each is a text of two letters in its data. */
function findDatabaseCodes(): string[] {
  const file = findPackagedFile('@ip-location-db/geo-whois-asn-country-mmdb/geo-whois-asn-country.mmdb') ?? '';
  const bytes = readFileSync(file);
  const { searchTreeSize } = new Reader<Response>(bytes).metadata;
  const data = bytes.toString('latin1', searchTreeSize);
  return [...data.slice(0, data.indexOf('MaxMind.com')).matchAll(/\x42([A-Z]{2})/g)].map(([, code = '']) => code);
}

function plain(text: string): string {
  return text
    .normalize('NFD')
    .replace(/[^A-Za-z&]/g, '')
    .replace(/&/g, 'and')
    .replace(/^St(?=[A-Z])/, 'Saint')
    .toLowerCase();
}

describe('the codes of countries', () => {
  it('Every country of the dictionary has a code, or is stated to have none', () => {
    expect([...Object.keys(byId), ...idsWithoutCode].toSorted()).toEqual(Object.keys(countries).toSorted());
    expect(idsWithoutCode.map((id) => countries[id])).toEqual(['Abkhazia', 'South Ossetia']);
  });

  it('Every code appears once, as two letters with a unique number', () => {
    expect(new Set(codes).size).toBe(codes.length);
    for (const code of codes) expect(code).toMatch(/^[A-Z]{2}$/);
    const numbers = [...Object.values(byId).map(({ numeric }) => numeric), ...Object.values(codesWithoutId)];
    expect(new Set(numbers).size).toBe(numbers.length);
    expect(numbers).toHaveLength(249);
  });

  it('Every code matches its title by the Unicode names', () => {
    const names = new Intl.DisplayNames('en', { type: 'region' });
    const odd = Object.entries(byId)
      .map(([id, { alpha2 }]) => [countries[id] ?? '', names.of(alpha2) ?? ''] as const)
      .filter(([title, name]) => plain(otherTitles[title] ?? title) !== plain(name));
    expect(odd).toEqual([]);
  });

  it("Every country of the package's database is known", () => {
    const found = findDatabaseCodes();
    expect(found.length).toBeGreaterThan(240);
    expect(found.filter((code) => !codes.includes(code))).toEqual([]);
  });

  it('A country is found by its code, with its id in the dictionary, and nothing by another text', () => {
    expect(findCountry('RU')).toEqual({ alpha2: 'RU', numeric: 643, id: 188 });
    expect(findCountry('HK')).toEqual({ alpha2: 'HK', numeric: 344 });
    expect(findCountry('XK')).toEqual({ alpha2: 'XK' });
    for (const text of ['', 'ru', 'ZZ', 'EU', '__proto__', 'RUS']) expect(findCountry(text)).toBeUndefined();
  });
});
