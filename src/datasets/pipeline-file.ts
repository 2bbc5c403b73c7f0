import { readPackageJson } from '../runtime/files/package-files.ts';

/** An import method of service.md 4.1 and 4.2: the kind of event that it imports, singly or in batches. */
export interface ImportMethodSpec {
  readonly kind: string;
  readonly batch: boolean;
}

/** An export event whose rows are imported events of one kind. */
export interface KindExport {
  readonly kind: string;
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
export type ExportEvent = KindExport | DerivedExport;

/** A file of `pipelines/`: what a dataset is, as far as its fields' schemas do not say it. */
export interface PipelineFile {
  /** Name of the table, of its folder in the lake, and of its view. */
  readonly table: string;
  readonly description: string;
  /** The file with the JSON Schema of each kind of event, relative to the package. */
  readonly kinds: Readonly<Record<string, string>>;
  readonly methods: Readonly<Record<string, ImportMethodSpec>>;
  /**
   * Columns whose values name the folder of a sealed file, outermost first, and columns by which its rows are sorted.
   */
  readonly sealing: { readonly partitionBy: readonly string[]; readonly sortBy: readonly string[] };
  readonly exports: Readonly<Record<string, ExportEvent>>;
}

const name = /^[a-z][a-z0-9_]*$/;
/** Folders of the lake that are no table. */
const takenNames = ['failed', 'staging', 'orphans'];
const requirements = [undefined, 'user', 'device'];
const derivations = ['first', 'days', 'sessions'];

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isNameList(value: unknown): value is readonly string[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((item) => typeof item === 'string' && name.test(item)) &&
    new Set(value).size === value.length
  );
}

/** Says what is wrong with a pipeline file; undefined: nothing. */
function findFault(value: unknown): string | undefined {
  if (!isRecord(value)) return 'must be an object';
  const { table, description, kinds, methods, sealing, exports } = value;
  if (typeof table !== 'string' || !name.test(table) || takenNames.includes(table))
    return `table must be a lower-case name other than ${takenNames.join(', ')}`;
  if (typeof description !== 'string') return 'description must be a text';
  if (!isRecord(kinds) || Object.keys(kinds).length === 0)
    return 'kinds must name the schema file of at least one kind';
  const bad = Object.entries(kinds).find(([kind, file]) => !name.test(kind) || typeof file !== 'string');
  if (bad !== undefined) return `kinds.${bad[0]} must be a lower-case name with the path of a schema file`;
  if (!isRecord(methods)) return 'methods must be an object';
  for (const [method, spec] of Object.entries(methods)) {
    if (!isRecord(spec) || typeof spec['kind'] !== 'string' || !Object.hasOwn(kinds, spec['kind']))
      return `methods.${method} must name one of the kinds`;
    if (!['undefined', 'boolean'].includes(typeof spec['batch']))
      return `methods.${method}.batch must be true or false`;
  }
  if (!isRecord(sealing) || !isNameList(sealing['partitionBy']) || !isNameList(sealing['sortBy']))
    return 'sealing must have partitionBy and sortBy, lists of columns';
  if (!isRecord(exports)) return 'exports must be an object';
  for (const [event, spec] of Object.entries(exports)) {
    if (isRecord(spec) && 'derive' in spec) {
      const { derive, of, ...others } = spec;
      const isGood = derivations.some((known) => known === derive) && (of === 'user' || of === 'device');
      if (!isGood || Object.keys(others).length > 0)
        return `exports.${event} must derive first, days or sessions of user or device`;
      continue;
    }
    if (!isRecord(spec) || typeof spec['kind'] !== 'string' || !Object.hasOwn(kinds, spec['kind']))
      return `exports.${event} must name one of the kinds`;
    if (!requirements.includes(spec['requires'] as string | undefined))
      return `exports.${event}.requires must be user or device`;
  }
  return undefined;
}

/**
 * Checks the value of a pipeline file. Throws an error that names the file and the member: the package is wrong,
 * nothing can go on.
 */
export function parsePipeline(file: string, value: unknown): PipelineFile {
  const fault = findFault(value);
  if (fault !== undefined) throw new Error(`${file}: ${fault}`);
  const pipeline = value as PipelineFile;
  const methods = Object.entries(pipeline.methods).map(([method, { kind, batch }]) => [
    method,
    { kind, batch: (batch as boolean | undefined) === true },
  ]);
  return { ...pipeline, methods: Object.fromEntries(methods) as PipelineFile['methods'] };
}

/** The pipeline of the imported events. */
export const eventsPipeline = parsePipeline('pipelines/events.json', readPackageJson('pipelines/events.json'));
