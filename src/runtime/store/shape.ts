/** Checks a value that was read. */
export type ShapeCheck = (value: unknown) => boolean;

export const isText: ShapeCheck = (value) => typeof value === 'string';
export const isFlag: ShapeCheck = (value) => typeof value === 'boolean';
export const isInteger: ShapeCheck = (value) => Number.isSafeInteger(value);
export const isCount: ShapeCheck = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
export const isId: ShapeCheck = (value) => Number.isSafeInteger(value) && (value as number) >= 1;

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

export const listOf =
  (shapeCheck: ShapeCheck): ShapeCheck =>
  (value) =>
    Array.isArray(value) && value.every(shapeCheck);

/** Returns the check of an object by its members. The compiler requires a check of each member of the type. */
export function shapeOf<T>(members: { readonly [Member in keyof Required<T>]: ShapeCheck }): (
  value: unknown,
) => value is T {
  const checks = Object.entries<ShapeCheck>(members);
  return (value): value is T =>
    typeof value === 'object' &&
    value !== null &&
    checks.every(([member, shapeCheck]) => shapeCheck((value as Readonly<Record<string, unknown>>)[member]));
}
