import type { AccessReader, AccessView, User } from '../access/access.ts';
import { findUserBySecret } from '../access/authorization.ts';
import { isPassword } from '../access/passwords.ts';
import type { RememberedBrowsers } from '../access/sessions.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { createKeyedSemaphore } from '../runtime/async/semaphore.ts';
import { isAppError } from '../runtime/errors.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { SignInGuard } from './sign-in-guard.ts';

export interface SignInDependencies {
  readonly access: AccessReader;
  readonly browsers: RememberedBrowsers;
  readonly guard: SignInGuard;
  readonly audit: Pick<AuditLog, 'record'>;
}

/** A request with credentials in its body. */
interface SignInRequest {
  readonly body: unknown;
  readonly ip: string;
  readonly headers: { readonly cookie?: string | undefined };
}

/** A rejected sign-in. */
export interface SignInRefusal {
  readonly code: 400 | 401 | 403 | 429 | 500;
  readonly detail: string;
  readonly waitSeconds?: number;
}

const retryAfterSeconds = 5;

/** Longest user or password of a sign-in, characters. */
const maxTextLength = 300;

interface Credentials {
  /** A user id, a name, or `NAME@ACCOUNT`. */
  readonly login: string;
  /** A secret or a password. */
  readonly secret: string;
}

/** Parses `{"idUser": "ann", "secret": "..."}`. */
function parseCredentials(body: unknown): Credentials | undefined {
  try {
    const { idUser: login, secret } = membersOf(JSON.parse(String(body)));
    const isGood = [login, secret].every(
      (text) => typeof text === 'string' && text !== '' && text.length <= maxTextLength,
    );
    return isGood ? { login: String(login), secret: String(secret) } : undefined;
  } catch {
    return undefined;
  }
}

/** Finds the users that a login may mean. */
function findCandidates(login: string, access: AccessView): readonly User[] {
  const byId = /^[1-9]\d{0,14}$/.test(login) ? access.findUser(login) : undefined;
  const [, name = '', account] = /^(.+)@(\d{1,15})$/.exec(login) ?? [];
  const found = [
    ...(byId === undefined ? [] : [byId]),
    ...access.findUsersByName(login),
    ...(account === undefined ? [] : access.findUsersByName(name, Number(account))),
  ];
  return found.filter((user, at) => found.findIndex(({ idUser }) => idUser === user.idUser) === at);
}

/** Returns the key of guesses: the id of the user if it is known, so that those by each of its names count together. */
const keyOf = (login: string, candidates: readonly User[]): string =>
  candidates.length === 1 ? (candidates[0]?.idUser ?? login) : login;

/**
 * Returns the users whose secret or password it is. Secrets are compared first, without the cost of a password. Takes
 * the time of a password also without a user, if any user has one. Error: `overloaded`.
 */
async function matchUsers(candidates: readonly User[], secret: string, access: AccessView): Promise<readonly User[]> {
  const bySecret = candidates.filter(({ idUser }) => findUserBySecret(idUser, secret, access) !== undefined);
  if (bySecret.length > 0 || !access.hasPasswords) return bySecret;
  const withPassword = candidates.filter(({ passwordHash }) => passwordHash !== undefined);
  if (withPassword.length === 0) await isPassword(secret, undefined);
  const matches: User[] = [];
  for (const user of withPassword) if (await isPassword(secret, user.passwordHash)) matches.push(user);
  return matches;
}

/** Creates the check of a sign-in, which the guard delays after wrong secrets. Refusals are audited. */
export function createSignIn({ access, browsers, guard, audit }: SignInDependencies, hasClientAddresses: boolean) {
  // One guess at a time per user: the guard counts it before the next one.
  const turns = createKeyedSemaphore();

  async function check(
    { login, secret }: Credentials,
    { ip, headers }: SignInRequest,
  ): Promise<{ readonly user: User } | SignInRefusal> {
    const nowMs = performance.now();
    const candidates = findCandidates(login, access.current());
    const key = keyOf(login, candidates);
    // Nobody's name may be a password that was typed into the wrong field.
    const idUser = candidates.length === 0 ? 'unknown' : key;
    const who = { key, idUser, address: ip, browser: browsers.find(key, headers.cookie) };
    const address = hasClientAddresses ? ip : undefined;
    const waitSeconds = guard.waitSeconds(who, nowMs);
    if (waitSeconds > 0) {
      await audit.record('sign_in', 'refused', { idUser, address, detail: 'locked' });
      return { code: 429, detail: `Too many wrong secrets: wait ${waitSeconds} s before you try again`, waitSeconds };
    }
    const matches = await matchUsers(candidates, secret, access.current());
    const [user] = matches;
    if (user === undefined && access.mayMissUsers())
      return { code: 500, detail: 'The service cannot read its users', waitSeconds: retryAfterSeconds };
    if (user === undefined) {
      guard.fail(who, nowMs);
      await audit.record('sign_in', 'refused', { idUser, address, detail: 'wrong secret' });
      return { code: 401, detail: 'The user or the secret is wrong' };
    }
    if (matches.length > 1)
      return { code: 400, detail: `Several accounts have a user of this name: sign in as ${login}@ACCOUNT` };
    guard.succeed(who);
    return { user };
  }

  return async (request: SignInRequest): Promise<{ readonly user: User } | SignInRefusal> => {
    const credentials = parseCredentials(request.body);
    if (credentials === undefined)
      return { code: 400, detail: 'idUser must be a user id or a name, and secret a secret or a password' };
    try {
      const { login } = credentials;
      const key = keyOf(login, findCandidates(login, access.current()));
      return await turns.run(key, () => check(credentials, request));
    } catch (error) {
      if (!isAppError(error, 'overloaded')) throw error;
      return { code: 429, detail: 'Too many sign-ins at once', waitSeconds: retryAfterSeconds };
    }
  };
}
