import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import path from 'node:path';
import { createExclusive, ensureFolder } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import { openText, sealKeyBytes, sealText } from '../runtime/sealed-text.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';

/** Characters of a token that stay readable, so that the operator can name one to revoke. */
export const tokenPrefixLength = 8;

/** Creates a token or secret: 256 bits, base64url, 43 characters. */
export function createToken(): string {
  // One that begins with a dash looks like an option wherever it, or its prefix, is a word of a command.
  for (;;) {
    const token = randomBytes(32).toString('base64url');
    if (!token.startsWith('-')) return token;
  }
}

/** Hash under which a token rests. Tokens carry 256 random bits, so a plain SHA-256 cannot be searched. */
export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token, 'utf8').digest();
}

/** Compares two token hashes in constant time. */
export function sameHash(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Compares texts in a time that does not depend on either. */
export function sameText(a: string, b: string): boolean {
  return sameHash(hashToken(a), hashToken(b));
}

/** Encrypts a secret for the access file. `owner` binds it to its user. */
export const sealSecret = sealText;

/** Opens what `sealSecret` closed; `access_damaged` when the key is another one or the text was changed. */
export function openSecret(key: Uint8Array, sealed: string, owner: string): string {
  try {
    return openText(key, sealed, owner);
  } catch (error) {
    throw new AppError('access_damaged', `the secret of user ${owner} cannot be decrypted`, {
      cause: error,
      hint: 'Restore access.json and keys/secrets.key from the same backup.',
    });
  }
}

/** Path of the key that user secrets are encrypted under. */
export function secretsKeyPath(keysFolder: string): string {
  return path.join(keysFolder, 'secrets.key');
}

/** Reads the key that user secrets are encrypted under; undefined when none was made yet. */
function findSecretsKey(keysFolder: string): Buffer | undefined {
  const text = findTextFileSync(secretsKeyPath(keysFolder));
  if (text === undefined) return undefined;
  const key = Buffer.from(text.trim(), 'hex');
  if (key.length !== sealKeyBytes)
    throw new AppError('access_damaged', `${secretsKeyPath(keysFolder)} is not a key`, {
      hint: 'Restore it from a backup.',
    });
  return key;
}

/** Reads the secrets' key where one must be; `access_damaged` when it is not there or is no key. */
export function getSecretsKey(keysFolder: string): Buffer {
  const key = findSecretsKey(keysFolder);
  if (key === undefined)
    throw new AppError('access_damaged', `${secretsKeyPath(keysFolder)} is gone`, {
      hint: 'Restore it from the backup that access.json is of.',
    });
  return key;
}

/**
 * Reads the secrets' key, making it first where there is none. Two makers at once end with one key: link(2) decides.
 */
export async function ensureSecretsKey(keysFolder: string): Promise<Buffer> {
  const found = findSecretsKey(keysFolder);
  if (found !== undefined) return found;
  await ensureFolder(keysFolder);
  await createExclusive(secretsKeyPath(keysFolder), `${randomBytes(sealKeyBytes).toString('hex')}\n`);
  return getSecretsKey(keysFolder);
}
