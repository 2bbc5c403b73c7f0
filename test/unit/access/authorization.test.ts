import { describe, expect, it } from 'vitest';
import type { AccessView, User } from '../../../src/access/access.ts';
import { findCaller, signAuthHmac } from '../../../src/access/authorization.ts';

const user: User = {
  idUser: '77658',
  name: 'client',
  idAccount: 1,
  secret: '72d2erEtbynf6f7ZYTsYKnb7',
  canExport: true,
  maxExports: undefined,
  files: 'auto',
  isOperator: false,
};
const view: AccessView = {
  findApp: () => undefined,
  findAppByToken: () => undefined,
  findUsersByName: () => [],
  hasPasswords: false,
  nameAppOfToken: () => 'none' as const,
  findUser: (id) => (id === user.idUser ? user : undefined),
  appsOfAccount: () => [],
};
const target = '/api/raw/v1/export/get.json?idReport=4';
const vector = 'AuthHMAC 77658:PqrQR8zsgQU9Qcocjp6T6hnjF8Y=';
const received = { method: 'GET', target, host: 'tracker.my.com', body: undefined, authorization: vector };

function basic(text: string): string {
  return `Basic ${Buffer.from(text).toString('base64')}`;
}

describe('AuthHMAC', () => {
  it('The AuthHMAC signature of the known vector matches', () => {
    expect(signAuthHmac(user.secret, 'GET', `https://tracker.my.com${target}`, Buffer.alloc(0))).toBe(
      'PqrQR8zsgQU9Qcocjp6T6hnjF8Y=',
    );
  });

  it('AuthHMAC is accepted under the public address with any Host header', () => {
    expect(findCaller({ ...received, host: '10.0.0.1:8081' }, view, 'https://tracker.my.com')).toBe(user);
    expect(findCaller(received, view, undefined)).toBeUndefined();
  });

  it('AuthHMAC is verified over the URL as received, without re-encoding', () => {
    const odd = '/api/raw/v1/export/create.json?idApp[]=1&idApp%5B%5D=2&selectors=a,b&eventName=%D0%BB+x%20y';
    const body = Buffer.from('a=b&c=\u00e9', 'utf8');
    const authorization = `AuthHMAC 77658:${signAuthHmac(user.secret, 'POST', `http://localhost:8081${odd}`, body)}`;
    expect(
      findCaller({ method: 'POST', target: odd, host: 'localhost:8081', body, authorization }, view, undefined),
    ).toBe(user);
    expect(
      findCaller(
        { method: 'POST', target: odd.replace('[]', '%5B%5D'), host: 'localhost:8081', body, authorization },
        view,
        undefined,
      ),
    ).toBeUndefined();
    expect(
      findCaller(
        { method: 'POST', target: odd, host: 'localhost:8081', body: Buffer.from('a=c'), authorization },
        view,
        undefined,
      ),
    ).toBeUndefined();
  });

  it.each([
    ['another method', { method: 'POST' }],
    ['another target', { target: `${target}1` }],
    ['another user', { authorization: vector.replace('77658', '77659') }],
    ['a signature in another spelling', { authorization: `${vector}=` }],
    ['a changed signature', { authorization: vector.replace('Pqr', 'Pqs') }],
    ['an empty signature', { authorization: 'AuthHMAC 77658:' }],
    ['a user id with a sign', { authorization: vector.replace('77658', '+77658') }],
  ])('AuthHMAC is rejected with %s', (_what, change) => {
    expect(findCaller({ ...received, ...change }, view, 'https://tracker.my.com')).toBeUndefined();
  });
});

describe('HTTP Basic', () => {
  it('HTTP Basic is accepted with id and secret', () => {
    expect(findCaller({ ...received, authorization: basic(`77658:${user.secret}`) }, view, undefined)).toBe(user);
  });

  it.each([
    undefined,
    '',
    'Basic',
    'Basic !!!!',
    basic('77658'),
    basic('77658:'),
    basic(`77658:${user.secret} `),
    basic(`77659:${user.secret}`),
    basic(`077658:${user.secret}`),
    basic(':'),
    basic('77658:no user has this secret'),
    `Bearer ${user.secret}`,
  ])('HTTP Basic is rejected as %s', (authorization) => {
    expect(findCaller({ ...received, authorization }, view, undefined)).toBeUndefined();
  });
});
