import { isRecord } from '../runtime/files/checksummed-json.ts';
import { findCountry } from '../datasets/dictionaries.ts';

/** The location of an IP address, as event fields. Unknown values are absent. */
export interface GeoLocation {
  readonly idCountry?: number;
  readonly idCountryISOAlpha2: string;
  readonly idCountryISONumeric?: number;
  /** The largest division of the country. The id is the database's (GeoNames in MaxMind's). */
  readonly idRegion?: number;
  readonly idRegionTitle?: string;
  /** The second-largest division. */
  readonly idRegionLow?: number;
  readonly idRegionLowTitle?: string;
}

const maxTitleLength = 255;

function member(value: unknown, name: string): unknown {
  return isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

function toTitle(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && value.length <= maxTitleLength && value.isWellFormed()
    ? value
    : undefined;
}

function toId(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** Reads a division, 0 for the largest: from `subdivisions` (MaxMind, DB-IP), or from the flat fields of others. */
function readDivision(record: unknown, depth: 0 | 1) {
  const divisions = member(record, 'subdivisions');
  const division: unknown = Array.isArray(divisions) ? divisions[depth] : undefined;
  const flat = depth === 0 ? (toTitle(member(record, 'state1')) ?? member(record, 'region')) : member(record, 'state2');
  return {
    id: toId(member(division, 'geoname_id')),
    title: toTitle(member(member(division, 'names'), 'en')) ?? toTitle(flat),
  };
}

/** Parses a record of MaxMind, DB-IP or a flat database (`state1`, `state2`, `region`); undefined without a country. */
export function parseGeoRecord(record: unknown): GeoLocation | undefined {
  const nested = member(record, 'country');
  const code = member(nested, 'iso_code') ?? member(record, 'country_code') ?? nested;
  const country = typeof code === 'string' ? findCountry(code.toUpperCase()) : undefined;
  if (country === undefined) return undefined;
  const [region, low] = [readDivision(record, 0), readDivision(record, 1)];
  return {
    idCountryISOAlpha2: country.alpha2,
    ...(country.id === undefined ? {} : { idCountry: country.id }),
    ...(country.numeric === undefined ? {} : { idCountryISONumeric: country.numeric }),
    ...(region.id === undefined ? {} : { idRegion: region.id }),
    ...(region.title === undefined ? {} : { idRegionTitle: region.title }),
    ...(low.id === undefined ? {} : { idRegionLow: low.id }),
    ...(low.title === undefined ? {} : { idRegionLowTitle: low.title }),
  };
}
