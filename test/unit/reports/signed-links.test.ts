import path from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  parseLink,
  signLink,
  type FindSecretFingerprint,
  type SigningKey,
  type SigningKeys,
} from '../../../src/reports/signed-links.ts';
import { isWhole } from '../../helpers/in-turn.ts';
import { changedLinks, isSameLink } from '../../helpers/link-mutations.ts';

const newest: SigningKey = { kid: '0badcafe', secret: Buffer.alloc(32, 7) };
const older: SigningKey = { kid: 'deadbeef', secret: Buffer.alloc(32, 9) };

function keysOf(...keys: readonly SigningKey[]): SigningKeys {
  return {
    current: () => keys.at(-1) ?? newest,
    find: (kid) => keys.find((key) => key.kid === kid),
    isReadable: () => true,
    problems: () => [],
    close: () => undefined,
  };
}

const keys = keysOf(older, newest);
const target = {
  id: 42,
  name: '42.customEvents.0123456789abcdef0123456789abcdef.1.csv.gz',
  expiresSeconds: 1_800_000_000,
};
const nowMs = 1_799_999_000_000;
const link = signLink(keys, target);
const holder = { idUser: '7', secretFingerprint: 'mark of 7' };
const held = { ...target, holder };
const ownLink = signLink(keys, held);
const given = [
  link,
  signLink(keysOf(older), { ...target, id: 43 }),
  ownLink,
  signLink(keys, { ...target, holder: { idUser: '8', secretFingerprint: 'mark of 8' } }),
];
const findSecretFingerprint: FindSecretFingerprint = (idUser) => ({ 7: 'mark of 7', 8: 'mark of 8' })[idUser];

describe('a signed link', () => {
  it('A signed link leads to its file until its end, to the second', () => {
    expect(parseLink(keys, link, nowMs, findSecretFingerprint)).toEqual(target);
    expect(parseLink(keys, link, target.expiresSeconds * 1000 - 1, findSecretFingerprint)).toEqual(target);
    expect(parseLink(keys, link, target.expiresSeconds * 1000, findSecretFingerprint)).toBeUndefined();
  });

  it('A signed link is not accepted in any changed form', () => {
    fc.assert(
      fc.property(changedLinks(given), ({ text }) => {
        fc.pre(!given.some((known) => isSameLink(text, known)));
        expect(parseLink(keys, text, nowMs, findSecretFingerprint)).toBeUndefined();
      }),
      { numRuns: isWhole ? 3000 : 1000, seed: 20_251_121 },
    );
  });

  it('A link has sorted parameters and the ending of its file, and is accepted in any order of parameters', () => {
    for (const one of [link, ownLink, signLink(keys, { ...held, name: '42.customEvents.zip' })]) {
      const [file = '', query = ''] = one.split('?');
      const pairs = query.split('&');
      expect(pairs).toEqual(pairs.toSorted());
      expect(path.extname(one)).toBe(path.extname(file));
      const expected = parseLink(keys, one, nowMs, findSecretFingerprint);
      expect(expected).toMatchObject({ id: 42 });
      const [first = '', second = '', ...others] = pairs;
      const asIn03 = [first, second, ...others.slice(1, -1), others[0]];
      for (const order of [pairs.toReversed(), [...others, first, second], asIn03]) {
        expect(parseLink(keys, `${file}?${order.join('&')}`, nowMs, findSecretFingerprint)).toEqual(expected);
        expect(parseLink(keys, `${file}?${[...order, first].join('&')}`, nowMs, findSecretFingerprint)).toBeUndefined();
      }
      expect(
        parseLink(keys, one.replace(/x-ending=\.\w+/, 'x-ending=.csv'), nowMs, findSecretFingerprint),
      ).toBeUndefined();
    }
  });

  it('A random text is not accepted as a signed link', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(parseLink(keys, text, nowMs, findSecretFingerprint)).toBeUndefined();
        expect(parseLink(keys, `/files/${text}`, nowMs, findSecretFingerprint)).toBeUndefined();
      }),
      { numRuns: isWhole ? 5000 : 1500, seed: 5 },
    );
  });

  it('A link signed with a retired key is accepted as long as the key is kept', () => {
    const old = signLink(keysOf(older), target);
    expect(parseLink(keys, old, nowMs, findSecretFingerprint)).toEqual(target);
    expect(parseLink(keysOf(newest), old, nowMs, findSecretFingerprint)).toBeUndefined();
  });

  it("A link ends with its user and with the user's secret", () => {
    expect(ownLink).toContain('&user=7&');
    expect(parseLink(keys, ownLink, nowMs, findSecretFingerprint)).toEqual(held);
    expect(parseLink(keys, ownLink, nowMs, () => undefined)).toBeUndefined();
    expect(parseLink(keys, ownLink, nowMs, () => 'mark under another secret')).toBeUndefined();
    // The id of another user, of an unknown user, and none.
    for (const changed of ['&user=8', '&user=70', ''])
      expect(parseLink(keys, ownLink.replace('&user=7', changed), nowMs, findSecretFingerprint)).toBeUndefined();
    expect(
      parseLink(
        keys,
        signLink(keys, { ...target, holder: { idUser: '7', secretFingerprint: '' } }),
        nowMs,
        () => undefined,
      ),
    ).toBeUndefined();
  });

  it('A signed link of every id and name leads to exactly that file', () => {
    const names = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$/);
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2 ** 45 }),
        names,
        fc.integer({ min: 1_800_000_000, max: 4_000_000_000 }),
        (id, name, expiresSeconds) => {
          expect(parseLink(keys, signLink(keys, { id, name, expiresSeconds }), nowMs, findSecretFingerprint)).toEqual({
            id,
            name,
            expiresSeconds,
          });
        },
      ),
    );
  });
});
