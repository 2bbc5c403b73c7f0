import { createHmac } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AccessReader, User } from '../access/access.ts';
import { findCookie, type RememberedBrowsers, type Sessions } from '../access/sessions.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { createQuotaCounter } from '../runtime/async/rate-limits.ts';
import { pause } from '../runtime/async/retry.ts';
import { decryptText, encryptText } from '../runtime/encrypted-text.ts';
import { describeError } from '../runtime/errors.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { Logger } from '../runtime/logger.ts';
import { createRateLimitedLog, failureBound } from '../runtime/problems/rate-limited-log.ts';
import { createCookies } from './session-routes.ts';
import type { OidcAttempt, OidcClient, OidcSettings } from './oidc-client.ts';

export interface OidcRouteDependencies {
  readonly access: AccessReader;
  readonly sessions: Sessions;
  readonly browsers: RememberedBrowsers;
  readonly audit: Pick<AuditLog, 'record'>;
  readonly client: OidcClient;
  readonly logger: Logger;
  /** The current key of sessions, from which that of attempts is derived. */
  readonly key: () => Buffer;
  /** Whether the key of sessions is readable; otherwise sessions cannot be used. */
  readonly isReady: () => boolean;
  /** Adds a user, and returns the id. Called only if the settings name an account for unknown users. */
  readonly addUser: (name: string, idAccount: number) => Promise<string>;
}

interface OidcRouteOptions extends Pick<OidcSettings, 'claim' | 'newUsersAccount'> {
  readonly isSecure: boolean;
  readonly hasClientAddresses: boolean;
}

/** Reasons for which a sign-in fails, which the page shows. */
type Failure = 'provider' | 'expired' | 'unknown' | 'unverified' | 'ambiguous' | 'often';

const path = '/console/oidc';
const cookieName = 'tributary_oidc';
/** Time for a sign-in at the provider, s. */
const attemptSeconds = 600;
const owner = 'oidc attempt';
const maxNameLength = 100;
/** Each sign-in makes requests to the provider. */
const quotas = [{ limit: 30, windowMs: 60_000 }];
/** Time in which this process sees a new user, ms. */
const visibleMs = 5000;
const pollIntervalMs = 50;

/** Returns the name of the user in the claims, or why there is none. */
function readName(claims: Readonly<Record<string, unknown>>, claim: string): { readonly name: string } | Failure {
  const { [claim]: value, email_verified: isVerified } = claims;
  if (typeof value !== 'string' || value === '' || value.length > maxNameLength) return 'unknown';
  // A person who can enter any address at the provider could be any user.
  if (claim === 'email' && isVerified !== true) return 'unverified';
  return { name: value };
}

/** Creates the cookie that holds an attempt, encrypted. The provider's redirect must carry it: SameSite=Lax. */
function createAttemptCookie(key: () => Buffer, isSecure: boolean) {
  const derive = (): Buffer => createHmac('sha256', key()).update(owner).digest();
  const rules = `Path=${path}; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`;
  return {
    set(reply: FastifyReply, attempt: OidcAttempt): void {
      const text = JSON.stringify({ ...attempt, endsMs: Date.now() + attemptSeconds * 1000 });
      const value = Buffer.from(encryptText(derive(), text, owner), 'base64').toString('base64url');
      reply.header('set-cookie', `${cookieName}=${value}; ${rules}; Max-Age=${attemptSeconds}`);
    },
    clear: (reply: FastifyReply): void => void reply.header('set-cookie', `${cookieName}=; ${rules}; Max-Age=0`),
    find({ headers }: FastifyRequest): OidcAttempt | undefined {
      try {
        const sealed = Buffer.from(findCookie(headers.cookie, cookieName) ?? '', 'base64url').toString('base64');
        const { state, nonce, verifier, endsMs } = membersOf(JSON.parse(decryptText(derive(), sealed, owner)));
        if (Number(endsMs) < Date.now()) return undefined;
        return { state: String(state), nonce: String(nonce), verifier: String(verifier) };
      } catch {
        return undefined;
      }
    },
  };
}

