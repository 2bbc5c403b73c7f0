import type { Dataset } from './dataset.ts';
import { geoDateColumn } from './field-schema.ts';

const countryFields = ['idCountry', 'idCountryISOAlpha2', 'idCountryISONumeric'] as const;
const regionFields = ['idRegion', 'idRegionTitle', 'idRegionLow', 'idRegionLowTitle'] as const;
/** The fields that the place of an address fills, under the names of their selectors. */
const placeFields = [...countryFields, ...regionFields] as const;
export type PlaceField = (typeof placeFields)[number];

/** The fields that a User-Agent fills. */
const agentFields = [
  'idOsTitle',
  'idOsVersionTitle',
  'idManufacturerTitle',
  'idDeviceModelTitle',
  'browser',
  'browserVersion',
] as const;
export type AgentField = (typeof agentFields)[number];

interface GroupSpec {
  readonly from: 'address' | 'agent';
  readonly fields: readonly (PlaceField | AgentField)[];
  /** Fields that nothing fills, and by which a row says what the group is about. */
  readonly saidBy: readonly string[];
  /** Filled only where the row names no country, or that of the address; never where a database has placed the row. */
  readonly isInCountry?: true;
}

/**
 * Fields that belong together. What a row says wins: a group is filled only where the row says nothing of it, since a
 * system of the row beside a version of the User-Agent's would be neither.
 */
const groupSpecs: readonly GroupSpec[] = [
  { from: 'address', fields: countryFields, saidBy: ['idCountryTitle'] },
  { from: 'address', fields: regionFields, saidBy: [], isInCountry: true },
  { from: 'agent', fields: ['idOsTitle', 'idOsVersionTitle'], saidBy: ['idOs', 'idOsVersion'] },
  { from: 'agent', fields: ['idManufacturerTitle', 'idDeviceModelTitle'], saidBy: ['idManufacturer', 'idDeviceModel'] },
  { from: 'agent', fields: ['browser', 'browserVersion'], saidBy: [] },
];

/** A column that is filled, and the field that it stores. */
export interface EnrichedColumn {
  readonly column: string;
  readonly type: string;
  readonly field: PlaceField | AgentField;
}

/** The columns of a group in one table. */
export interface EnrichedGroup {
  readonly from: 'address' | 'agent';
  readonly columns: readonly EnrichedColumn[];
  /** Every column by which a row says something of the group, those that are filled included. */
  readonly saidBy: readonly string[];
  /** The group of the country that the group is filled within. */
  readonly within?: EnrichedGroup;
}

/** The groups of columns that a dataset's rows can be enriched in; none where nothing says where to look. */
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
