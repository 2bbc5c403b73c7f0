import path from 'node:path';
import { listDatasetFiles, listPackageJson, readPackageJson } from '../runtime/files/package-files.ts';
import { isRecord } from '../runtime/files/checked-json.ts';

/** A kind of event that import methods bring; in a file the path of its schema alone where it needs no more. */
export interface KindSpec {
  /** The file with the JSON Schema of its fields, relative to the package. */
  readonly schema: string;
  /** Its events may be about a device alone; else they are about a user. */
  readonly ofDevice: boolean;
  /**
   * Fields that with the app are the identity of a row, for as long as the table has it; empty: each event is one of
   * its own, or an Idempotency-Key says which it is.
   */
  readonly key: readonly string[];
  /** Fields of rows that every event of the kind has, and their values. */
  readonly values: Readonly<Record<string, number | string>>;
}

/** An import method of service.md 4.1 and 4.2: the kind of event that it imports, singly or in batches. */
export interface ImportMethodSpec {
  readonly kind: string;
  readonly batch: boolean;
}

/** Which of a table's rows an export event stands for: imported events of one kind, or the rows of a dataset. */
export interface StoredExport {
  /** Imported events: those of this kind. */
  readonly kind?: string;
  /** Rows: those whose fields have these values. */
  readonly where?: Readonly<Record<string, number | string>>;
  /** `user`: only those with a customUserId. `device`: only those with a device identifier. */
  readonly requires?: 'user' | 'device';
}

/** Whose events belong together: a user's or a device's, within one app. */
export type Subject = 'user' | 'device';

/**
 * An export event whose rows are derived from imported events of all kinds: the `first` event of each subject, the first
 * of each of its `days`, or the first of each of its `sessions`.
 */
export interface DerivedExport {
  readonly derive: 'first' | 'days' | 'sessions';
  readonly of: Subject;
}

/** Which rows an export event stands for. */
export type ExportEvent = StoredExport | DerivedExport;

/** A file of `pipelines/`: what a dataset is, as far as its fields' schemas do not say it. */
export interface PipelineFile {
  /** Name of the table, of its folder in the lake, and of its view. */
  readonly table: string;
  readonly description: string;
  /** The kinds of imported event. */
  readonly kinds: Readonly<Record<string, KindSpec>>;
  readonly methods: Readonly<Record<string, ImportMethodSpec>>;
  /** The file with the JSON Schema of the rows that can be loaded, relative to the package; absent: none can. */
  readonly rows?: string;
  /** Common fields of rows that the table of imported events has too: the service fills them. */
  readonly enriched: readonly string[];
  /**
   * Columns whose values name the folder of a sealed file, outermost first, and columns by which its rows are sorted.
   */
  readonly sealing: { readonly partitionBy: readonly string[]; readonly sortBy: readonly string[] };
  readonly exports: Readonly<Record<string, ExportEvent>>;
}

const name = /^[a-z][a-zA-Z0-9_]*$/;
const columnName = /^[a-z][a-z0-9_]*$/;
/** Folders of the lake that are no table. */
const takenNames = ['failed', 'staging', 'orphans', 'catalogue'];
const requirements = [undefined, 'user', 'device'];
const derivations = ['first', 'days', 'sessions'];

function isNameList(value: unknown): value is readonly string[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((item) => typeof item === 'string' && columnName.test(item)) &&
    new Set(value).size === value.length
  );
}

function findFaultOfKind({ ofDevice, key = [], values = {} }: Readonly<Record<string, unknown>>, isOfRows: boolean) {
  if (!['undefined', 'boolean'].includes(typeof ofDevice)) return 'ofDevice must be true or false';
  if (!Array.isArray(key) || key.some((field) => typeof field !== 'string') || (key.length > 0 && !isOfRows))
    return 'key must be a list of fields, of a table of rows';
  if (isOfRows && key.length === 0) return 'key must name the fields by which a row that is sent again is known';
  if (
    !isRecord(values) ||
    Object.values(values).some((value) => typeof value !== 'number' && typeof value !== 'string') ||
    (Object.keys(values).length > 0 && !isOfRows)
  )
    return 'values must have fields of the rows, each with a number or a text';
  return undefined;
}

function findFaultOfKinds(kinds: unknown, methods: unknown, isOfRows: boolean): string | undefined {
  if (!isRecord(kinds) || (Object.keys(kinds).length === 0 && !isOfRows))
    return 'kinds must name the schema file of at least one kind';
  for (const [kind, spec] of Object.entries(kinds)) {
    const parts = typeof spec === 'string' ? { schema: spec } : spec;
    if (!columnName.test(kind) || !isRecord(parts) || typeof parts['schema'] !== 'string')
      return `kinds.${kind} must be a lower-case name with the path of a schema file`;
    const fault = findFaultOfKind(parts, isOfRows);
    if (fault !== undefined) return `kinds.${kind}.${fault}`;
  }
  if (!isRecord(methods)) return 'methods must be an object';
  for (const [method, spec] of Object.entries(methods)) {
    if (!isRecord(spec) || typeof spec['kind'] !== 'string' || !Object.hasOwn(kinds, spec['kind']))
      return `methods.${method} must name one of the kinds`;
    if (!['undefined', 'boolean'].includes(typeof spec['batch']))
      return `methods.${method}.batch must be true or false`;
  }
  return undefined;
}

