import { isRecord } from '../files/checksummed-json.ts';

/** Checks a value that was read. */
export type ShapeCheck = (value: unknown) => boolean;

export const isText = (value: unknown): value is string => typeof value === 'string';
export const isFlag: ShapeCheck = (value) => typeof value === 'boolean';
export const isInteger = (value: unknown): value is number => Number.isSafeInteger(value);
export const isCount = (value: unknown): value is number => isInteger(value) && value >= 0;
export const isId = (value: unknown): value is number => isInteger(value) && value >= 1;

export const matching =
  (form: RegExp): ShapeCheck =>
  (value) =>
    typeof value === 'string' && form.test(value);

export const oneOf =
  (values: readonly unknown[]): ShapeCheck =>
  (value) =>
    values.includes(value);

export const optional =
  (shapeCheck: ShapeCheck): ShapeCheck =>
  (value) =>
    value === undefined || shapeCheck(value);

export function listOf<T>(shapeCheck: (value: unknown) => value is T): (value: unknown) => value is readonly T[];
export function listOf(shapeCheck: ShapeCheck): ShapeCheck;
export function listOf(shapeCheck: ShapeCheck): ShapeCheck {
  return (value) => Array.isArray(value) && value.every(shapeCheck);
}

/** Returns the check of an object by its members. The compiler requires a check of each member of the type. */
export function shapeOf<T>(members: { readonly [Member in keyof Required<T>]: ShapeCheck }): (
  value: unknown,
) => value is T {
  const checks = Object.entries<ShapeCheck>(members);
  return (value): value is T => isRecord(value) && checks.every(([member, shapeCheck]) => shapeCheck(value[member]));
}
