import { describe, expect, it } from 'vitest';
import { parseArguments, quote, type Arguments } from '../../../../src/export/api/arguments.ts';
import { isApiError } from '../../../../src/export/api/envelope.ts';

function parse(target: string, body?: string | Buffer): Record<string, readonly string[]> {
  const given = parseArguments(target, body === undefined ? undefined : Buffer.from(body as string));
  if (isApiError(given)) throw new Error(given.detail);
  return Object.fromEntries(given);
}

describe('the arguments of a call', () => {
  it.each([
    ['/x?k=1&k=2', { k: ['1', '2'] }],
    ['/x?k[]=1&k[]=2', { k: ['1', '2'] }],
    ['/x?k%5B%5D=1&k%5B0%5D=2', { k: ['1', '2'] }],
    ['/x?k[0]=1&k[17]=2&k=3', { k: ['1', '2', '3'] }],
    ['/x?k=a,b', { k: ['a,b'] }],
    ['/x?k=a=b', { k: ['a=b'] }],
    ['/x?k', { k: [''] }],
    ['/x?k=', { k: [''] }],
    ['/x?&&k=1&', { k: ['1'] }],
    ['/x?k=a+b%20c%2Bd', { k: ['a b c+d'] }],
    ['/x?k=1?2', { k: ['1?2'] }],
    ['/x?k[x]=1', { 'k[x]': ['1'] }],
    ['/x?', {}],
    ['/x', {}],
  ])('The arguments of %s are parsed by their names', (target, expected) => {
    expect(parse(target)).toEqual(expected);
  });

  it('The arguments of a call are those of the query and then those of the body', () => {
    expect(parse('/x?a=1&b=2', 'a=3&c=4')).toEqual({ a: ['1', '3'], b: ['2'], c: ['4'] });
  });

  it('The arguments of a call may hold UTF-8 as it is, in the query and in the body', () => {
    expect(parse(Buffer.from('/x?k=\u043b', 'utf8').toString('latin1'), 'k=\u65e5')).toEqual({
      k: ['\u043b', '\u65e5'],
    });
  });

  it('The arguments of a call keep names such as __proto__ as names', () => {
    const given = parseArguments('/x?__proto__=1&constructor=2', undefined) as Arguments;
    expect([given.get('__proto__'), given.get('constructor')]).toEqual([['1'], ['2']]);
  });

  it.each([
    ['/x?k=%', undefined],
    ['/x?k=%ff', undefined],
    ['/x?%zz=1', undefined],
    ['/x?k=%ED%A0%80', undefined],
    ['/x', Buffer.from([0x6b, 0x3d, 0xff])],
  ])('The arguments of a call are refused as %s', (target, body) => {
    expect(parseArguments(target, body)).toMatchObject({ code: 400 });
  });

  it.each(['{}', 'null', ' [ ]\r\n', '\ufeff{ }', '""', ''])(
    'The empty body %j, which some HTTP libraries send, counts as no body',
    (body) => {
      expect(parse('/x?a=1', body)).toEqual({ a: ['1'] });
    },
  );

  it.each([
    ['JSON', '{"event":"logins"}'],
    ['JSON', '\n[1]'],
    ['JSON', '"event=logins"'],
    ['multipart/form-data', '--b\r\nContent-Disposition: form-data; name="event"\r\n\r\nlogins\r\n--b--\r\n'],
    ['multipart/form-data', '--b\r\n--b--\r\n'],
  ])('A body of %s is refused with what to send instead: %j', (what, body) => {
    const detail = `The body is ${what}: send a form (application/x-www-form-urlencoded) or the query`;
    expect(parseArguments('/x?event=logins', Buffer.from(body))).toMatchObject({ code: 400, detail });
  });

  it('A refusal shows arguments quoted, escaped and truncated', () => {
    expect(quote('a"b\n')).toBe('"a\\"b\\n"');
    expect(quote('\u{1F3AE}'.repeat(200))).toBe(`"${'\u{1F3AE}'.repeat(100)}..."`);
  });
});
