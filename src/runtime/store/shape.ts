/** Reports whether a value that was read is what its reader takes it for. */
export type Check = (value: unknown) => boolean;

export const isText: Check = (value) => typeof value === 'string';
export const isFlag: Check = (value) => typeof value === 'boolean';
export const isInteger: Check = (value) => Number.isSafeInteger(value);
/** A whole number, not negative. */
export const isCount: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
/** A whole number from 1 on. */
export const isId: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 1;

/** Returns the check of a text of a form. */
export const matching =
  (form: RegExp): Check =>
  (value) =>
    typeof value === 'string' && form.test(value);

/** Returns the check of one of some values. */
export const oneOf =
  (values: readonly unknown[]): Check =>
  (value) =>
    values.includes(value);

/** Returns the check of a member that may be absent. */
export const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);

/** Returns the check of a list. */
export const listOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);

/** Returns the check of an object by its members. The compiler asks for a check of each member of the type. */
export function shapeOf<T>(members: { readonly [Member in keyof Required<T>]: Check }): (value: unknown) => value is T {
  const checks = Object.entries<Check>(members);
  return (value): value is T =>
    typeof value === 'object' &&
    value !== null &&
    checks.every(([member, check]) => check((value as Readonly<Record<string, unknown>>)[member]));
}
