import type * as Crypto from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import type { AccessView, User } from '../../../src/access/access.ts';
import { hashToken, sameHash } from '../../../src/access/secrets.ts';
import { findCaller, type ReceivedRequest } from '../../../src/access/authorization.ts';

const work: string[] = [];

/** Records a cryptographic operation. */
function noted<T extends (...given: never[]) => unknown>(name: string, step: T): T {
  return ((...given: never[]) => (work.push(name), step(...given))) as T;
}

// The response time depends on these operations only.
vi.mock('node:crypto', async (importOriginal) => {
  const crypto = await importOriginal<typeof Crypto>();
  return {
    ...crypto,
    createHash: noted('hash', crypto.createHash),
    createHmac: noted('hmac', crypto.createHmac),
    timingSafeEqual: noted('compare', crypto.timingSafeEqual),
  };
});

const user: User = {
  idUser: '7',
  name: 'analyst',
  idAccount: 1,
  secret: 'secret-of-seven',
  canExport: true,
  maxExports: undefined,
  files: 'auto',
  isOperator: false,
};
const view = { findUser: (idUser: string) => (idUser === user.idUser ? user : undefined) } as AccessView;
const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;
const signature = `${'A'.repeat(27)}=`;

/** Lists the cryptographic operations for an Authorization header. */
function stepsFor(authorization: string, publicUrl?: string): string[] {
  const request: ReceivedRequest = {
    method: 'GET',
    target: '/x?y=1',
    host: 'a',
    body: Buffer.from('b'),
    authorization,
  };
  work.length = 0;
  findCaller(request, view, publicUrl);
  return [...work];
}

describe('the work of refusing a caller', () => {
  it.each([
    ['HTTP Basic', basic('7:wrong'), basic('8:wrong'), basic('7:secret-of-seven')],
    ['AuthHMAC', `AuthHMAC 7:${signature}`, `AuthHMAC 8:${signature}`, `AuthHMAC 7:${'B'.repeat(27)}=`],
  ])('The work of %s is the same for an unknown id, a wrong and a right secret', (_scheme, wrong, unknown, right) => {
    for (const publicUrl of [undefined, 'https://a.example']) {
      expect(stepsFor(wrong, publicUrl)).toContain('compare');
      expect(stepsFor(unknown, publicUrl)).toEqual(stepsFor(wrong, publicUrl));
      expect(stepsFor(right, publicUrl)).toEqual(stepsFor(wrong, publicUrl));
    }
  });

  it('Rejecting an import token compares hashes, independent of where they differ', () => {
    work.length = 0;
    expect(sameHash(hashToken('one'), hashToken('two'))).toBe(false);
    expect(work).toEqual(['hash', 'hash', 'compare']);
  });
});
