import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import { AppError } from '../runtime/errors.ts';
import type { AccessPaths } from './access-file.ts';
import { changeUser, toListedUser, type ListedUser } from './users.ts';

/**
 * Personal passwords, for the console only: API calls need the secret. Stored as scrypt hashes with their parameters:
 * `scrypt:<log2 of N>:<r>:<p>:<salt>:<key>`, in base64url.
 */

/** Parameters of new hashes: 32 MiB and about 0.2 s of CPU each. */
const [logN, blockSize, parallelism] = [15, 8, 3];
const keyBytes = 32;
const saltBytes = 16;
const minLength = 12;
const maxLength = 200;

/** Hashes at once, and waiting ones: guesses must not use up the memory and the threads of the process. */
const createQueue = (atOnce: number, maxWaiting: number) => ({
  turns: createKeyedSemaphore(atOnce),
  most: atOnce + maxWaiting,
});
type Queue = ReturnType<typeof createQueue>;
/** Guesses without a stored password must not keep users waiting. */
const [ofUsers, ofOthers] = [createQueue(2, 20), createQueue(1, 5)];

const storedForm = /^scrypt:(1[0-9]|20):(\d{1,2}):(\d{1,2}):([A-Za-z0-9_-]{16,64}):([A-Za-z0-9_-]{43})$/;

/** Returns the one form of a text that keyboards type in several. */
const normalize = (password: string): Buffer => Buffer.from(password.normalize('NFKC'), 'utf8');

/** Derives a key. Error: `overloaded` if too many derivations wait. */
async function derive(
  password: string,
  salt: Buffer,
  options: { readonly N: number; readonly r: number; readonly p: number },
  { turns, most }: Queue = ofUsers,
): Promise<Buffer> {
  if (turns.count() >= most)
    throw new AppError('overloaded', 'too many sign-ins with a password at once', { hint: 'Retry in a few seconds.' });
  const maxmem = 256 * options.N * options.r;
  return await turns.run(
    '',
    () =>
      new Promise<Buffer>((resolve, reject) => {
        scrypt(normalize(password), salt, keyBytes, { ...options, maxmem }, (error, key) =>
          error === null ? resolve(key) : reject(error),
        );
      }),
  );
}

export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(saltBytes);
  const key = await derive(password, salt, { N: 2 ** logN, r: blockSize, p: parallelism });
  return ['scrypt', logN, blockSize, parallelism, salt.toString('base64url'), key.toString('base64url')].join(':');
}

/**
 * Reports whether a password has a stored hash. Without one, it takes the same time, so that a client does not learn who has
 * a password. Error: `overloaded`.
 */
export async function isPassword(password: string, stored: string | undefined): Promise<boolean> {
  if (password.length > maxLength) return false;
  const [, log = logN, r = blockSize, p = parallelism, salt = '', key] = storedForm.exec(stored ?? '') ?? [];
  const options = { N: 2 ** Number(log), r: Number(r), p: Number(p) };
  const queue = stored === undefined ? ofOthers : ofUsers;
  const derived = await derive(password, Buffer.from(salt, 'base64url'), options, queue);
  return key !== undefined && timingSafeEqual(derived, Buffer.from(key, 'base64url'));
}

/** Returns the rule that a new password breaks; undefined for a good one. */
function findPasswordFault(password: string, name: string): string | undefined {
  if (password.length < minLength || password.length > maxLength)
    return `the password must have ${minLength} to ${maxLength} characters`;
  if (/\p{Cc}/u.test(password)) return 'the password must not have control characters';
  const isEasy = new Set(password).size < 5 || password.toLowerCase().includes(name.toLowerCase());
  return isEasy ? 'the password must have five different characters, and not the name of the user' : undefined;
}

/** Creates a random password, which people can read aloud: four groups of five letters and digits, about 100 bits. */
export function createPassword(): string {
  const letters = 'abcdefghjkmnpqrstuvwxyz23456789';
  const chosen: string[] = [];
  while (chosen.length < 20) {
    const [byte = 255] = randomBytes(1);
    // Each letter is equally likely.
    if (byte < letters.length * 8) chosen.push(letters[byte % letters.length] ?? '');
  }
  return [0, 5, 10, 15].map((at) => chosen.slice(at, at + 5).join('')).join('-');
}

/**
 * Sets the password of a user, or removes it; effective within a second. All sessions of the user end. Errors: `usage`
 * for a password that breaks a rule, `not_found`.
 */
export async function setPassword(
  paths: AccessPaths,
  idUser: number,
  password: string | undefined,
): Promise<{ readonly user: ListedUser; readonly passwordHash: string | undefined }> {
  const passwordHash = password === undefined ? undefined : await hashPassword(password);
  const changed = await changeUser(paths, idUser, (user) => {
    const fault = password === undefined ? undefined : findPasswordFault(password, user.name);
    if (fault !== undefined) throw new AppError('usage', fault, { hint: 'Pass another password.' });
    const { passwordHash: _, ...others } = user;
    return passwordHash === undefined ? others : { ...others, passwordHash };
  });
  return { user: toListedUser(changed), passwordHash };
}
