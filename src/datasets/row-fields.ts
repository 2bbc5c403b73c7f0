import { readPackageJson } from '../runtime/files/package-files.ts';
import { toColumn, type Column, type FieldSchema } from './field-schema.ts';
import { ownRowColumns } from './own-columns.ts';
import { parseRowSchemas } from './row-schema.ts';

/**
 * A field of a row that is stored as it comes, under the name of its selector (spec/datasets.md): of every dataset of
 * rows, or of one.
 */
export interface RowField {
  readonly name: string;
  readonly schema: FieldSchema;
}

const commonFile = 'schemas/rows/common.json';

/** Fields that a row of every dataset may have. */
export const commonFields: readonly RowField[] = parseRowSchemas(
  commonFile,
  (readPackageJson(commonFile) as { readonly $defs?: unknown }).$defs,
);

/** A common field. Throws for a name that is none. */
export function getCommonField(name: string): RowField {
  const field = commonFields.find((known) => known.name === name);
  if (field === undefined) throw new Error(`${commonFile}: no field ${name}`);
  return field;
}

/** Reads a schema file of rows: its own fields, then the common ones. */
export function readRowFields(file: string): readonly RowField[] {
  const own = parseRowSchemas(file, (readPackageJson(file) as { readonly properties?: unknown }).properties);
  const names = new Set(own.map(({ name }) => name));
  return [...own, ...commonFields.filter(({ name }) => !names.has(name))];
}

/** The columns of a table of rows: the service's own, then one for each column that a field names. All are nullable. */
export function rowColumns(fields: readonly RowField[]): readonly Column[] {
  const columns = new Map(ownRowColumns.map((column) => [column.name, column]));
  for (const { name, schema } of fields) {
    const known = columns.get(schema['x-column']);
    if (known === undefined) columns.set(schema['x-column'], toColumn(name, schema));
    else if (known.type !== schema['x-column-type'])
      throw new Error(`schemas: ${name} says that ${known.name} is ${schema['x-column-type']}; it is ${known.type}`);
  }
  return [...columns.values()];
}
