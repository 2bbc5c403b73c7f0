import type { Dataset } from './dataset.ts';
import { geoDateColumn } from './field-schema.ts';

const countryFields = ['idCountry', 'idCountryISOAlpha2', 'idCountryISONumeric'] as const;
const regionFields = ['idRegion', 'idRegionTitle', 'idRegionLow', 'idRegionLowTitle'] as const;
const geoFields = [...countryFields, ...regionFields] as const;
export type GeoField = (typeof geoFields)[number];

const userAgentFields = [
  'idOsTitle',
  'idOsVersionTitle',
  'idManufacturerTitle',
  'idDeviceModelTitle',
  'browser',
  'browserVersion',
] as const;
export type UserAgentField = (typeof userAgentFields)[number];

interface GroupSpec {
  readonly from: 'address' | 'agent';
  readonly fields: readonly (GeoField | UserAgentField)[];
  /** Fields that are never filled, but show that a row has its own values. */
  readonly saidBy: readonly string[];
  /** Filled only if the row has no country, or that of the address; never if a database has placed the row. */
  readonly isInCountry?: true;
}

/** Fields that belong together. A row with any of them is not filled: a mix of two systems would be wrong. */
const groupSpecs: readonly GroupSpec[] = [
  { from: 'address', fields: countryFields, saidBy: ['idCountryTitle'] },
  { from: 'address', fields: regionFields, saidBy: [], isInCountry: true },
  { from: 'agent', fields: ['idOsTitle', 'idOsVersionTitle'], saidBy: ['idOs', 'idOsVersion'] },
  { from: 'agent', fields: ['idManufacturerTitle', 'idDeviceModelTitle'], saidBy: ['idManufacturer', 'idDeviceModel'] },
  { from: 'agent', fields: ['browser', 'browserVersion'], saidBy: [] },
];

export interface EnrichedColumn {
  readonly column: string;
  readonly type: string;
  readonly field: GeoField | UserAgentField;
}

export interface EnrichedGroup {
  readonly from: 'address' | 'agent';
  readonly columns: readonly EnrichedColumn[];
  /** All columns that show the row's own values, including the filled ones. */
  readonly saidBy: readonly string[];
  readonly within?: EnrichedGroup;
}

/** Lists the groups of a dataset's columns that can be enriched. */
export function findEnrichedGroups({ columns }: Dataset): EnrichedGroup[] {
  const byField = new Map(columns.flatMap((column) => (column.field === undefined ? [] : [[column.field, column]])));
  let country: EnrichedGroup | undefined;
  return groupSpecs.flatMap(({ from, fields, saidBy, isInCountry }): EnrichedGroup[] => {
    const sources = from === 'address' ? ['ipv4', 'ipv6'] : ['userAgent'];
    const filled = fields.flatMap((field): EnrichedColumn[] => {
      const column = byField.get(field);
      return column === undefined ? [] : [{ column: column.name, type: column.type, field }];
    });
    if (filled.length === 0 || !sources.every((source) => byField.has(source))) return [];
    const others = saidBy.flatMap((field) => byField.get(field)?.name ?? []);
    const group = { from, columns: filled, saidBy: [...filled.map(({ column }) => column), ...others] };
    if (isInCountry === true)
      return [
        {
          ...group,
          saidBy: [...group.saidBy, geoDateColumn.name],
          ...(country === undefined ? {} : { within: country }),
        },
      ];
    if (from === 'address') country = group;
    return [group];
  });
}
