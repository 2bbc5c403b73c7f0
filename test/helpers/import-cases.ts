import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import type { Platform } from '../../src/datasets/field-schema.ts';

/** A line of a case file; test/fixtures/import/README.md describes the fields. */
export interface ImportCase {
  readonly rule: string;
  readonly app?: Platform;
  readonly method?: string;
  readonly path?: string;
  readonly verb?: string;
  readonly body?: unknown;
  readonly text?: string;
  readonly base64?: string;
  readonly chunked?: boolean;
  readonly headers?: Readonly<Record<string, string | string[] | null>>;
  readonly status: number;
  readonly error?: string;
  readonly detail?: string;
  readonly stored?: readonly Record<string, unknown>[];
  readonly absent?: readonly string[];
}

type Tokens = Readonly<Partial<Record<Platform, string>>>;

/** Reads the cases of each file of test/fixtures/import, by its name. */
export function readImportCases(): [string, ImportCase[]][] {
  const folder = path.join(import.meta.dirname, '..', 'fixtures', 'import');
  return readdirSync(folder)
    .filter((file) => file.endsWith('.ndjson'))
    .map((file) => {
      const lines = readFileSync(path.join(folder, file), 'utf8').trimEnd().split('\n');
      return [file, lines.map((line) => JSON.parse(line) as ImportCase)];
    });
}

/** Replaces `$repeat` and `$token` in every text and name of a value. */
function expand(value: unknown, tokens: Tokens = {}): unknown {
  if (typeof value === 'string') {
    return value
      .replaceAll(/\$repeat\((.+?),(\d+)\)/gu, (_, text: string, count: string) => text.repeat(Number(count)))
      .replaceAll(/\$token\((.+?)\)/g, (_, platform: Platform) => tokens[platform] ?? '');
  }
  if (Array.isArray(value)) return value.map((inner) => expand(inner, tokens));
  if (typeof value !== 'object' || value === null) return value;
  // Object.fromEntries defines properties, so a name such as __proto__ stays one.
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [expand(name, tokens), expand(inner, tokens)]),
  );
}

/** Returns the bytes that a case sends. */
export function bodyOf({ body, text, base64 }: ImportCase): Buffer {
  if (base64 !== undefined) return Buffer.from(base64, 'base64');
  if (text !== undefined) return Buffer.from(String(expand(text)));
  return body === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(expand(body)));
}

/** Returns the headers that a case sends with the token of its app; an array becomes one header per text. */
export function headersOf(
  { app = 'web', headers = {} }: ImportCase,
  tokens: Tokens,
): Record<string, string | string[]> {
  const all = { authorization: tokens[app] ?? '', ...headers };
  return Object.fromEntries(
    Object.entries(all).flatMap(([name, value]) =>
      value === null ? [] : [[name, expand(value, tokens) as string | string[]]],
    ),
  );
}

const matchers: Readonly<Record<string, () => unknown>> = {
  $now: () => expect.closeTo(Date.now() / 1000, -1) as unknown,
  $keyed: () => expect.stringMatching(/^.{14}8/) as unknown,
  $own: () => expect.stringMatching(/^.{14}5/) as unknown,
  $plain: () => expect.stringMatching(/^.{14}7/) as unknown,
};

/** Returns the lines that a case must store, for `toMatchObject`. */
export function expectedLines({ stored = [] }: ImportCase): Record<string, unknown>[] {
  return stored.map((line) => {
    const entries = Object.entries(line).map(([name, value]) => [
      name,
      typeof value === 'string' && matchers[value] !== undefined ? matchers[value]() : expand(value),
    ]);
    return Object.fromEntries(entries) as Record<string, unknown>;
  });
}
