import { createPublicKey, type KeyObject } from 'node:crypto';

/** The public half of an Ed25519 key: its 32 bytes, 64 lower-case hex digits. */
export function publicKeyHex(key: KeyObject): string {
  return Buffer.from(createPublicKey(key).export({ format: 'jwk' }).x ?? '', 'base64url').toString('hex');
}

/** The public Ed25519 key of 64 hex digits. */
export function toPublicKey(hex: string): KeyObject {
  const x = Buffer.from(hex, 'hex').toString('base64url');
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
}
