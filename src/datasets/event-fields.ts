import { isDeepStrictEqual } from 'node:util';
import { readPackageJson } from '../runtime/files/package-files.ts';
import {
  type EventKind,
  toColumn,
  type Column,
  type FieldSchema,
  sharedFieldsSchema,
  geoDateColumn,
  timeColumn,
} from './field-schema.ts';
import { eventsPipeline, pipelines } from './pipeline-file.ts';
import { getCommonField, type RowField } from './row-fields.ts';

interface EventField {
  readonly name: string;
  readonly schema: FieldSchema;
  readonly kinds: readonly EventKind[];
}

interface EventSchema {
  readonly $id: string;
  readonly title: string;
  readonly description: string;
  readonly required?: readonly string[];
  readonly properties: Readonly<Record<string, { readonly $ref: string } | FieldSchema>>;
}

/** Reads the schema of a kind: all fields of `fields.json`, then its own. */
function readEventSchema(file: string): EventSchema {
  const own = readPackageJson(file) as Omit<EventSchema, 'properties'> & Partial<EventSchema>;
  const shared = Object.keys(sharedFieldsSchema.$defs).map((name) => [
    name,
    { $ref: `${sharedFieldsSchema.$id}#/$defs/${name}` },
  ]);
  return { ...own, properties: { ...Object.fromEntries(shared), ...own.properties } };
}

/** JSON Schemas of all kinds of all datasets, those of the events first. */
export const eventSchemas: ReadonlyMap<EventKind, EventSchema> = new Map(
  [eventsPipeline, ...pipelines.filter((pipeline) => pipeline !== eventsPipeline)].flatMap(({ kinds }) =>
    Object.entries(kinds).map(([kind, { schema }]) => [kind, readEventSchema(schema)] as const),
  ),
);

function resolveField(name: string, schema: { readonly $ref: string } | FieldSchema): FieldSchema {
  if (!('$ref' in schema)) return schema;
  const field = sharedFieldsSchema.$defs[name];
  if (field === undefined || schema.$ref !== `${sharedFieldsSchema.$id}#/$defs/${name}`)
    throw new Error(`schemas: ${name} refers to ${String(schema.$ref)}`);
  if (Object.keys(schema).length > 1)
    throw new Error(`schemas: ${name} has rules next to its $ref, which would be ignored`);
  return field;
}

export const eventFields: readonly EventField[] = (() => {
  const fields = new Map<string, { name: string; schema: FieldSchema; kinds: EventKind[] }>();
  for (const [kind, { properties }] of eventSchemas) {
    for (const [name, schema] of Object.entries(properties)) {
      const known = fields.get(name);
      const resolved = resolveField(name, schema);
      if (known === undefined) {
        fields.set(name, { name, schema: resolved, kinds: [kind] });
      } else {
        if (!isDeepStrictEqual(known.schema, resolved))
          throw new Error(`schemas: ${name} of ${kind} differs from that of ${known.kinds.join(', ')}: rename it`);
        known.kinds.push(kind);
      }
    }
  }
  return [...fields.values()];
})();

const ownColumns: readonly Column[] = [
  {
    name: 'event_id',
    type: 'VARCHAR',
    description: 'Event id, unique unless an Idempotency-Key is reused after its 24 hours.',
  },
  { name: 'kind', type: 'VARCHAR', description: 'Kind of the event: registration, login or custom_event.' },
  { name: 'date', type: 'DATE', description: 'UTC date of event_time.' },
  { name: 'id_app', type: 'BIGINT', description: 'App of the event.', field: 'idApp' },
  { ...timeColumn('event_time', 'Time of the event.'), field: 'eventTimestamp' },
  timeColumn('received_at', 'Time at which the service received the event.'),
  timeColumn('available_at', 'Time at which the event became readable; one value per commit.'),
];

/** Fields with a column; the time is among the service's own. */
export const columnFields: readonly EventField[] = eventFields.filter(({ name }) => name !== 'eventTimestamp');

export const enrichedFields: readonly RowField[] = eventsPipeline.enriched.map(getCommonField);

/** Columns of the `events` table: the service's own, the fields of its kinds, the enriched fields. All are nullable. */
export const eventColumns: readonly Column[] = [
  ...ownColumns,
  ...columnFields
    .filter((field) => field.kinds.some((kind) => Object.hasOwn(eventsPipeline.kinds, kind)))
    .map(({ name, schema }) => toColumn(name, schema)),
  ...(enrichedFields.length === 0 ? [] : [geoDateColumn]),
  ...enrichedFields.map(({ name, schema }) => toColumn(name, schema)),
];
