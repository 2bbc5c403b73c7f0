/** Checks a value that was read. */
export type Check = (value: unknown) => boolean;

export const isText: Check = (value) => typeof value === 'string';
export const isFlag: Check = (value) => typeof value === 'boolean';
export const isInteger: Check = (value) => Number.isSafeInteger(value);
export const isCount: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
export const isId: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 1;

export const matching =
  (form: RegExp): Check =>
  (value) =>
    typeof value === 'string' && form.test(value);

export const oneOf =
  (values: readonly unknown[]): Check =>
  (value) =>
    values.includes(value);

export const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);

export const listOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);

/** Returns the check of an object by its members. The compiler requires a check of each member of the type. */
export function shapeOf<T>(members: { readonly [Member in keyof Required<T>]: Check }): (value: unknown) => value is T {
  const checks = Object.entries<Check>(members);
  return (value): value is T =>
    typeof value === 'object' &&
    value !== null &&
    checks.every(([member, check]) => check((value as Readonly<Record<string, unknown>>)[member]));
}
