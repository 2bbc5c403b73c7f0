import { readPackageJson } from '../runtime/files/package-files.ts';

/**
 * DuckDB types the lake uses; only those that every Delta reader has (no plain TIMESTAMP, UUID, JSON, unsigned). A
 * decimal has at most 38 digits.
 */
export type ColumnType =
  | 'VARCHAR'
  | 'SMALLINT'
  | 'BIGINT'
  | 'DOUBLE'
  | `DECIMAL(${number},${number})`
  | 'DATE'
  | 'TIMESTAMPTZ'
  | 'MAP(VARCHAR, VARCHAR)';

/** A range whose bounds no double could tell apart: the value is a text of digits. */
export interface DecimalRange {
  /** Whole numbers. */
  readonly minimum: string;
  readonly maximum: string;
  /** The most decimal places; absent: an integer. */
  readonly places?: number;
}

/** JSON Schema of one field, with the annotations that make it a column of the lake. */
export interface FieldSchema {
  readonly description: string;
  readonly type?: string;
  readonly default?: number;
  readonly oneOf?: readonly { readonly type: string }[];
  readonly 'x-column': string;
  readonly 'x-column-type': ColumnType;
  readonly 'x-unit'?: string;
  /** The platforms the field belongs to; absent: all of them. */
  readonly 'x-platforms'?: readonly Platform[];
  /** The field is one of the seven device identifiers of service.md 2.2. */
  readonly 'x-device-id'?: boolean;
  /** The field is the title of what this selector identifies. */
  readonly 'x-title-of'?: string;
  /** The dictionary that has the titles of the field's values. */
  readonly 'x-dictionary'?: string;
  /** Exports can be filtered by the field: by one value, or by a set of them. */
  readonly 'x-filter'?: 'one' | 'set';
  readonly enum?: readonly (string | number)[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly decimalRange?: DecimalRange;
  readonly [keyword: string]: unknown;
}

/** A column of a table. `field` names the imported field it stores; the others are the service's own. */
export interface Column {
  readonly name: string;
  readonly type: ColumnType;
  readonly description: string;
  readonly unit?: string;
  readonly field?: string;
  /** The value of rows whose sender names none. */
  readonly default?: number;
}

/** The column that a field is stored in. */
export function toColumn(name: string, schema: FieldSchema): Column {
  return {
    name: schema['x-column'],
    type: schema['x-column-type'],
    description: schema.description,
    ...(schema['x-unit'] === undefined ? {} : { unit: schema['x-unit'] }),
    ...(schema.default === undefined ? {} : { default: schema.default }),
    field: name,
  };
}

/** A kind of imported event, as its line and the `kind` column of the events have it: one of `importKinds` (dataset.ts). */
export type EventKind = string;

/** Path name of an import method (service.md 4.1, 4.2): one of `importMethods` (dataset.ts). */
export type ImportMethod = string;

/** The platforms an app can be on; they decide who an event is about, and which defaults apply. */
export const platforms = ['mobile-a', 'mobile-b', 'web', 'mini-app', 'game'] as const;
export type Platform = (typeof platforms)[number];

/** `schemas/events/fields.json`: what the kinds of imported events share, and rows of other datasets with them. */
export const fieldsSchema = readPackageJson('schemas/events/fields.json') as {
  readonly $id: string;
  readonly $defs: Readonly<Record<string, FieldSchema>>;
};

/** The column of the database's date from which a row's place was found; no selector. */
export const geoDateColumn: Column = {
  name: 'geo_date',
  type: 'DATE',
  description:
    'Date of the database from which the country and the region were found; empty: the row said them itself.',
};

/** Columns of every table of rows that are the service's own: no field has their names. */
export const ownRowColumns: readonly Column[] = [
  { name: 'event_id', type: 'VARCHAR', description: 'Identity of the row: unique in its table.' },
  { name: 'date', type: 'DATE', description: 'UTC date of event_time.' },
  { name: 'id_app', type: 'BIGINT', description: 'The app that the row belongs to.' },
  { name: 'event_time', type: 'TIMESTAMPTZ', description: 'When the event happened.', unit: 'microseconds' },
  {
    name: 'received_at',
    type: 'TIMESTAMPTZ',
    description: 'When the service received the row, or began to load it.',
    unit: 'microseconds',
  },
  {
    name: 'available_at',
    type: 'TIMESTAMPTZ',
    description: 'When the row appeared in the lake; one value for each commit.',
    unit: 'microseconds',
  },
  { name: 'load_id', type: 'VARCHAR', description: 'The load that brought the row; empty: it was imported.' },
  {
    name: 'custom_event_params',
    type: 'MAP(VARCHAR, VARCHAR)',
    description: 'Parameters of the row, as params.name and params.value have them.',
  },
  geoDateColumn,
];
