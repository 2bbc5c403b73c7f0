import { AppError } from '../runtime/errors.ts';
import { isKeyOf, membersOf } from '../runtime/files/checksummed-json.ts';
import { isText, listOf, shapeOf } from '../runtime/store/shape.ts';
import { logDamaged } from './log/actions.ts';
import type { Column, ColumnType } from '../datasets/field-schema.ts';
import { sqlText } from './sql/literals.ts';

export interface TableColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** The table property with the number of columns in every sealed file. Files with fewer columns are to be rewritten. */
export const sealedColumnsProperty = 'tributary.sealedColumns';

interface DeltaField {
  readonly name: string;
  readonly type: unknown;
  readonly nullable: boolean;
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** Delta types. A plain TIMESTAMP, UUID or unsigned type would need a table feature. */
const deltaTypes: Readonly<Record<Exclude<ColumnType, `DECIMAL${string}`>, unknown>> = {
  VARCHAR: 'string',
  SMALLINT: 'short',
  BIGINT: 'long',
  DOUBLE: 'double',
  DATE: 'date',
  TIMESTAMPTZ: 'timestamp',
  'MAP(VARCHAR, VARCHAR)': { type: 'map', keyType: 'string', valueType: 'string', valueContainsNull: true },
};

const decimal = /^decimal\((\d{1,2}),(\d{1,2})\)$/i;

function toDeltaType(type: ColumnType): unknown {
  const known = decimal.test(type) ? type.toLowerCase() : membersOf(deltaTypes)[type];
  if (known === undefined) throw new Error(`columns: unsupported type ${type}`);
  return known;
}

function findDuckdbType(deltaType: unknown): ColumnType | undefined {
  const [, precision, scale] = decimal.exec(isText(deltaType) ? deltaType : '') ?? [];
  if (precision !== undefined) return `DECIMAL(${Number(precision)},${Number(scale)})`;
  const text = JSON.stringify(deltaType);
  const names = Object.keys(deltaTypes).filter((name) => isKeyOf(deltaTypes, name));
  return names.find((name) => JSON.stringify(deltaTypes[name]) === text);
}

function toField(column: TableColumn & { readonly description?: string }): DeltaField {
  return {
    name: column.name,
    type: toDeltaType(column.type),
    nullable: true,
    metadata: column.description === undefined ? {} : { comment: column.description },
  };
}

/** Renders the `schemaString` of a table: every column nullable. Asserts that no two names differ by case only. */
export function toSchemaString(columns: readonly (TableColumn & { readonly description?: string })[]): string {
  const names = new Set(columns.map((column) => column.name.toLowerCase()));
  if (names.size !== columns.length) throw new Error('columns: names must differ by more than case');
  return JSON.stringify({ type: 'struct', fields: columns.map(toField) });
}

const isSchema = shapeOf<{ readonly fields: readonly DeltaField[] }>({
  fields: listOf((field) => isText(membersOf(field)['name'])),
});

function parseSchema(schemaString: string) {
  const schema: unknown = JSON.parse(schemaString);
  if (!isSchema(schema)) throw logDamaged('the schema of the table has no fields');
  return schema;
}

/** Parses a `schemaString`. Error: `schema_change` for a type that this service does not write. */
export function parseSchemaString(schemaString: string): TableColumn[] {
  return parseSchema(schemaString).fields.map((field) => {
    const type = findDuckdbType(field.type);
    if (type === undefined) {
      throw new AppError(
        'schema_change',
        `the lake's column ${field.name} has an unsupported type: ${JSON.stringify(field.type)}`,
        {
          hint: 'Run the newer version that changed the table, or restore the log from a backup.',
        },
      );
    }
    return { name: field.name, type };
  });
}

export function describeFileSql(file: string): string {
  return `DESCRIBE SELECT * FROM read_parquet(${sqlText(file)}, hive_partitioning = false)`;
}

function describedType(type: ColumnType): string {
  return type === 'TIMESTAMPTZ' ? 'TIMESTAMP WITH TIME ZONE' : type;
}

/** Reports whether a file begins with the columns of a `schemaString`. During an upgrade it may have more. */
export function hasColumns(
  described: readonly Readonly<Record<string, unknown>>[],
  schemaString: string | undefined,
): boolean {
  const wanted =
    schemaString === undefined
      ? []
      : parseSchemaString(schemaString).map(({ name, type }) => `${name} ${describedType(type)}`);
  return wanted.every(
    (column, index) =>
      column === `${String(described[index]?.['column_name'])} ${String(described[index]?.['column_type'])}`,
  );
}

/** Adds columns of new fields at the end. Error: `schema_change` otherwise: sealed files are never rewritten for it. */
export function upgradeSchema(schemaString: string, columns: readonly Column[]): string {
  const present = parseSchemaString(schemaString);
  const wanted = new Map(columns.map((column) => [column.name, column]));
  for (const column of present) {
    const type = wanted.get(column.name)?.type;
    if (type === column.type) continue;
    throw new AppError(
      'schema_change',
      `the lake's column ${column.name} is ${column.type}, but the event schemas ${type === undefined ? 'lack it' : `have ${type}`}`,
      {
        hint: 'Add a changed field under a new name: only new optional fields are supported.',
      },
    );
  }
  const known = new Set(present.map((column) => column.name));
  const added = columns.filter((column) => !known.has(column.name));
  if (added.length === 0) return schemaString;
  const schema = parseSchema(schemaString);
  return JSON.stringify({ ...schema, fields: [...schema.fields, ...added.map(toField)] });
}
