import type { Dataset } from '../../datasets/dataset.ts';
import { rowFields, selectors } from '../../datasets/dictionaries.ts';
import type { RowField } from '../../datasets/row-fields.ts';
import { findRequired, findTarget, listConstants, listTargets, type FieldMap, type FieldRule } from './field-rules.ts';

/** Maps the fields of a file to the fields of its dataset. Pure. */

export const ownFields = ['tsEvent', 'idApp', 'SDKKey', 'eventId', 'params.name', 'params.value'] as const;
export type OwnField = (typeof ownFields)[number];

/** Use of a field. `foreign`: a field of other datasets, which must be empty. */
type FieldUse = { readonly own: OwnField } | { readonly field: RowField } | { readonly foreign: string };

export interface FileField {
  readonly name: string;
  readonly use: FieldUse;
  readonly rule?: FieldRule;
  /** The value of all rows; the file has no such column. */
  readonly constant?: string;
}

type FileRejection = 'unknown_field' | 'field_twice' | 'missing_field' | 'bad_header' | 'bad_format' | 'empty_file';

export interface RejectedFile {
  readonly reason: FileRejection;
  readonly field?: string;
  readonly detail: string;
}

function findUse(dataset: Dataset, name: string): FieldUse | 'ignored' | undefined {
  const field = dataset.fields.find((known) => known.name === name);
  if (field !== undefined) return { field };
  const own = ownFields.find((known) => known === name);
  if (own !== undefined) return { own };
  if (rowFields.has(name)) return { foreign: name };
  // Known to the registry or derived by the service: exported files have it.
  return selectors.has(name) ? 'ignored' : undefined;
}

const schemaName = (use: FieldUse): string => ('field' in use ? use.field.name : 'own' in use ? use.own : use.foreign);

const unknownField = (field: string, { table }: Dataset): RejectedFile => ({
  reason: 'unknown_field',
  field,
  detail: `${field} is not a field of ${table}: rename it, or drop it with null, in the file of --map.`,
});

export function validateFieldMap(dataset: Dataset, map: FieldMap): RejectedFile | undefined {
  const target = listTargets(map).find((name) => findUse(dataset, name) === undefined);
  return target === undefined ? undefined : unknownField(target, dataset);
}

function findMissing(taken: ReadonlyMap<string, string>, hasApp: boolean): string | undefined {
  if (!taken.has('tsEvent')) return 'tsEvent';
  if (!taken.has('idApp') && !taken.has('SDKKey') && !hasApp) return 'idApp';
  return taken.has('params.name') === taken.has('params.value') ? undefined : 'params.name and params.value';
}

/** Plans the use of a file's fields. `hasApp`: the app of all rows is given. A file without names has no rows. */
export function planFileFields(
  dataset: Dataset,
  names: readonly string[],
  map: FieldMap,
  hasApp: boolean,
): { readonly fields: readonly FileField[] } | RejectedFile {
  const fields: FileField[] = [];
  const namesByUse = new Map<string, string>();
  const constants = listConstants(map).map(([target, constant]) => ({
    name: `the constant ${target}`,
    target,
    constant,
  }));
  const columns = names.map((name) => ({ name, ...findTarget(map, name) }));
  for (const { name, target, ...more } of [...columns, ...(names.length === 0 ? [] : constants)]) {
    if (target === null) continue;
    const use = findUse(dataset, target);
    if (use === undefined) return unknownField(target, dataset);
    // The engine ignores case: names that differ by case only would be one.
    const key = use === 'ignored' ? `ignored ${target}` : schemaName(use);
    const before = namesByUse.get(key);
    if (before !== undefined)
      return {
        reason: 'field_twice',
        field: target,
        detail: `${target} appears twice, as ${before} and ${name}: drop one with null in the file of --map.`,
      };
    namesByUse.set(key, name);
    if (use !== 'ignored') fields.push({ name, use, ...more });
  }
  const missing =
    names.length === 0
      ? undefined
      : (findMissing(namesByUse, hasApp) ?? findRequired(map, (field) => namesByUse.has(field)));
  if (missing !== undefined)
    return {
      reason: 'missing_field',
      field: missing,
      detail: `the file has no ${missing}: rename a field to it in the file of --map${missing === 'idApp' ? ', or pass the app of all rows with --app' : ''}.`,
    };
  return { fields };
}

/** Reasons of bad rows (docs/load.md). */
export type BadReason =
  | 'bad_line'
  | 'bad_json'
  | 'missing'
  | 'bad_type'
  | 'inexact'
  | 'out_of_range'
  | 'not_allowed'
  | 'bad_length'
  | 'bad_pattern'
  | 'bad_list'
  | 'conflict'
  | 'unknown_app'
  | 'foreign_field';

export interface BadRow {
  /** From 1; in CSV the line on which the row begins, in Parquet the number of the row. */
  readonly line: number;
  readonly reason: BadReason;
  /** Schema name; absent if the entire row is bad. */
  readonly field?: string;
}

/** A condition that is true for a bad row and never an error; the first true one counts. */
export interface RowCheck {
  readonly reason: BadReason;
  readonly field?: string;
  readonly sql: string;
  /** Only refines the reason: a later check fails too. */
  readonly isDetail?: true;
}
