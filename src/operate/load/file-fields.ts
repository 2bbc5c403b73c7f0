import type { Dataset } from '../../datasets/dataset.ts';
import { rowFields, selectors } from '../../datasets/dictionaries.ts';
import type { RowField } from '../../datasets/row-fields.ts';

/**
 * What each field of a file is to the dataset that it is loaded into: spec "a field of a row has the name of its
 * selector". Pure.
 */

/** Fields that are no column of their own: the identity of a row, its time, its app, its parameters. */
export const ownFields = ['tsEvent', 'idApp', 'SDKKey', 'eventId', 'params.name', 'params.value'] as const;
export type OwnField = (typeof ownFields)[number];

/** The use of a field. `foreign`: one of other datasets, which must be empty. What is ignored or dropped has none. */
type FieldUse = { readonly own: OwnField } | { readonly field: RowField } | { readonly foreign: string };

/** A field of a file that is read. */
export interface FileField {
  /** Its name in the file. */
  readonly name: string;
  readonly use: FieldUse;
}

/** Names of a file's fields, and what each is called by the schema; null: it is dropped. */
export type FieldMap = Readonly<Record<string, string | null>>;

/** Why a file as a whole cannot be loaded: a closed list. */
type FileFault = 'unknown_field' | 'field_twice' | 'missing_field' | 'bad_header' | 'bad_format' | 'empty_file';

/** A file that is refused before its rows are looked at. */
export interface RefusedFile {
  readonly reason: FileFault;
  readonly field?: string;
  /** What is wrong and what to do, a sentence. */
  readonly detail: string;
}

function findUse(dataset: Dataset, name: string): FieldUse | 'ignored' | undefined {
  const field = dataset.fields.find((known) => known.name === name);
  if (field !== undefined) return { field };
  const own = ownFields.find((known) => known === name);
  if (own !== undefined) return { own };
  if (rowFields.has(name)) return { foreign: name };
  // What the registry knows, and what the service derives: an exported file has it.
  return selectors.has(name) ? 'ignored' : undefined;
}

const schemaName = (use: FieldUse): string => ('field' in use ? use.field.name : 'own' in use ? use.own : use.foreign);

const unknownField = (field: string, { table }: Dataset): RefusedFile => ({
  reason: 'unknown_field',
  field,
  detail: `${field} is no field of ${table}: give it another name, or drop it with null, in the file of --map.`,
});

/** Says whether a map names only what there is. Returns undefined, or why not. */
export function findFaultOfMap(dataset: Dataset, map: FieldMap): RefusedFile | undefined {
  const target = Object.values(map).find((name) => name !== null && findUse(dataset, name) === undefined);
  return target === undefined || target === null ? undefined : unknownField(target, dataset);
}

/**
 * Plans how the fields of a file are used. `hasApp`: the app of all rows was given. A file without any name has no row.
 */
export function planFields(
  dataset: Dataset,
  names: readonly string[],
  map: FieldMap,
  hasApp: boolean,
): { readonly fields: readonly FileField[] } | RefusedFile {
  const fields: FileField[] = [];
  const taken = new Map<string, string>();
  for (const name of names) {
    const target = Object.hasOwn(map, name) ? map[name] : name;
    if (target === null || target === undefined) continue;
    const use = findUse(dataset, target);
    if (use === undefined) return unknownField(target, dataset);
    // The engine's names know no upper case: two that differ by it only would be one.
    const key = use === 'ignored' ? `ignored ${target}` : schemaName(use);
    const before = taken.get(key);
    if (before !== undefined)
      return {
        reason: 'field_twice',
        field: target,
        detail: `${target} is there twice, as ${before} and ${name}: drop one with null in the file of --map.`,
      };
    taken.set(key, name);
    if (use !== 'ignored') fields.push({ name, use });
  }
  const missing =
    names.length === 0
      ? undefined
      : taken.has('tsEvent')
        ? taken.has('idApp') || taken.has('SDKKey') || hasApp
          ? taken.has('params.name') === taken.has('params.value')
            ? undefined
            : 'params.name and params.value'
          : 'idApp'
        : 'tsEvent';
  if (missing !== undefined)
    return {
      reason: 'missing_field',
      field: missing,
      detail: `the file has no ${missing}: give a field that name in the file of --map${missing === 'idApp' ? ', or the app of all rows by --app' : ''}.`,
    };
  return { fields };
}

/** Why a row of a file cannot be loaded: a closed list, with what each means. */
const badReasons = {
  bad_line: 'the line is no row: not UTF-8, an unclosed quote, or the wrong number of cells',
  bad_json: 'the line is no JSON object',
  missing: 'a required field has no value',
  bad_type: 'the value is not of the type of its field',
  inexact: 'the number has more digits than its field keeps',
  out_of_range: 'the number is below the minimum or above the maximum',
  not_allowed: 'the value is none of those that are allowed',
  bad_length: 'the text is too short or too long',
  bad_pattern: 'the text is not in the form of its field',
  bad_list: 'the value is no list of texts, or params.name and params.value do not belong together',
  conflict: 'two fields that are the same thing have different values',
  unknown_app: 'no registered app has this idApp or SDKKey',
  foreign_field: 'the field is one of other datasets',
} as const satisfies Readonly<Record<string, string>>;

export type BadReason = keyof typeof badReasons;

/** A row that cannot be loaded. */
export interface BadRow {
  /** Line of the file, from 1 (CSV: where the row begins; its header is line 1); in Parquet the number of the row, from 1. */
  readonly line: number;
  readonly reason: BadReason;
  /** The field at fault, by its name in the schema; absent where the row as a whole is. */
  readonly field?: string;
}

/** A condition on a row, SQL that is true where the row is bad and never an error; of several the first counts. */
export interface Check {
  readonly reason: BadReason;
  readonly field?: string;
  readonly sql: string;
  /** It only says more of why: a later check fails too, so that whether a row is bad can be known without it. */
  readonly isDetail?: true;
}