function findFaultOfExport(event: string, spec: unknown, kinds: object, isOfRows: boolean): string | undefined {
  if (isRecord(spec) && 'derive' in spec) {
    const { derive, of, ...others } = spec;
    const isGood = derivations.some((known) => known === derive) && (of === 'user' || of === 'device');
    return isGood && Object.keys(others).length === 0
      ? undefined
      : `exports.${event} must derive first, days or sessions of user or device`;
  }
  if (!isRecord(spec)) return `exports.${event} must be an object`;
  const { kind, where, requires, ...others } = spec;
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined) return `exports.${event}.${unknown} is unknown: kind, where and requires are known`;
  if (isOfRows ? kind !== undefined : typeof kind !== 'string' || !Object.hasOwn(kinds, kind))
    return `exports.${event} must ${isOfRows ? 'have no kind' : 'name one of the kinds'}`;
  const values = isRecord(where) ? Object.values(where) : [];
  const isGood = where === undefined || (isOfRows && isRecord(where));
  if (!isGood || values.some((value) => !Number.isSafeInteger(value) && typeof value !== 'string'))
    return `exports.${event}.where must have fields of the rows, each with a whole number or a text`;
  return requirements.includes(requires as string | undefined)
    ? undefined
    : `exports.${event}.requires must be user or device`;
}

/** Reports whether a folder of the lake with this name can be a table, of this version's pipelines or of others. */
export function isTableName(folder: string): boolean {
  return name.test(folder) && !takenNames.includes(folder);
}

/** Says what is wrong with a pipeline file; undefined: nothing. */
function findFault(value: unknown): string | undefined {
  if (!isRecord(value)) return 'must be an object';
  const { table, description, kinds = {}, methods = {}, rows, enriched = [], sealing, exports, ...others } = value;
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined) return `${unknown} is unknown`;
  if (typeof table !== 'string' || !isTableName(table))
    return `table must be a name of letters and digits other than ${takenNames.join(', ')}`;
  if (typeof description !== 'string') return 'description must be a text';
  if (rows !== undefined && typeof rows !== 'string') return 'rows must be the path of a schema file';
  if (!Array.isArray(enriched) || enriched.some((item) => typeof item !== 'string'))
    return 'enriched must be a list of fields';
  const isOfRows = rows !== undefined;
  const fault = findFaultOfKinds(kinds, methods, isOfRows);
  if (fault !== undefined) return fault;
  if (!isRecord(sealing) || !isNameList(sealing['partitionBy']) || !isNameList(sealing['sortBy']))
    return 'sealing must have partitionBy and sortBy, lists of columns';
  if (!isRecord(exports)) return 'exports must be an object';
  for (const [event, spec] of Object.entries(exports)) {
    if (!name.test(event)) return `exports.${event} must have a name of letters and digits`;
    const faultOfExport = findFaultOfExport(event, spec, kinds as object, isOfRows);
    if (faultOfExport !== undefined) return faultOfExport;
  }
  return undefined;
}

/**
 * Checks the value of a pipeline file, whose schemas lie below `root`. Throws an error that names the file and the
 * member: the package, or the operator's dataset, is wrong, and nothing can go on.
 */
export function parsePipeline(file: string, value: unknown, root = ''): PipelineFile {
  const fault = findFault(value);
  if (fault !== undefined) throw new Error(`${file}: ${fault}`);
  const { kinds: some = {}, enriched = [], methods: given = {}, rows, ...pipeline } = value as Partial<PipelineFile>;
  const kinds = Object.entries(some).map(([kind, spec]: [string, string | Partial<KindSpec>]) => {
    const { schema = '', ...more } = typeof spec === 'string' ? { schema: spec } : spec;
    return [kind, { ofDevice: false, key: [], values: {}, ...more, schema: path.join(root, schema) }];
  });
  const methods = Object.entries(given).map(
    ([method, { kind, batch = false }]: [string, Partial<ImportMethodSpec>]) => [method, { kind, batch }],
  );
  return {
    ...pipeline,
    ...(rows === undefined ? {} : { rows: path.join(root, rows) }),
    kinds: Object.fromEntries(kinds),
    enriched,
    methods: Object.fromEntries(methods),
  } as PipelineFile;
}

/** The pipelines of the package, then those of the operator, each in the order of the files' names. */
export const pipelines: readonly PipelineFile[] = [
  ...listPackageJson('pipelines').map((file) => parsePipeline(file, readPackageJson(file))),
  ...listDatasetFiles().map((file) => parsePipeline(file, readPackageJson(file), path.resolve(file, '../..'))),
];

/** The pipeline of the imported events. */
export const eventsPipeline: PipelineFile = (() => {
  const [first, ...others] = pipelines.filter(({ rows }) => rows === undefined);
  if (first === undefined || others.length > 0)
    throw new Error('pipelines: exactly one file, that of the imported events, has no rows');
  return first;
})();
