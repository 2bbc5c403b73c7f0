import { readPackageJson } from '../runtime/files/package-files.ts';

/** DuckDB types that every Delta reader has (no plain TIMESTAMP, UUID, JSON, unsigned). */
export type ColumnType =
  | 'VARCHAR'
  | 'SMALLINT'
  | 'BIGINT'
  | 'DOUBLE'
  | `DECIMAL(${number},${number})`
  | 'DATE'
  | 'TIMESTAMPTZ'
  | 'MAP(VARCHAR, VARCHAR)';

/** A range of texts of digits that exceeds doubles. */
export interface DecimalRange {
  readonly minimum: string;
  readonly maximum: string;
  readonly places?: number;
}

export interface FieldSchema {
  readonly description: string;
  readonly type?: string;
  readonly default?: number;
  readonly oneOf?: readonly { readonly type: string; readonly decimalRange?: DecimalRange }[];
  readonly 'x-column': string;
  readonly 'x-column-type': ColumnType;
  readonly 'x-unit'?: string;
  readonly 'x-platforms'?: readonly Platform[];
  /** Marks a device identifier (docs/api.md#event-identity). */
  readonly 'x-device-id'?: boolean;
  /** The selector whose ids it is the title of. */
  readonly 'x-title-of'?: string;
  readonly 'x-dictionary'?: string;
  /** Exports can filter by one value, or by a set. */
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

/** A column of a table; `field` is the imported field that it stores. */
export interface Column {
  readonly name: string;
  readonly type: ColumnType;
  readonly description: string;
  readonly unit?: string;
  readonly field?: string;
  readonly default?: number;
}

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

/** A kind of imported event: one of `importKinds` (dataset.ts). */
export type EventKind = string;

/** Path name of an import method (docs/api.md#import): one of `importMethods` (dataset.ts). */
export type ImportMethod = string;

/** Platforms of apps; they determine subjects and defaults. */
export const platforms = ['mobile-a', 'mobile-b', 'web', 'mini-app', 'game'] as const;
export type Platform = (typeof platforms)[number];

/** Fields that all kinds of imported events share, and rows of other datasets may use. */
export const sharedFieldsSchema = readPackageJson('schemas/events/fields.json') as {
  readonly $id: string;
  readonly $defs: Readonly<Record<string, FieldSchema>>;
};

/** Date of the database that a row's place is from; not a selector. */
export const geoDateColumn: Column = {
  name: 'geo_date',
  type: 'DATE',
  description: 'Date of the geo database that filled country and region; NULL if the row had its own.',
};

export const timeColumn = (name: string, description: string): Column => ({
  name,
  type: 'TIMESTAMPTZ',
  description,
  unit: 'microseconds',
});

/** The service's columns of every table of rows: no field has their names. */
export const serviceRowColumns: readonly Column[] = [
  { name: 'event_id', type: 'VARCHAR', description: 'Row id, unique in its table.' },
  { name: 'date', type: 'DATE', description: 'UTC date of event_time.' },
  { name: 'id_app', type: 'BIGINT', description: 'App of the row.' },
  timeColumn('event_time', 'Time of the event.'),
  timeColumn('received_at', 'Time at which the service received the row, or started its load.'),
  timeColumn('available_at', 'Time at which the row became readable; one value per commit.'),
  { name: 'load_id', type: 'VARCHAR', description: 'Id of the load that added the row; NULL if it was imported.' },
  {
    name: 'custom_event_params',
    type: 'MAP(VARCHAR, VARCHAR)',
    description: 'Parameters of the row, which params.name and params.value return.',
  },
  geoDateColumn,
];
