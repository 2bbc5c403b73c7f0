/**
 * Datasets: what an event is, for all code that receives, stores, seals or exports one.
 *
 * In: the files of `pipelines/` and `schemas/`, which nobody else reads. Out: one compiled object a dataset, the
 * validators, the line of an event in the stream, its id, the dictionaries, and the SQL that goes with them.
 * Invariant: one idea has one owner: JavaScript and SQL of the same rule stand side by side. A wrong file stops the
 * program when it is loaded. Crash: nothing rests here.
 */
import { eventColumns, type Column } from './event-fields.ts';
import type { EventKind, ImportMethod } from './event-kinds.ts';
import { eventsPipeline, type ExportEvent, type ImportMethodSpec, type PipelineFile } from './pipeline-file.ts';

/**
 * A dataset, compiled from its file of `pipelines/` and the schemas that it names: everything that stores, seals and
 * exports its rows asks this object.
 */
export interface Dataset {
  /** Name of the table, of its folder in the lake, and of its view. */
  readonly table: string;
  readonly description: string;
  /** The kinds of event, in the pipeline's order. */
  readonly kinds: readonly EventKind[];
  /** In the table's order. */
  readonly columns: readonly Column[];
  /** The import methods, single and batch, and the kind that each imports. */
  readonly methods: ReadonlyMap<ImportMethod, ImportMethodSpec>;
  /** Columns whose values name the folder of a sealed file, outermost first. */
  readonly partitionBy: readonly Column[];
  /** Columns by which the rows of a sealed file are sorted. */
  readonly sortBy: readonly Column[];
  /** The export events that read its rows, by name; those that are not here read datasets that an operator loads. */
  readonly exports: ReadonlyMap<string, ExportEvent>;
}

/** Columns that every row has a value of: a folder is named by no others. */
const partitionColumns = ['kind', 'date', 'id_app'];

/** Compiles a dataset. Throws an error that names the member when a pipeline names a column that is not there. */
export function compileDataset(pipeline: PipelineFile, columns: readonly Column[]): Dataset {
  const find = (member: string, name: string): Column => {
    const column = columns.find((known) => known.name === name);
    if (column === undefined)
      throw new Error(`pipelines: ${member} names ${name}, which is no column of ${pipeline.table}`);
    return column;
  };
  const { table, description, kinds, methods, exports, sealing } = pipeline;
  const odd = sealing.partitionBy.find((name) => !partitionColumns.includes(name));
  if (odd !== undefined)
    throw new Error(
      `pipelines: sealing.partitionBy names ${odd}; rows are parted by ${partitionColumns.join(', ')} only`,
    );
  return {
    table,
    description,
    kinds: Object.keys(kinds),
    columns,
    methods: new Map(Object.entries(methods)),
    partitionBy: sealing.partitionBy.map((name) => find('sealing.partitionBy', name)),
    sortBy: sealing.sortBy.map((name) => find('sealing.sortBy', name)),
    exports: new Map(Object.entries(exports)),
  };
}

/** The dataset of the imported events. */
export const events: Dataset = compileDataset(eventsPipeline, eventColumns);

/** The import method of a name. Throws for a name that is none. */
export function getMethod(method: ImportMethod): ImportMethodSpec {
  const spec = events.methods.get(method);
  if (spec === undefined) throw new Error(`${method} is no import method`);
  return spec;
}
