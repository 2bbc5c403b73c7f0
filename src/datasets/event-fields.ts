import { readPackageJson } from '../runtime/files/package-files.ts';
import type { EventKind, Platform } from './event-kinds.ts';
import { eventsPipeline } from './pipeline-file.ts';

/** JSON Schema of one imported field, with the annotations that make it a column of the lake. */
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
  readonly [keyword: string]: unknown;
}

/** DuckDB types the lake uses; only those that every Delta reader has (no plain TIMESTAMP, UUID, JSON, unsigned). */
export type ColumnType =
  'VARCHAR' | 'SMALLINT' | 'BIGINT' | 'DECIMAL(20,0)' | 'DATE' | 'TIMESTAMPTZ' | 'MAP(VARCHAR, VARCHAR)';

/** An imported field: its name in the API, its schema, and the kinds of event that have it. */
export interface EventField {
  readonly name: string;
  readonly schema: FieldSchema;
  readonly kinds: readonly EventKind[];
}

/** A column of the `events` table. `field` names the imported field it stores; the others are the service's own. */
export interface Column {
  readonly name: string;
  readonly type: ColumnType;
  readonly description: string;
  readonly unit?: string;
  readonly field?: string;
}

export interface EventSchema {
  readonly $id: string;
  readonly title: string;
  readonly description: string;
  readonly required?: readonly string[];
  readonly properties: Readonly<Record<string, { readonly $ref: string } | FieldSchema>>;
}

/** The files of `schemas/events/`: `fields.json` holds what the kinds share. */
export const fieldsSchema = readPackageJson('schemas/events/fields.json') as {
  readonly $id: string;
  readonly $defs: Readonly<Record<string, FieldSchema>>;
};

/** The JSON Schema of each event kind, from the file its pipeline names. */
export const eventSchemas: ReadonlyMap<EventKind, EventSchema> = new Map(
  Object.entries(eventsPipeline.kinds).map(([kind, file]) => [kind, readPackageJson(file) as EventSchema]),
);

function resolveField(name: string, schema: { readonly $ref: string } | FieldSchema): FieldSchema {
  if (!('$ref' in schema)) return schema;
  const field = fieldsSchema.$defs[name];
  if (field === undefined || schema.$ref !== `${fieldsSchema.$id}#/$defs/${name}`)
    throw new Error(`schemas: ${name} refers to ${String(schema.$ref)}`);
  return field;
}

/** Every imported field of every kind, in the order of the schemas. */
export const eventFields: readonly EventField[] = (() => {
  const fields = new Map<string, { name: string; schema: FieldSchema; kinds: EventKind[] }>();
  for (const [kind, { properties }] of eventSchemas) {
    for (const [name, schema] of Object.entries(properties)) {
      const known = fields.get(name);
      if (known === undefined) fields.set(name, { name, schema: resolveField(name, schema), kinds: [kind] });
      else known.kinds.push(kind);
    }
  }
  return [...fields.values()];
})();

const ownColumns: readonly Column[] = [
  {
    name: 'event_id',
    type: 'VARCHAR',
    description: 'Identity of the event: unique, unless an Idempotency-Key is used again after its 24 hours.',
  },
  { name: 'kind', type: 'VARCHAR', description: 'registration, login or custom_event.' },
  { name: 'date', type: 'DATE', description: 'UTC date of event_time.' },
  { name: 'id_app', type: 'BIGINT', description: 'The app the event was imported for.', field: 'idApp' },
  {
    name: 'event_time',
    type: 'TIMESTAMPTZ',
    description: 'When the event happened.',
    unit: 'microseconds',
    field: 'eventTimestamp',
  },
  {
    name: 'received_at',
    type: 'TIMESTAMPTZ',
    description: 'When the service received the event.',
    unit: 'microseconds',
  },
  {
    name: 'available_at',
    type: 'TIMESTAMPTZ',
    description: 'When the event appeared in the lake; one value for each flush.',
    unit: 'microseconds',
  },
];

/** The columns of the `events` table, in order: the service's own, then every imported field. All are nullable. */
export const eventColumns: readonly Column[] = [
  ...ownColumns,
  ...eventFields
    .filter((field) => field.name !== 'eventTimestamp')
    .map((field) => ({
      name: field.schema['x-column'],
      type: field.schema['x-column-type'],
      description: field.schema.description,
      ...(field.schema['x-unit'] === undefined ? {} : { unit: field.schema['x-unit'] }),
      field: field.name,
    })),
];
