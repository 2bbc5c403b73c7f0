import { expect, it } from 'vitest';
import { parseGeoRecord } from '../../../src/enrichment/geo-location.ts';

const germany = { idCountryISOAlpha2: 'DE', idCountryISONumeric: 276, idCountry: 202 };

it.each([
  ["of the package's own database", { country_code: 'DE' }, germany],
  [
    "of MaxMind's city database",
    {
      country: { iso_code: 'DE', geoname_id: 2_921_044, names: { en: 'Germany' } },
      subdivisions: [
        { geoname_id: 2_951_839, iso_code: 'BY', names: { en: 'Bavaria', de: 'Bayern' } },
        { geoname_id: 2_861_322, names: { en: 'Upper Bavaria' } },
      ],
    },
    {
      ...germany,
      idRegion: 2_951_839,
      idRegionTitle: 'Bavaria',
      idRegionLow: 2_861_322,
      idRegionLowTitle: 'Upper Bavaria',
    },
  ],
  [
    'with flat names of divisions',
    { country_code: 'DE', state1: 'Bavaria', state2: 'Upper Bavaria', city: 'Munich' },
    { ...germany, idRegionTitle: 'Bavaria', idRegionLowTitle: 'Upper Bavaria' },
  ],
  ['with a flat code and region', { country: 'de', region: 'Bavaria' }, { ...germany, idRegionTitle: 'Bavaria' }],
  [
    'of a country that the dictionary does not have',
    { country_code: 'HK' },
    { idCountryISOAlpha2: 'HK', idCountryISONumeric: 344 },
  ],
  ['of a code outside ISO 3166', { country_code: 'XK' }, { idCountryISOAlpha2: 'XK' }],
])('A record %s gives its place', (_, record, place) => {
  expect(parseGeoRecord(record)).toEqual(place);
});

it.each([
  [undefined],
  [null],
  ['DE'],
  [{}],
  [[]],
  [{ country_code: 'ZZ' }],
  [{ country_code: 7 }],
  [{ country: { names: { en: 'Germany' } } }],
  [{ registered_country: { iso_code: 'DE' } }],
])('The record %j gives no place', (record) => {
  expect(parseGeoRecord(record)).toBeUndefined();
});

it('Members of a wrong type or length are left out of a place', () => {
  const subdivisions = [
    { geoname_id: -1, names: { en: 'x'.repeat(256) } },
    { geoname_id: 'a', names: ['b'] },
  ];
  expect(parseGeoRecord({ country_code: 'DE', subdivisions })).toEqual(germany);
  expect(parseGeoRecord({ country_code: 'DE', subdivisions: 'none', state1: '\uD800', state2: '' })).toEqual(germany);
});
