import { describe, expect, it } from 'vitest';
import { parseWords } from '../../../src/cli/command.ts';

const options = {
  revoke: { type: 'string' },
  user: { type: 'string', multiple: true },
  yes: { type: 'boolean' },
} as const;
const parse = (...args: string[]) => parseWords(args, ['ID'], options, 'tributary x ID');

describe('the arguments of a command', () => {
  it('The arguments of a command may have a value that begins with a dash, as a token and a client id may', () => {
    expect(parse('7', '--revoke', '-P6ZC3XZ').values.revoke).toBe('-P6ZC3XZ');
    expect(parse('7', '--revoke', '--6T_9c7').values.revoke).toBe('--6T_9c7');
    expect(parse('--revoke=-P6ZC3XZ', '7').values.revoke).toBe('-P6ZC3XZ');
    expect(parse('7', '--user', '-5', '--user', '-6', '--yes').values).toMatchObject({ user: ['-5', '-6'], yes: true });
  });

  it.each([
    ['an option in the place of a value', ['7', '--revoke', '--yes']],
    ['a value that is left out', ['7', '--revoke']],
    ['an option that there is not', ['7', '-P6ZC3XZ']],
    ['a dash after a flag', ['7', '--yes', '-P6ZC3XZ']],
    ['two values of an option that takes one', ['7', '--revoke', 'a', '--revoke=b']],
    ['two data folders', ['7', '--data', 'a', '--data', 'a']],
  ])('The arguments of a command are refused with %s', (_what, args) => {
    expect(() => parse(...args)).toThrow(expect.objectContaining({ code: 'usage' }));
  });

  it('The arguments of a command after -- are left as they are', () => {
    expect(parse('--', '-7').positionals).toEqual(['-7']);
  });
});
