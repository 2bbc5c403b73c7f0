import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseLink, signLink } from '../../../src/reports/signed-links.ts';
import type { SigningKey, SigningKeys } from '../../../src/reports/signing-keys.ts';

const newest: SigningKey = { kid: '0badcafe', secret: Buffer.alloc(32, 7) };
const older: SigningKey = { kid: 'deadbeef', secret: Buffer.alloc(32, 9) };

function keysOf(...keys: readonly SigningKey[]): SigningKeys {
  return { current: () => keys.at(-1) ?? newest, find: (kid) => keys.find((key) => key.kid === kid), close: () => undefined };
}

const keys = keysOf(older, newest);
const target = { id: 42, name: '42.customEvents.0123456789abcdef0123456789abcdef.1.csv.gz', expiresSeconds: 1_800_000_000 };
const nowMs = 1_799_999_000_000;
const link = signLink(keys, target);
const alphabet = Array.from('/?=&%.-_0123456789abcdefABCDEFghijklmnopqrstuvwxyz +#~;:@\u0000\n');

/** Ways in which a link can be changed: each gives a text that differs from it. */
const mutations = fc.oneof(
  fc.tuple(fc.nat(link.length - 1), fc.constantFrom(...alphabet)).map(([at, character]) => link.slice(0, at) + character + link.slice(at + 1)),
  fc.tuple(fc.nat(link.length), fc.constantFrom(...alphabet)).map(([at, character]) => link.slice(0, at) + character + link.slice(at)),
  fc.nat(link.length - 1).map((at) => link.slice(0, at) + link.slice(at + 1)),
  fc.tuple(fc.nat(link.length - 1), fc.nat(link.length - 1)).map(([from, to]) => link.slice(0, Math.min(from, to)) + link.slice(Math.max(from, to) + 1)),
  fc.tuple(fc.nat(target.name.length - 1), fc.nat(40)).map(([at, length]) => link.replace(target.name.slice(at, at + length) || '1', '')),
  fc.integer({ min: 0, max: 2 ** 40 }).map((seconds) => link.replace(/expires=\d+/, `expires=${seconds}`)),
  fc.integer({ min: 0, max: 2 ** 50 }).map((id) => link.replace('/files/42/', `/files/${id}/`)),
  fc.constantFrom(older.kid, newest.kid.toUpperCase(), '00000000', '', '../x').map((kid) => link.replace(newest.kid, kid)),
  fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => link.replace(/[0-9a-f]{64}$/, Buffer.from(bytes).toString('hex'))),
  fc.constantFrom('expires', 'kid', 'signature').chain((name) => fc.constantFrom(`&${name}=1`, `&${name}=`, `&${name}[]=1`, '&x=1', '#', '&').map((extra) => link + extra)),
  fc.constant(link.replace(/[0-9a-f]{64}$/, (signature) => signature.toUpperCase())),
  fc.shuffledSubarray(link.split('?')[1]?.split('&') ?? [], { minLength: 0, maxLength: 3 }).map((parts) => `${link.split('?')[0]}?${parts.join('&')}`),
  fc.nat(link.length - 1).map((at) => `${link.slice(0, at)}%${link.charCodeAt(at).toString(16)}${link.slice(at + 1)}`),
);

describe('a signed link', () => {
  it('leads to its file until its end, to the second', () => {
    expect(parseLink(keys, link, nowMs)).toEqual(target);
    expect(parseLink(keys, link, target.expiresSeconds * 1000 - 1)).toEqual(target);
    expect(parseLink(keys, link, target.expiresSeconds * 1000)).toBeUndefined();
  });

  it('is not accepted in any of 100,000 changed forms', () => {
    fc.assert(
      fc.property(mutations, (changed) => {
        fc.pre(changed !== link);
        expect(parseLink(keys, changed, nowMs)).toBeUndefined();
      }),
      { numRuns: 100_000, seed: 20_251_121 },
    );
  });

  it('is not accepted when it is anything at all', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(parseLink(keys, text, nowMs)).toBeUndefined();
        expect(parseLink(keys, `/files/${text}`, nowMs)).toBeUndefined();
      }),
      { numRuns: 5000, seed: 5 },
    );
  });

  it('signed with a retired key is accepted as long as the key is kept', () => {
    const old = signLink(keysOf(older), target);
    expect(parseLink(keys, old, nowMs)).toEqual(target);
    expect(parseLink(keysOf(newest), old, nowMs)).toBeUndefined();
  });

  it('of every id and name leads to just that', () => {
    const names = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$/);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 45 }), names, fc.integer({ min: 1_800_000_000, max: 4_000_000_000 }), (id, name, expiresSeconds) => {
        expect(parseLink(keys, signLink(keys, { id, name, expiresSeconds }), nowMs)).toEqual({ id, name, expiresSeconds });
      }),
    );
  });
});
