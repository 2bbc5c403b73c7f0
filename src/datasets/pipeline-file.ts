import path from 'node:path';
import { listDatasetFiles, listPackageJson, readPackageJson } from '../runtime/files/package-files.ts';
import { isRecord, membersOf, renameMembers } from '../runtime/files/checksummed-json.ts';

/** A kind of imported event; in a file possibly its schema path alone. */
export interface KindSpec {
  readonly schema: string;
  /** True if an event may name a device and no user; `ofDevice` before version 0.4. */
  readonly allowsDeviceOnly: boolean;
  /** Natural key: fields that with the app identify a row permanently; empty: none. */
  readonly key: readonly string[];
  readonly values: Readonly<Record<string, number | string>>;
}

/** An import method (docs/api.md#import). */
export interface ImportMethodSpec {
  readonly kind: string;
  readonly batch: boolean;
}

/** An export event of stored rows: imported events of one kind, or rows of a dataset. */
export interface StoredExport {
  readonly kind?: string;
  readonly where?: Readonly<Record<string, number | string>>;
  /** `user`: rows with a customUserId. `device`: rows with a device identifier. */
  readonly requires?: 'user' | 'device';
}

export type Subject = 'user' | 'device';

/** An event derived from events of all kinds: the first of each subject, of its days, or of its sessions. */
export interface DerivedExport {
  readonly derive: 'first' | 'days' | 'sessions';
  readonly of: Subject;
}

export type ExportEvent = StoredExport | DerivedExport;

export interface PipelineFile {
  readonly table: string;
  readonly description: string;
  readonly kinds: Readonly<Record<string, KindSpec>>;
  readonly methods: Readonly<Record<string, ImportMethodSpec>>;
  /** JSON Schema file of loadable rows, relative to the package; absent: not loadable. */
  readonly rows?: string;
  /** Common fields of rows that the service fills in imported events. */
  readonly enriched: readonly string[];
  /** Columns that form the folder of a sealed file, outermost first, and its sort order. */
  readonly sealing: { readonly partitionBy: readonly string[]; readonly sortBy: readonly string[] };
  readonly exports: Readonly<Record<string, ExportEvent>>;
}

const name = /^[a-z][a-zA-Z0-9_]*$/;
const columnName = /^[a-z][a-z0-9_]*$/;
const takenNames = ['failed', 'staging', 'quarantine', 'orphans', 'catalogue'];
/** Members of a kind by their names before version 0.4; accepted until 0.5. */
const formerMembers = { ofDevice: 'allowsDeviceOnly' };
const requirements: readonly unknown[] = [undefined, 'user', 'device'];
const derivations = ['first', 'days', 'sessions'];

function isNameList(value: unknown): value is readonly string[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((item) => typeof item === 'string' && columnName.test(item)) &&
    new Set(value).size === value.length
  );
}

function findFaultOfKind(
  { allowsDeviceOnly, key = [], values = {} }: Readonly<Record<string, unknown>>,
  isOfRows: boolean,
) {
  if (!['undefined', 'boolean'].includes(typeof allowsDeviceOnly)) return 'allowsDeviceOnly must be true or false';
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
    const error = findFaultOfKind(renameMembers(parts, formerMembers), isOfRows);
    if (error !== undefined) return `kinds.${kind}.${error}`;
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
  return requirements.includes(requires) ? undefined : `exports.${event}.requires must be user or device`;
}

/** Reports whether a folder of the lake can be a table, of these or other pipelines. */
export function isTableName(folder: string): boolean {
  return name.test(folder) && !takenNames.includes(folder);
}

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
  const error = findFaultOfKinds(kinds, methods, isOfRows);
  if (error !== undefined) return error;
  if (!isRecord(sealing) || !isNameList(sealing['partitionBy']) || !isNameList(sealing['sortBy']))
    return 'sealing must have partitionBy and sortBy, lists of columns';
  if (!isRecord(exports)) return 'exports must be an object';
  for (const [event, spec] of Object.entries(exports)) {
    if (!name.test(event)) return `exports.${event} must have a name of letters and digits`;
    const faultOfExport = findFaultOfExport(event, spec, membersOf(kinds), isOfRows);
    if (faultOfExport !== undefined) return faultOfExport;
  }
  return undefined;
}

/** Checks a pipeline file, whose schemas are in `root`. Throws an error that names file and member. */
export function parsePipeline(file: string, value: unknown, root = ''): PipelineFile {
  const error = findFault(value);
  if (error !== undefined) throw new Error(`${file}: ${error}`);
  const {
    kinds: declaredKinds = {},
    enriched = [],
    methods: declaredMethods = {},
    rows,
    ...pipeline
  } = value as Partial<PipelineFile>;
  const kinds = Object.entries(declaredKinds).map(([kind, spec]: [string, string | Partial<KindSpec>]) => {
    const { schema = '', ...more }: Partial<KindSpec> =
      typeof spec === 'string' ? { schema: spec } : renameMembers({ ...spec }, formerMembers);
    return [kind, { allowsDeviceOnly: false, key: [], values: {}, ...more, schema: path.join(root, schema) }];
  });
  const methods = Object.entries(declaredMethods).map(
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

/** The pipelines of the package, then the operator's, each by file name. */
export const pipelines: readonly PipelineFile[] = [
  ...listPackageJson('pipelines').map((file) => parsePipeline(file, readPackageJson(file))),
  ...listDatasetFiles().map((file) => parsePipeline(file, readPackageJson(file), path.resolve(file, '../..'))),
];

export const eventsPipeline: PipelineFile = (() => {
  const [first, ...others] = pipelines.filter(({ rows }) => rows === undefined);
  if (first === undefined || others.length > 0)
    throw new Error('pipelines: exactly one file, that of the imported events, has no rows');
  return first;
})();
