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
export type FieldUse = { readonly own: OwnField } | { readonly field: RowField } | { readonly foreign: string };

/** A field of a file that is read. */
export interface FileField {
  /** Its name in the file. */
  readonly name: string;
  readonly use: FieldUse;
}

/** Names of a file's fields, and what each is called by the schema; null: it is dropped. */
export type FieldMap = Readonly<Record<string, string | null>>;

/** Why a file as a whole cannot be loaded: a closed list. */
export type FileFault = 'unknown_field' | 'field_twice' | 'missing_field' | 'bad_header' | 'bad_format' | 'empty_file';

/** A file that is refused before its rows are looked at. */
export interface RefusedFile {
  readonly reason: FileFault;
  readonly field?: string;
  /** What is wrong and what to do, a sentence. */
  readonly detail: string;
}

/** The names that a file of this dataset may have, without those that are ignored; for help and errors. */
export function listFieldNames({ fields }: Dataset): readonly string[] {
  return [...ownFields, ...fields.map(({ name }) => name)].toSorted();
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
