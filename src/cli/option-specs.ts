import { AppError } from '../runtime/errors.ts';

/** A word or an option of the command line. `T` is the type of its value. */
export interface OptionSpec<T> {
  /** Meaning for the help: a noun phrase, no capital, no full stop. */
  readonly description: string;
  /** Value in the usage, such as ID or FILE. An option without one is a flag. */
  readonly placeholder?: string;
  /** Parses a non-empty text; `what` names the word in the error. Error: `usage`. */
  readonly parse?: (text: string, what: string) => T;
  readonly default?: T;
  readonly choices?: readonly string[];
  /** `o` for `-o`. */
  readonly letter?: string;
  readonly isRequired?: boolean;
  readonly isOptional?: boolean;
  readonly isRepeatable?: boolean;
  /** Whether the help omits it. */
  readonly isHidden?: boolean;
}

/** Throws a usage error; the program adds the usage. */
export function failUsage(reason: string): never {
  throw new AppError('usage', reason);
}

export function flag(description: string): OptionSpec<boolean> {
  return { description, default: false };
}

export function parsed<T>(
  description: string,
  placeholder: string,
  parse: (value: string, what: string) => T,
): OptionSpec<T | undefined> {
  return { description, placeholder, parse };
}

export function text(about: string, shown = 'TEXT'): OptionSpec<string | undefined> {
  return parsed(about, shown, (value) => value);
}

export function file(about: string, shown = 'FILE'): OptionSpec<string | undefined> {
  return text(about, shown);
}

export function folder(about: string, shown = 'DIR'): OptionSpec<string | undefined> {
  return text(about, shown);
}

export function parsePositive(value: string, what: string): number {
  const number = /^[1-9]\d{0,15}$/.test(value) ? Number(value) : Number.NaN;
  return Number.isSafeInteger(number) ? number : failUsage(`${what} must be a positive integer, not '${value}'`);
}

export function parsePositiveOrNone(value: string, what: string): number | 'none' {
  return value === 'none' ? value : parsePositive(value, what);
}

export function positive(about: string, shown = 'N', most = Number.MAX_SAFE_INTEGER): OptionSpec<number | undefined> {
  return parsed(about, shown, (value, what) => {
    const number = parsePositive(value, what);
    return number <= most ? number : failUsage(`${what} must be at most ${most}, not ${value}`);
  });
}

export function oneOf<const T extends string>(
  choices: readonly T[],
  about: string,
  placeholder: string = choices.join('|'),
): OptionSpec<T | undefined> {
  const find = (value: string, what: string): T =>
    choices.find((choice) => choice === value) ??
    failUsage(`${what} must be one of ${choices.join(', ')}, not '${value}'`);
  return { ...parsed(about, placeholder, find), choices };
}

export function required<T>(optionSpec: OptionSpec<T | undefined>): OptionSpec<T> {
  return { ...(optionSpec as OptionSpec<T>), isRequired: true };
}

export function withDefault<T>(optionSpec: OptionSpec<T | undefined>, fallback: NoInfer<T>): OptionSpec<T> {
  return { ...(optionSpec as OptionSpec<T>), default: fallback };
}

export function many<T>(optionSpec: OptionSpec<T | undefined>): OptionSpec<readonly T[]> {
  const { default: _, parse, ...rest } = optionSpec;
  return {
    ...rest,
    ...(parse === undefined ? {} : { parse: (...given) => [parse(...given) as T] }),
    isRepeatable: true,
    default: [],
  };
}

export function optional<T>(optionSpec: OptionSpec<T>): OptionSpec<T> & { readonly isOptional: true } {
  return { ...optionSpec, isOptional: true };
}
