import { describe, expect, it } from 'vitest';
import { addNatsFiles, parseNatsUrl } from '../../../../src/runtime/processes/nats-url.ts';

describe('the addresses of a NATS cluster', () => {
  it('The addresses of a NATS cluster may be one, without credentials', () => {
    expect(parseNatsUrl('nats://10.0.0.1:4222')).toEqual({
      hosts: ['10.0.0.1:4222'],
      tls: false,
      user: undefined,
      password: undefined,
      token: undefined,
      files: {},
    });
  });

  it('The addresses of a NATS cluster may be several, with the credentials in any of them', () => {
    const servers = parseNatsUrl('tls://one, tls://ann:a%40b%2C@two:4223,tls://[::1]:4224/');
    expect(servers).toEqual({
      hosts: ['one', 'two:4223', '[::1]:4224'],
      tls: true,
      user: 'ann',
      password: 'a@b,',
      token: undefined,
      files: {},
    });
  });

  it('The addresses of a NATS cluster may lack the scheme after the first, as in the tools of NATS', () => {
    expect(parseNatsUrl('tls://ann:word@a,b:4223,c')).toMatchObject({
      hosts: ['a', 'b:4223', 'c'],
      tls: true,
      user: 'ann',
      password: 'word',
    });
  });

  it('The addresses of a NATS cluster carry the files of its clients', () => {
    const files = { credentials: '/etc/one & two.creds', ca: '/etc/ca.pem', cert: undefined, key: undefined };
    const text = addNatsFiles('nats://a,b', files);
    expect(parseNatsUrl(text)).toMatchObject({
      hosts: ['a', 'b'],
      files: { credentials: files.credentials, ca: files.ca },
    });
    expect(addNatsFiles(text, files)).toBe(text);
    expect(parseNatsUrl('nats://a?other=1')).toHaveProperty('problem');
  });

  it('The addresses of a NATS cluster may name a token', () => {
    expect(parseNatsUrl('nats://t0ken@one')).toMatchObject({ user: undefined, token: 't0ken' });
  });

  it.each([
    ['', 'must be addresses'],
    ['one:4222', 'must be addresses'],
    ['nats://', 'must be addresses'],
    ['nats://one,', 'must be addresses'],
    ['http://one', 'must be addresses'],
    ['nats://one,tls://two', 'must not mix'],
    ['nats://a:b@one,nats://a:c@two', 'the same user'],
    ['nats://ann:12#3@one', 'in a password as %2F'],
    ['nats://one/path', 'must end each address'],
    ['nats://ann:100%@one', '%25'],
  ])('The addresses of a NATS cluster are refused as %j', (text, problem) => {
    expect(parseNatsUrl(text)).toEqual({ problem: expect.stringContaining(problem) });
  });
});
