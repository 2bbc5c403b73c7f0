/**
 * Datasets: the definition of events for all code that receives, stores, seals or exports them.
 *
 * In: the files of `pipelines/` and `schemas/`, which only this folder reads. Out: a compiled object per dataset, the
 * validators, the line of an event in the stream, its id, the dictionaries, and their SQL.
 * Invariant: JavaScript and SQL of one rule are in one file. An invalid file stops the program when it is loaded.
 * Crash: nothing is stored here.
 */
import { enrichedFields, eventColumns } from './event-fields.ts';
import type { EventKind, ImportMethod, Column } from './field-schema.ts';
import {
  eventsPipeline,
  pipelines,
  type ExportEvent,
  type ImportMethodSpec,
  type KindSpec,
  type PipelineFile,
} from './pipeline-file.ts';
import { readRowFields, rowColumns, type RowField } from './row-fields.ts';

/** A dataset, compiled from its file of `pipelines/` and the schemas that it names. */
export interface Dataset {
  readonly table: string;
  readonly description: string;
  readonly kinds: readonly EventKind[];
  readonly kindSpecs: ReadonlyMap<EventKind, KindSpec>;
  readonly fields: readonly RowField[];
  readonly isLoadable: boolean;
  readonly columns: readonly Column[];
  readonly methods: ReadonlyMap<ImportMethod, ImportMethodSpec>;
  readonly partitionBy: readonly Column[];
  readonly sortBy: readonly Column[];
  readonly exports: ReadonlyMap<string, ExportEvent>;
}

/** Columns that are never empty: only they form folders. */
const partitionColumns = ['kind', 'date', 'id_app'];

function checkWhere(table: string, event: string, spec: ExportEvent, fields: readonly RowField[]): void {
  const where = 'derive' in spec ? {} : (spec.where ?? {});
  for (const [name, value] of Object.entries(where)) {
    const field = fields.find((known) => known.name === name);
    if (field === undefined)
      throw new Error(`pipelines: exports.${event}.where names ${name}, which is not a field of ${table}`);
    if ((field.schema['x-column-type'] === 'VARCHAR') !== (typeof value === 'string'))
      throw new Error(
        `pipelines: exports.${event}.where has a value of another type than the field ${name} of ${table}`,
      );
  }
}

function checkKind(table: string, kind: string, { key, values }: KindSpec, fields: readonly RowField[]): void {
  for (const [member, names] of Object.entries({ key, values: Object.keys(values) })) {
    const unknown = names.find((name) => !fields.some((field) => field.name === name));
    if (unknown !== undefined)
      throw new Error(`pipelines: ${table}: kinds.${kind}.${member} names ${unknown}, which is not a field of it`);
  }
}

/** Compiles a dataset. Throws an error that names the invalid member. */
export function compileDataset(
  pipeline: PipelineFile,
  columns: readonly Column[],
  fields: readonly RowField[] = [],
): Dataset {
  const find = (member: string, name: string): Column => {
    const column = columns.find((known) => known.name === name);
    if (column === undefined)
      throw new Error(`pipelines: ${member} names ${name}, which is not a column of ${pipeline.table}`);
    return column;
  };
  const { table, description, kinds, methods, exports, sealing } = pipeline;
  const misplaced = sealing.partitionBy.find((name) => !partitionColumns.includes(name));
  if (misplaced !== undefined)
    throw new Error(
      `pipelines: ${table}: sealing.partitionBy names ${misplaced}; rows can be partitioned by ${partitionColumns.join(', ')} only`,
    );
  for (const [event, spec] of Object.entries(exports)) checkWhere(table, event, spec, fields);
  for (const [kind, spec] of Object.entries(kinds)) checkKind(table, kind, spec, fields);
  return {
    table,
    description,
    kinds: Object.keys(kinds),
    kindSpecs: new Map(Object.entries(kinds)),
    fields,
    isLoadable: pipeline.rows !== undefined,
    columns,
    methods: new Map(Object.entries(methods)),
    partitionBy: sealing.partitionBy.map((name) => find('sealing.partitionBy', name)),
    sortBy: sealing.sortBy.map((name) => find('sealing.sortBy', name)),
    exports: new Map(Object.entries(exports)),
  };
}

export const events: Dataset = compileDataset(eventsPipeline, eventColumns, enrichedFields);

/** All datasets by table name, the imported events first. */
export const datasets: ReadonlyMap<string, Dataset> = (() => {
  const all = [
    events,
    ...pipelines.flatMap((pipeline) => {
      if (pipeline.rows === undefined) return [];
      const fields = readRowFields(pipeline.rows);
      return [compileDataset(pipeline, rowColumns(fields), fields)];
    }),
  ];
  const names = all.flatMap(({ table, exports, kinds, methods }) => [
    `table ${table.toLowerCase()}`,
    ...exports.keys(),
    ...kinds.map((kind) => `kind ${kind}`),
    ...[...methods.keys()].map((method) => `method ${method}`),
  ]);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new Error(`pipelines: ${twice} is declared twice`);
  return new Map(all.map((dataset) => [dataset.table, dataset]));
})();

export interface DatasetExport {
  readonly dataset: Dataset;
  readonly event: ExportEvent;
}

const exportsByName: ReadonlyMap<string, DatasetExport> = new Map(
  [...datasets.values()].flatMap((dataset) =>
    [...dataset.exports].map(([name, event]) => [name, { dataset, event }] as const),
  ),
);

export const exportNames: readonly string[] = [...exportsByName.keys()];

export function findExport(name: string): DatasetExport | undefined {
  return exportsByName.get(name);
}

export function getExport(name: string): DatasetExport {
  const found = exportsByName.get(name);
  if (found === undefined) throw new Error(`no dataset has the export event ${name}`);
  return found;
}

/** Datasets with kinds of imported events, the events table first. */
export const importDatasets: readonly Dataset[] = [...datasets.values()].filter(({ kinds }) => kinds.length > 0);

export const importMethods: ReadonlyMap<ImportMethod, ImportMethodSpec> = new Map(
  importDatasets.flatMap(({ methods }) => [...methods]),
);

export const importKinds: ReadonlyMap<EventKind, KindSpec> = new Map(
  importDatasets.flatMap(({ kindSpecs }) => [...kindSpecs]),
);

export function getMethod(method: ImportMethod): ImportMethodSpec {
  const spec = importMethods.get(method);
  if (spec === undefined) throw new Error(`${method} is not an import method`);
  return spec;
}

export function getKind(kind: EventKind): KindSpec {
  const spec = importKinds.get(kind);
  if (spec === undefined) throw new Error(`${kind} is not a kind of event`);
  return spec;
}
