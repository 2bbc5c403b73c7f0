import { createCipheriv, createDecipheriv, randomBytes, createPublicKey, type KeyObject } from 'node:crypto';

const ivBytes = 12;
const tagBytes = 16;

/**
 * Encrypts a text for a file: AES-256-GCM, base64 of IV, tag and ciphertext. `owner` binds it to whose it is: with
 * another one it does not open.
 */
export function sealText(key: Uint8Array, text: string, owner: string): string {
  const iv = randomBytes(ivBytes);
  const cipher = createCipheriv('aes-256-gcm', key, iv).setAAD(Buffer.from(owner));
  const data = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
  return Buffer.concat([iv, cipher.getAuthTag(), data]).toString('base64');
}

/** Opens what `sealText` closed. Throws where the key or the owner is another one, or the text was changed. */
export function openText(key: Uint8Array, sealed: string, owner: string): string {
  const bytes = Buffer.from(sealed, 'base64');
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, ivBytes), { authTagLength: tagBytes });
  decipher.setAAD(Buffer.from(owner)).setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
  return Buffer.concat([decipher.update(bytes.subarray(ivBytes + tagBytes)), decipher.final()]).toString('utf8');
}

/** The public half of an Ed25519 key: its 32 bytes, 64 lower-case hex digits. */
export function publicKeyHex(key: KeyObject): string {
  return Buffer.from(createPublicKey(key).export({ format: 'jwk' }).x ?? '', 'base64url').toString('hex');
}

/** The public Ed25519 key of 64 hex digits. */
export function toPublicKey(hex: string): KeyObject {
  const x = Buffer.from(hex, 'hex').toString('base64url');
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
}
