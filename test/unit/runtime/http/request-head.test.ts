import { describe, expect, it } from 'vitest';
import { isHost } from '../../../../src/runtime/http/request-head.ts';

describe('a Host header', () => {
  it.each([
    '',
    'a',
    'localhost',
    'example.com',
    'example.com:',
    'example.com:8081',
    'EXAMPLE.com.',
    'under_score',
    'a-b.c~d',
    '127.0.0.1:80',
    '[::1]',
    '[::1]:8081',
    '[2001:db8::7]',
    '[::ffff:10.0.0.1]:1',
    '[v1.a:b]',
    'caf%C3%A9.example',
    "a!$&'()*+,;=b",
  ])('A Host header may be %j', (host) => {
    expect(isHost(host)).toBe(true);
  });

  it.each([
    ' ',
    ':',
    ':8081',
    'a b',
    'a/b',
    'a\\b',
    'a?b',
    'a#b',
    'user@host',
    'a"b',
    '<a>',
    'a:b',
    'a:1:2',
    'a:99999',
    'a:123456',
    'http://a',
    '::1',
    '[::1',
    '::1]',
    '[::g]',
    '[]',
    '[1.2.3.4]',
    '[::1]x',
    '[::1]:99999',
    'a%',
    'a%zz',
    '\u00e4',
    'a\tb',
    'a'.repeat(256),
  ])('A Host header may not be %j', (host) => {
    expect(isHost(host)).toBe(false);
  });
});