/** Sends the browser back to the console; `failure` is shown there. */
const toPage = (reply: FastifyReply, failure?: Failure): FastifyReply =>
  reply
    .header('cache-control', 'no-store')
    .header('referrer-policy', 'no-referrer')
    .redirect(failure === undefined ? '/console/' : `/console/?sign-in=${failure}`, 302);

/** Creates the search for the user of a name, which adds one if the settings permit it. */
function createUserSearch(
  { access, audit, addUser }: Pick<OidcRouteDependencies, 'access' | 'audit' | 'addUser'>,
  newUsersAccount: number | undefined,
) {
  return async (name: string): Promise<User | Failure> => {
    const users = access.current().findUsersByName(name);
    if (users.length > 1) return 'ambiguous';
    if (users[0] !== undefined) return users[0];
    if (newUsersAccount === undefined || access.mayMissUsers()) return 'unknown';
    const idUser = await addUser(name, newUsersAccount);
    await audit.record('user_add', 'ok', { idUser, name, subject: `user ${idUser}`, detail: 'OpenID Connect' });
    for (const begunMs = performance.now(); performance.now() - begunMs < visibleMs; await pause(pollIntervalMs)) {
      const user = access.current().findUser(idUser);
      if (user !== undefined) return user;
    }
    return 'expired';
  };
}

/**
 * Adds the sign-in by OpenID Connect: `GET /console/oidc` redirects to the provider, which redirects to
 * `/console/oidc/callback`. The claim must be the name of one user. Failures return to the page with a reason.
 */
export function addOidcRoutes(
  server: FastifyInstance,
  { access, sessions, browsers, audit, client, logger, key, isReady, addUser }: OidcRouteDependencies,
  { claim, newUsersAccount, isSecure, hasClientAddresses }: OidcRouteOptions,
): void {
  const findUser = createUserSearch({ access, audit, addUser }, newUsersAccount);
  const attempts = createAttemptCookie(key, isSecure);
  const cookies = createCookies({ sessions, browsers }, isSecure);
  const quota = createQuotaCounter(quotas);
  const failures = createRateLimitedLog(
    (fields) => logger.warn(fields, 'cannot sign in by OpenID Connect'),
    failureBound,
  );
  const addressFor = ({ ip }: FastifyRequest): string | undefined => (hasClientAddresses ? ip : undefined);

  async function refuse(request: FastifyRequest, reply: FastifyReply, failure: Failure, name?: string) {
    await audit.record('sign_in', 'refused', {
      name,
      address: addressFor(request),
      detail: `OpenID Connect: ${failure}`,
    });
    return toPage(reply, failure);
  }

  // Behind a proxy, all clients have one address.
  const isTooOften = ({ ip }: FastifyRequest): boolean =>
    hasClientAddresses && quota.take(ip, performance.now()) !== undefined;

  server.get(path, async (request, reply) => {
    if (isTooOften(request)) return toPage(reply, 'often');
    if (!isReady()) return toPage(reply, 'provider');
    try {
      const { url, attempt } = await client.begin();
      attempts.set(reply, attempt);
      return await reply.header('cache-control', 'no-store').redirect(url, 302);
    } catch (error) {
      failures.add({ error: describeError(error) });
      return toPage(reply, 'provider');
    }
  });

  server.get(`${path}/callback`, async (request, reply) => {
    if (isTooOften(request)) return toPage(reply, 'often');
    const attempt = attempts.find(request);
    attempts.clear(reply);
    if (attempt === undefined) return await refuse(request, reply, 'expired');
    let claims: Readonly<Record<string, unknown>>;
    try {
      const search = (request.raw.url ?? '').replace(/^[^?]*/, '');
      claims = await client.finish(search, attempt);
    } catch (error) {
      failures.add({ error: describeError(error) });
      return await refuse(request, reply, 'provider');
    }
    const read = readName(claims, claim);
    if (typeof read === 'string') return await refuse(request, reply, read);
    const user = await findUser(read.name);
    if (typeof user === 'string') return await refuse(request, reply, user, read.name);
    const { idUser, name } = user;
    await audit.record('sign_in', 'ok', { idUser, name, address: addressFor(request), detail: 'OpenID Connect' });
    cookies.setSession(reply, sessions.begin(user));
    return toPage(reply);
  });
}
