import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { AppError } from '../runtime/errors.ts';
import { decryptText, encryptText } from '../runtime/encrypted-text.ts';
import { ensureKey, openKeys } from '../runtime/store/keys.ts';
import type { StoredObject } from '../runtime/store/object-store.ts';
import type { Records } from '../runtime/store/records.ts';

/** Number of characters of a token that are stored in clear text, to identify it. */
export const tokenPrefixLength = 8;

/** Creates a token or secret: 256 bits, base64url, 43 characters. */
export function createToken(): string {
  // A leading dash would make it look like an option on a command line.
  for (;;) {
    const token = randomBytes(32).toString('base64url');
    if (!token.startsWith('-')) return token;
  }
}

/** Returns the stored form of a token. Tokens have 256 random bits, so that a plain SHA-256 cannot be reversed. */
export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token, 'utf8').digest();
}

export function sameHash(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

export function timingSafeEqualText(a: string, b: string): boolean {
  return sameHash(hashToken(a), hashToken(b));
}

/** Encrypts a secret for the access file, bound to its user. */
export const encryptSecret = encryptText;

/** Decrypts a secret. Errors: `access_damaged` for another key or a changed text. */
export function decryptSecret(key: Uint8Array, sealed: string, owner: string): string {
  try {
    return decryptText(key, sealed, owner);
  } catch (error) {
    throw new AppError('access_damaged', `the secret of user ${owner} cannot be decrypted`, {
      cause: error,
      hint: 'Restore access.json and keys/secrets.key from the same backup.',
    });
  }
}

const secretsName = 'secrets';

function openSecretsKey(keysFolder: string): Records<Buffer> {
  return openKeys(keysFolder, { code: 'access_damaged', what: 'a key', hint: 'Restore it from a backup.' });
}

/** Parses the key of the users' secrets. Errors: `access_damaged` if it is damaged or missing. */
export function parseSecretsKey(keysFolder: string, object: StoredObject | undefined): Buffer {
  const keys = openSecretsKey(keysFolder);
  if (object !== undefined) return keys.parse(secretsName, object);
  throw new AppError('access_damaged', `${keys.nameOf(secretsName)} is missing`, {
    hint: 'Restore it from the same backup as access.json.',
  });
}

export async function getSecretsKey(keysFolder: string): Promise<Buffer> {
  return (await openSecretsKey(keysFolder).get(secretsName)) ?? parseSecretsKey(keysFolder, undefined);
}

export async function ensureSecretsKey(keysFolder: string): Promise<Buffer> {
  return await ensureKey(openSecretsKey(keysFolder), secretsName);
}

const openOperatorToken = (keysFolder: string): Records<Buffer> =>
  openKeys(keysFolder, {
    code: 'file_damaged',
    what: "an operator's token",
    hint: "Run 'tributary key rotate operator'.",
  });

/** Rotates the operator's token and returns the new one, which cannot be shown again. */
export async function rotateOperatorToken(keysFolder: string): Promise<string> {
  const token = createToken();
  await openOperatorToken(keysFolder).put('operator', hashToken(token));
  return token;
}

/** Reports whether a text is the operator's token. */
export async function isOperatorToken(keysFolder: string, text: string): Promise<boolean> {
  const stored = await openOperatorToken(keysFolder).getSound('operator');
  return stored !== undefined && sameHash(hashToken(text), stored);
}
