import { describe, expect, it } from 'vitest';
import { parseNatsUrl } from '../../../../src/runtime/processes/nats-url.ts';

describe('the addresses of a NATS cluster', () => {
  it('The addresses of a NATS cluster may be one, without credentials', () => {
    expect(parseNatsUrl('nats://10.0.0.1:4222')).toEqual({
      hosts: ['10.0.0.1:4222'],
      tls: false,
      user: undefined,
      password: undefined,
      token: undefined,
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
    });
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
