/** Kinds of settings: what each accepts, for the parser (src/config.ts) and docs/reference/settings.md. */
import { createEgressPolicy } from '../runtime/http/egress-policy.ts';
import path from 'node:path';
import type { Quota } from '../runtime/async/rate-limits.ts';
import { parseNatsUrl } from '../runtime/processes/nats-url.ts';

const quotaUnitsMs: Readonly<Record<string, number>> = { s: 1000, min: 60_000, h: 3_600_000 };

export interface Setting<T> {
  /** Variable, without `TRIBUTARY_`. */
  readonly name: string;
  /** Meaning, for the page: a noun phrase first. */
  readonly about: string;
  /** Permitted values, for the page. */
  readonly values: string;
  /** Default, for the page, if it is not the fallback as it is. */
  readonly usual?: string;
  readonly unit?: 'bytes' | 'MiB' | 'ms' | 's';
  /** Further sentences, for the page. */
  readonly notes?: string;
  /** Whether its value is a secret, which can also be in a file that the variable with `_FILE` names. */
  readonly isSecret?: boolean;
  /** Value of an unset or empty variable. */
  readonly fallback: T;
  /** Parses a text that is not empty. `refuse` collects a rule that it breaks. */
  readonly parse: (text: string, refuse: (rule: string) => void) => T;
}

export const setting = <T>(declared: Setting<T>): Setting<T> => declared;

type Texts = Pick<Setting<unknown>, 'about' | 'usual' | 'unit' | 'notes'>;

interface Range {
  readonly fallback: number;
  readonly min: number;
  readonly max?: number;
}

export function integer(name: string, { fallback, min, max, ...texts }: Range & Texts): Setting<number> {
  const maxValue = max ?? Number.MAX_SAFE_INTEGER;
  return {
    name,
    ...texts,
    values: max === undefined ? `at least ${min}` : `${min} to ${max}`,
    fallback,
    parse(given, refuse) {
      const value = /^-?\d{1,16}$/.test(given) ? Number(given) : Number.NaN;
      if (value >= min && value <= maxValue) return value;
      refuse(`must be a whole number from ${min} to ${maxValue}`);
      return fallback;
    },
  };
}

type Rest<T> = Texts & Pick<Setting<T>, 'values' | 'fallback'>;

export function word<T extends string | undefined>(name: string, rest: Rest<T>): Setting<string | T> {
  return { name, ...rest, parse: (given) => given };
}

/** A secret text, also in a file that the variable with `_FILE` names. */
export function secret(name: string, texts: Texts): Setting<string | undefined> {
  return { name, ...texts, values: 'text', isSecret: true, fallback: undefined, parse: (given) => given };
}

/** The absolute path of a file or a folder. */
export function pathSetting<T extends string | undefined>(
  name: string,
  rest: Omit<Rest<T>, 'values'>,
): Setting<string | T> {
  return { name, ...rest, values: 'path', parse: (given) => path.resolve(given) };
}

export function oneOf<const Word extends string>(
  name: string,
  choices: readonly Word[],
  { fallback, ...texts }: Texts & { readonly fallback: NoInfer<Word> },
): Setting<Word> {
  return {
    name,
    ...texts,
    values: choices.join(', '),
    fallback,
    parse(given, refuse) {
      const found = choices.find((choice) => choice === given);
      if (found === undefined) refuse(`must be one of ${choices.join(', ')}`);
      return found ?? fallback;
    },
  };
}

/** An HTTP address, without a trailing slash. */
export function address(name: string, texts: Texts): Setting<string | undefined> {
  return {
    name,
    ...texts,
    values: 'address',
    fallback: undefined,
    parse(given, refuse) {
      const url = URL.canParse(given) ? new URL(given) : undefined;
      if (url === undefined || !['http:', 'https:'].includes(url.protocol))
        refuse('must be an address that starts with http:// or https://');
      return given.replace(/\/+$/, '');
    },
  };
}

/** A place in a bucket: `s3://BUCKET/PREFIX`, without a slash at its end. */
export function bucketUrl(name: string, texts: Texts): Setting<string | undefined> {
  return {
    name,
    ...texts,
    values: 's3://BUCKET/PREFIX',
    fallback: undefined,
    parse(given, refuse) {
      const url = given.replace(/\/+$/, '');
      const [, prefix] = /^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]((?:\/[\w.=-]+)*)$/.exec(url) ?? [];
      if (prefix === undefined || prefix.split('/').some((part) => part === '.' || part === '..'))
        refuse('must be s3://BUCKET or s3://BUCKET/PREFIX, with letters, digits, . _ = - in the prefix');
      return url;
    },
  };
}

/** Addresses of the servers of a NATS cluster. They may have a password. */
export function natsServers(name: string, texts: Texts): Setting<string | undefined> {
  return {
    name,
    ...texts,
    values: 'addresses, separated by commas',
    isSecret: true,
    fallback: undefined,
    parse(given, refuse) {
      const servers = parseNatsUrl(given);
      if ('problem' in servers) refuse(servers.problem);
      return given;
    },
  };
}

function parseQuotas(given: string, refuse: (rule: string) => void): readonly Quota[] {
  if (given === 'off') return [];
  const parts = given.split(',').map((part) => /^([1-9]\d{0,8})\/(s|min|h)$/.exec(part.trim()));
  if (parts.some((quota) => quota === null)) refuse("must be limits such as '10/s,100/min,1000/h', or 'off'");
  return parts.flatMap((quota) =>
    quota === null ? [] : [{ limit: Number(quota[1]), windowMs: quotaUnitsMs[quota[2] ?? ''] ?? 0 }],
  );
}

export function quotas(name: string, usual: string, about: string): Setting<readonly Quota[]> {
  const fallback = parseQuotas(usual, () => undefined);
  return { name, about, values: 'limits per s, min or h, or off', usual, fallback, parse: parseQuotas };
}

/** Hosts that the service may connect to: private networks and names. */
export function egressRules(name: string, { about, notes }: { readonly about: string; readonly notes: string }) {
  return setting<readonly string[]>({
    name,
    values: 'networks and names, separated by commas',
    about,
    notes,
    fallback: [],
    parse(given, refuse) {
      const entries = given.split(',').filter((entry) => entry.trim() !== '');
      const rules = createEgressPolicy(entries);
      if (typeof rules === 'string') refuse(`must be networks and names, and '${rules}' is neither`);
      return entries;
    },
  });
}
