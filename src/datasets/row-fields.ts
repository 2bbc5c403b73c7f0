import { type FieldSchema, sharedFieldsSchema, serviceRowColumns, toColumn, type Column } from './field-schema.ts';
import { readPackageJson } from '../runtime/files/package-files.ts';
import { isRecord, membersOf } from '../runtime/files/checksummed-json.ts';

const ownColumnNames = serviceRowColumns.map(({ name }) => name);
const fieldName = /^[a-zA-Z][a-zA-Z0-9]*$/;
const columnName = /^[a-z][a-z0-9_]*$/;
const columnTypes = ['VARCHAR', 'SMALLINT', 'BIGINT', 'DOUBLE', 'DATE', 'TIMESTAMPTZ'];
const titleDictionaries = ['countries', 'verification', 'purchase-types', 'rooted', 'ad-mediators', 'connection-types'];
const importedPrefix = `${sharedFieldsSchema.$id}#/$defs/`;

function isDecimal(type: string): boolean {
  const [, digits, scale] = /^DECIMAL\((\d{1,2}),(\d{1,2})\)$/.exec(type) ?? [];
  return Number(digits) >= 1 && Number(digits) <= 38 && Number(scale) <= Number(digits);
}

/** A reference to an imported field, which may have its own description. */
function resolveReference({ $ref, ...own }: Readonly<Record<string, unknown>>): object | undefined {
  if ($ref === undefined) return own;
  const name = typeof $ref === 'string' && $ref.startsWith(importedPrefix) ? $ref.slice(importedPrefix.length) : '';
  const imported = Object.hasOwn(sharedFieldsSchema.$defs, name) ? sharedFieldsSchema.$defs[name] : undefined;
  if (imported === undefined) return undefined;
  // Defaults are for imported events only.
  const { default: _, ...rest } = imported;
  return { ...rest, ...own };
}

function findFault(name: string, schema: object): string | undefined {
  const { description, 'x-column': column, 'x-column-type': type, ...others } = membersOf(schema);
  const { 'x-filter': filter, 'x-dictionary': dictionary } = others;
  if (!fieldName.test(name)) return 'must have a name of letters and digits';
  if (typeof description !== 'string' || description === '') return 'must have a description';
  if (typeof column !== 'string' || !columnName.test(column) || ownColumnNames.includes(column))
    return `must have an x-column of lower-case letters, digits and underscores, other than ${ownColumnNames.join(', ')}`;
  if (typeof type !== 'string' || !(columnTypes.includes(type) || isDecimal(type)))
    return `must have an x-column-type of ${columnTypes.join(', ')} or DECIMAL(digits,scale)`;
  if (dictionary !== undefined && !titleDictionaries.some((known) => known === dictionary))
    return `must have an x-dictionary of ${titleDictionaries.join(', ')}`;
  if (filter !== undefined && filter !== 'one' && filter !== 'set') return 'must have an x-filter of one or set';
  const isFilterable = /^(?:VARCHAR|SMALLINT|BIGINT|DECIMAL\(\d+,0\))$/.test(type);
  if (filter !== undefined && !isFilterable) return 'can have an x-filter only with text or integer values';
  return undefined;
}

/** Parses the schemas of a file of `schemas/rows`. Throws an error that names file and field. */
export function parseRowSchemas(
  file: string,
  value: unknown,
): { readonly name: string; readonly schema: FieldSchema }[] {
  if (!isRecord(value)) throw new Error(`${file}: properties must be an object with the schemas of the fields`);
  const columns = new Map<string, string>();
  return Object.entries(value).map(([name, fieldSpec]) => {
    const schema = isRecord(fieldSpec) ? resolveReference(fieldSpec) : undefined;
    if (schema === undefined)
      throw new Error(`${file}: ${name} must be a schema, or refer to one of ${sharedFieldsSchema.$id}`);
    const error = findFault(name, schema);
    if (error !== undefined) throw new Error(`${file}: ${name} ${error}`);
    const field = schema as FieldSchema;
    const known = columns.get(field['x-column']);
    if (known !== undefined && known !== field['x-column-type'])
      throw new Error(
        `${file}: ${name} has another type than the field before it with the column ${field['x-column']}`,
      );
    columns.set(field['x-column'], field['x-column-type']);
    return { name, schema: field };
  });
}

/** A stored field of rows, by its selector name (spec/datasets.md). */
export interface RowField {
  readonly name: string;
  readonly schema: FieldSchema;
}

const commonFile = 'schemas/rows/common.json';

export const commonFields: readonly RowField[] = parseRowSchemas(
  commonFile,
  membersOf(readPackageJson(commonFile))['$defs'],
);

export function getCommonField(name: string): RowField {
  const field = commonFields.find((known) => known.name === name);
  if (field === undefined) throw new Error(`${commonFile}: no field ${name}`);
  return field;
}

export function readRowFields(file: string): readonly RowField[] {
  const own = parseRowSchemas(file, membersOf(readPackageJson(file))['properties']);
  const names = new Set(own.map(({ name }) => name));
  return [...own, ...commonFields.filter(({ name }) => !names.has(name))];
}

/** Returns the columns of a table of rows: the service's own, then those of the fields. All are nullable. */
export function rowColumns(fields: readonly RowField[]): readonly Column[] {
  const columns = new Map(serviceRowColumns.map((column) => [column.name, column]));
  for (const { name, schema } of fields) {
    const known = columns.get(schema['x-column']);
    if (known === undefined) columns.set(schema['x-column'], toColumn(name, schema));
    else if (known.type !== schema['x-column-type'])
      throw new Error(`schemas: ${name} declares ${known.name} as ${schema['x-column-type']} instead of ${known.type}`);
  }
  return [...columns.values()];
}
