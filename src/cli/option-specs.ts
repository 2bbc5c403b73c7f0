import { AppError } from '../runtime/errors.ts';

/** A word or an option of the command line. `T` is the type of its value. */
export interface Declared<T> {
  /** Meaning for the help: a noun phrase, no capital, no full stop. */
  readonly about: string;
  /** Value in the usage, such as ID or FILE. An option without one is a flag. */
  readonly shown?: string;
  /** Parses a non-empty text; `what` names the word in the error. Error: `usage`. */
  readonly parse?: (text: string, what: string) => T;
  readonly fallback?: T;
  readonly choices?: readonly string[];
  /** `o` for `-o`. */
  readonly letter?: string;
  readonly isRequired?: boolean;
  readonly isOptional?: boolean;
  readonly isMany?: boolean;
  /** Whether the help omits it. */
  readonly isHidden?: boolean;
}

/** Throws a usage error; the program adds the usage. */
export function refuse(reason: string): never {
  throw new AppError('usage', reason);
}

export function flag(about: string): Declared<boolean> {
  return { about, fallback: false };
}

export function parsed<T>(
  about: string,
  shown: string,
  parse: (value: string, what: string) => T,
): Declared<T | undefined> {
  return { about, shown, parse };
}

export function text(about: string, shown = 'TEXT'): Declared<string | undefined> {
  return parsed(about, shown, (value) => value);
}

export function file(about: string, shown = 'FILE'): Declared<string | undefined> {
  return text(about, shown);
}

export function folder(about: string, shown = 'DIR'): Declared<string | undefined> {
  return text(about, shown);
}

export function parsePositive(value: string, what: string): number {
  const number = /^[1-9]\d{0,15}$/.test(value) ? Number(value) : Number.NaN;
  return Number.isSafeInteger(number) ? number : refuse(`${what} must be a positive integer, not '${value}'`);
}

export function parsePositiveOrNone(value: string, what: string): number | 'none' {
  return value === 'none' ? value : parsePositive(value, what);
}

export function positive(about: string, shown = 'N', most = Number.MAX_SAFE_INTEGER): Declared<number | undefined> {
  return parsed(about, shown, (value, what) => {
    const number = parsePositive(value, what);
    return number <= most ? number : refuse(`${what} must be at most ${most}, not ${value}`);
  });
}

export function oneOf<const T extends string>(
  choices: readonly T[],
  about: string,
  shown: string = choices.join('|'),
): Declared<T | undefined> {
  const find = (value: string, what: string): T =>
    choices.find((choice) => choice === value) ??
    refuse(`${what} must be one of ${choices.join(', ')}, not '${value}'`);
  return { ...parsed(about, shown, find), choices };
}

export function required<T>(declared: Declared<T | undefined>): Declared<T> {
  return { ...(declared as Declared<T>), isRequired: true };
}

export function withDefault<T>(declared: Declared<T | undefined>, fallback: NoInfer<T>): Declared<T> {
  return { ...(declared as Declared<T>), fallback };
}

export function many<T>(declared: Declared<T | undefined>): Declared<readonly T[]> {
  const { fallback: _, parse, ...rest } = declared;
  return {
    ...rest,
    ...(parse === undefined ? {} : { parse: (...given) => [parse(...given) as T] }),
    isMany: true,
    fallback: [],
  };
}

export function optional<T>(declared: Declared<T>): Declared<T> & { readonly isOptional: true } {
  return { ...declared, isOptional: true };
}

/** Returns the members that are not undefined. */
export function present<T extends object>(members: T): { readonly [K in keyof T]?: Exclude<T[K], undefined> } {
  const some = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(some) as { readonly [K in keyof T]?: Exclude<T[K], undefined> };
}
