import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { AppError } from '../runtime/errors.ts';
import { openText, sealText } from '../runtime/sealed-text.ts';
import { ensureKey, openKeys } from '../runtime/store/keys.ts';
import type { StoredObject } from '../runtime/store/object-store.ts';
import type { Records } from '../runtime/store/records.ts';

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

const secretsName = 'secrets';

/** Opens the key that user secrets are encrypted under, `keys/secrets.key`. */
function openSecretsKey(keysFolder: string): Records<Buffer> {
  return openKeys(keysFolder, { code: 'access_damaged', what: 'a key', hint: 'Restore it from a backup.' });
}

/** Returns the secrets' key that an object holds; `access_damaged` when it holds none, or is not there. */
export function parseSecretsKey(keysFolder: string, object: StoredObject | undefined): Buffer {
  const keys = openSecretsKey(keysFolder);
  if (object !== undefined) return keys.parse(secretsName, object);
  throw new AppError('access_damaged', `${keys.nameOf(secretsName)} is gone`, {
    hint: 'Restore it from the backup that access.json is of.',
  });
}

/** Reads the secrets' key where one must be; `access_damaged` when it is not there or is no key. */
export async function getSecretsKey(keysFolder: string): Promise<Buffer> {
  return (await openSecretsKey(keysFolder).get(secretsName)) ?? parseSecretsKey(keysFolder, undefined);
}

/** Reads the secrets' key, making it first where there is none. */
export async function ensureSecretsKey(keysFolder: string): Promise<Buffer> {
  return await ensureKey(openSecretsKey(keysFolder), secretsName);
}

const openOperatorToken = (keysFolder: string): Records<Buffer> =>
  openKeys(keysFolder, { code: 'file_damaged', what: "an operator's token", hint: "Run 'tributary key operator'." });

/** Makes a new operator's token, which ends the one before at once, and returns it: it is shown this once. */
export async function renewOperatorToken(keysFolder: string): Promise<string> {
  const token = createToken();
  await openOperatorToken(keysFolder).put('operator', hashToken(token));
  return token;
}

/** Reports whether a text is the operator's token; no text is one before the first was made. */
export async function isOperatorToken(keysFolder: string, text: string): Promise<boolean> {
  const stored = await openOperatorToken(keysFolder).getSound('operator');
  return stored !== undefined && sameHash(hashToken(text), stored);
}
