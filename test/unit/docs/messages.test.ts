import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';

const sourceFolder = path.join(packageRoot, 'src');
const sources = readdirSync(sourceFolder, { recursive: true })
  .map(String)
  .filter((name) => name.endsWith('.ts') && !name.startsWith('demo/'))
  .map((name) => ({ name, text: readFileSync(path.join(sourceFolder, name), 'utf8') }));

/** Reads from an opening bracket to the closing one; brackets in texts do not count. */
function readArguments(text: string, from: number): string {
  let depth = 1;
  let quote = '';
  for (let at = from; at < text.length; at += 1) {
    const sign = text.charAt(at);
    if (sign === '\\') at += 1;
    else if (quote !== '') quote = sign === quote ? '' : quote;
    else if ('\'"`'.includes(sign)) quote = sign;
    else if ('([{'.includes(sign)) depth += 1;
    else if (')]}'.includes(sign)) depth -= 1;
    if (depth === 0) return text.slice(from, at);
  }
  throw new Error(`nothing closes the bracket at ${from}`);
}

/** Each error that the sources create with a literal code: file, code and arguments. */
const errors = sources.flatMap(({ name, text }) =>
  [...text.matchAll(/new AppError\(\s*'(\w+)'/g)].map((match) => ({
    at: name,
    code: match[1] ?? '',
    made: readArguments(text, text.indexOf('(', match.index) + 1),
  })),
);

/**
 * Codes that end a command, or stop the service until an operator acts. Errors that are retried automatically are not
 * among them.
 */
const needAct = [
  'config_invalid',
  'not_found',
  'conflict',
  'locked',
  'folder_lost',
  'file_damaged',
  'log_damaged',
  'rewrite_damaged',
  'access_damaged',
  'report_damaged',
  'link_keys_damaged',
  'backup_damaged',
  'record_damaged',
  'stream_gap',
  'data_format',
  'broker_refused',
  'broker_unsafe',
  'broker_missing',
  'stream_taken',
  'fenced',
  'lake_protocol',
  'foreign_commit',
  'schema_change',
  'disk',
  'start_failed',
];
/**
 * Errors that no operator reads directly: of a client's request, wrapped into another error with a hint, or impossible.
 */
const inner: readonly (readonly [file: string, part: string])[] = [
  ['reports/job-attempts.ts', 'export request ${id} has ended'],
  ['reports/job-attempts.ts', 'export request ${id} not found'],
  ['runtime/processes/role-process.ts', 'describeError(error)'],
  ['service/broker.ts', 'nats-server has no address'],
  ['service/role-processes.ts', 'while the process started'],
  ['nats-setup/apt-fetch.ts', 'apt did not download'],
  ['nats-setup/ensure-nats-server.ts', 'of the package does not run'],
  ['nats-setup/ensure-nats-server.ts', 'which is too old'],
  ['nats-setup/ensure-nats-server.ts', 'the package has no'],
];

describe('the messages that an operator meets', () => {
  it('A message that an operator meets has a next step unless its cause is temporary', () => {
    expect(errors.length).toBeGreaterThan(100);
    const silent = errors.filter(
      ({ at, code, made }) =>
        needAct.includes(code) &&
        !/\bhint\b/.test(made) &&
        !inner.some(([file, part]) => at === file && made.includes(part)),
    );
    expect(silent.map(({ at, made }) => `${at}: ${made}`)).toEqual([]);
    for (const [file, part] of inner)
      expect(
        errors.some(({ at, made }) => at === file && made.includes(part)),
        `${file}: ${part}`,
      ).toBe(true);
  });

  it('A hint or an action begins with a capital letter and ends with a full stop', () => {
    const hints = errors.flatMap(({ at, made }) =>
      [...made.matchAll(/\bhint: (['"`])(.*?)\1(?=[,\s}])/gs)].map(([, , hint = '']) => ({ at, hint })),
    );
    expect(hints.length).toBeGreaterThan(80);
    expect(hints.filter(({ hint }) => !/^(?:[A-Z'`]|\$\{).*[.:}]$/s.test(hint) && !hint.startsWith('Usage: '))).toEqual(
      [],
    );
    const problems = sources.flatMap(({ name, text }) =>
      [...text.matchAll(/\baction: (['"`])(.*?)\1(?=[,\s}])/gs)].map(([, , action = '']) => ({ name, action })),
    );
    expect(problems.length).toBeGreaterThan(20);
    expect(problems.filter(({ action }) => !/^(?:[A-Z]|\$\{).*[.}]$/s.test(action))).toEqual([]);
  });

  it('A message that an operator meets has the words that are searched for', () => {
    const riddles = /\btold\b|\btells\b|\bin vain\b|\bovertaken\b|is over'|waits'/;
    const calls = sources.flatMap(({ name, text }) =>
      [...text.matchAll(/logger(?:\.\w+|\[[^\]]*\])\(/g)].map((match) => ({
        name,
        words: readArguments(text, match.index + match[0].length).replace(/,?\s*$/, ''),
      })),
    );
    const lines = calls.map(({ name, words }) => ({
      name,
      message: /(['"`])((?:(?!\1).)*)\1$/.exec(words)?.[2] ?? '',
    }));
    expect(lines.length).toBeGreaterThan(60);
    expect(
      [...lines, ...errors.map(({ at, made }) => ({ name: at, message: made }))].filter(({ message }) =>
        riddles.test(message),
      ),
    ).toEqual([]);
  });
});
