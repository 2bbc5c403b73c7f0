import { AppError } from '../runtime/errors.ts';

/** What a word or an option of a command takes: declared once, for the parser and the help. `T` is what the command gets. */
export interface Declared<T> {
  /** What it means, for the help: no capital, no full stop. */
  readonly about: string;
  /** How the usage shows a value: ID, FILE, auto|gzip. An option without is a flag. */
  readonly shown?: string;
  /** Turns a text that is not empty into the value; `what` names the word in the error. Error: `usage`. */
  readonly parse?: (text: string, what: string) => T;
  /** The value where none is given. */
  readonly fallback?: T;
  /** The texts that are taken, where they are few. */
  readonly choices?: readonly string[];
  /** An option's one letter: `o` for `-o`. */
  readonly letter?: string;
  /** An option that must be given. */
  readonly isRequired?: boolean;
  /** A word that may be left out. */
  readonly isOptional?: boolean;
  /** May be given several times. */
  readonly isMany?: boolean;
  /** Left out of the help: for the service's own use. */
  readonly isHidden?: boolean;
}

/** Ends a command whose words are wrong; the frame adds the usage. */
export function refuse(reason: string): never {
  throw new AppError('usage', reason);
}

/** An option that is there or not. */
export function flag(about: string): Declared<boolean> {
  return { about, fallback: false };
}

/** A value of a kind of its own; `parse` turns a text that is not empty into it, or refuses. */
export function parsed<T>(
  about: string,
  shown: string,
  parse: (value: string, what: string) => T,
): Declared<T | undefined> {
  return { about, shown, parse };
}

/** Any text but an empty one. */
export function text(about: string, shown = 'TEXT'): Declared<string | undefined> {
  return parsed(about, shown, (value) => value);
}

/** The path of a file; nothing is looked up. */
export function file(about: string, shown = 'FILE'): Declared<string | undefined> {
  return text(about, shown);
}

/** The path of a folder; nothing is looked up. */
export function folder(about: string, shown = 'DIR'): Declared<string | undefined> {
  return text(about, shown);
}

/** Parses a positive integer of the command line. Error: `usage`. */
export function parsePositive(value: string, what: string): number {
  const number = /^[1-9]\d{0,15}$/.test(value) ? Number(value) : Number.NaN;
  return Number.isSafeInteger(number) ? number : refuse(`${what} must be a positive integer, not '${value}'`);
}

/** Parses a positive integer, or `none`. Error: `usage`. */
export function parsePositiveOrNone(value: string, what: string): number | 'none' {
  return value === 'none' ? value : parsePositive(value, what);
}

/** A positive integer, `most` at most. */
export function positive(about: string, shown = 'N', most = Number.MAX_SAFE_INTEGER): Declared<number | undefined> {
  return parsed(about, shown, (value, what) => {
    const number = parsePositive(value, what);
    return number <= most ? number : refuse(`${what} must be at most ${most}, not ${value}`);
  });
}

/** One of a few texts. */
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

/** An option that must be given. */
export function required<T>(declared: Declared<T | undefined>): Declared<T> {
  return { ...(declared as Declared<T>), isRequired: true };
}

/** An option with a value of its own where none is given. */
export function withDefault<T>(declared: Declared<T | undefined>, fallback: NoInfer<T>): Declared<T> {
  return { ...(declared as Declared<T>), fallback };
}

/** An option, or the last word, that may be given several times. */
export function many<T>(declared: Declared<T | undefined>): Declared<readonly T[]> {
  const { fallback: _, parse, ...rest } = declared;
  return {
    ...rest,
    ...(parse === undefined ? {} : { parse: (...given) => [parse(...given) as T] }),
    isMany: true,
    fallback: [],
  };
}

/** A word that may be left out. */
export function optional<T>(declared: Declared<T>): Declared<T> & { readonly isOptional: true } {
  return { ...declared, isOptional: true };
}

/** An option that has one letter, too. */
export function short<T>(letter: string, declared: Declared<T>): Declared<T> {
  return { ...declared, letter };
}

/** An option that the help leaves out. */
export function hidden<T>(declared: Declared<T>): Declared<T> {
  return { ...declared, isHidden: true };
}

/** Leaves out the members that were not given. */
export function present<T extends object>(members: T): { readonly [K in keyof T]?: Exclude<T[K], undefined> } {
  const some = Object.entries(members).filter(([, value]) => value !== undefined);
  return Object.fromEntries(some) as { readonly [K in keyof T]?: Exclude<T[K], undefined> };
}
