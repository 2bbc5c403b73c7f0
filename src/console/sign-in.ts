import type { FastifyRequest } from 'fastify';
import type { AccessReader, User } from '../access/access.ts';
import { findUserBySecret } from '../access/authorization.ts';
import type { RememberedBrowsers } from '../access/sessions.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { SignInGuard } from './sign-in-guard.ts';

export interface SignInDependencies {
  readonly access: AccessReader;
  readonly browsers: RememberedBrowsers;
  readonly guard: SignInGuard;
  readonly audit: Pick<AuditLog, 'record'>;
}

/** A rejected sign-in. */
export interface SignInRefusal {
  readonly code: 400 | 401 | 429 | 500;
  readonly detail: string;
  readonly waitSeconds?: number;
}

const retryAfterSeconds = 5;

/** Parses `{"idUser": "1", "secret": "..."}`. */
function parseCredentials(body: unknown): { readonly idUser: string; readonly secret: string } | undefined {
  try {
    const { idUser, secret } = membersOf(JSON.parse(String(body)));
    const isGood = typeof idUser === 'string' && typeof secret === 'string' && /^[1-9]\d{0,14}$/.test(idUser);
    return isGood ? { idUser, secret } : undefined;
  } catch {
    return undefined;
  }
}

/** Creates the check of a sign-in, which the guard delays after wrong secrets. Refusals are audited. */
export function createSignIn({ access, browsers, guard, audit }: SignInDependencies, hasClientAddresses: boolean) {
  return async ({ body, ip, headers }: FastifyRequest): Promise<{ readonly user: User } | SignInRefusal> => {
    const credentials = parseCredentials(body);
    if (credentials === undefined) return { code: 400, detail: 'idUser must be a whole number, and secret a string' };
    const nowMs = performance.now();
    const { idUser, secret } = credentials;
    const who = { idUser, address: ip, browser: browsers.find(idUser, headers.cookie) };
    const address = hasClientAddresses ? ip : undefined;
    const waitSeconds = guard.waitSeconds(who, nowMs);
    if (waitSeconds > 0) {
      await audit.record('sign_in', 'refused', { idUser, address, detail: 'locked' });
      return { code: 429, detail: `Too many wrong secrets: wait ${waitSeconds} s before you try again`, waitSeconds };
    }
    const user = findUserBySecret(idUser, secret, access.current());
    if (user === undefined && access.mayMissUsers())
      return { code: 500, detail: 'The service cannot read its users', waitSeconds: retryAfterSeconds };
    if (user === undefined) {
      guard.fail(who, nowMs);
      await audit.record('sign_in', 'refused', { idUser, address, detail: 'wrong secret' });
      return { code: 401, detail: 'The id or the secret is wrong' };
    }
    guard.succeed(who);
    return { user };
  };
}
