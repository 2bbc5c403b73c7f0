import type { Platform } from './event-kinds.ts';

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
