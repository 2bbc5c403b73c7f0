import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AccessReader, User } from '../access/access.ts';
import { findUserBySecret } from '../access/authorization.ts';
import { csrfHeader, isOfOtherSite, type KnownBrowsers, type Session, type Sessions } from '../access/sessions.ts';
import { addressOf } from '../runtime/http/request-head.ts';
import { createQuotaCounter } from '../runtime/http/quota.ts';
import type { SignInGuard } from './sign-in-guard.ts';

export interface SessionRouteDependencies {
  readonly access: AccessReader;
  readonly sessions: Sessions;
  readonly browsers: KnownBrowsers;
  readonly guard: SignInGuard;
  /** Whether the key of sessions can be read; if not, nobody is or can be signed in. */
  readonly isReady: () => boolean;
}

export interface SessionRouteOptions {
  /** The address clients see, without a trailing slash; undefined: the one they used. */
  readonly publicUrl: string | undefined;
  /** The version of the program. */
  readonly version: string;
  /** The zone in which days are read where nobody names one. */
  readonly timezone: string;
}

const maxBodyBytes = 4096;
/** For so long a browser is known again, seconds: a year. */
const browserSeconds = 365 * 86_400;
const retryAfterSeconds = 5;
/** Sign-ins of a user with the right secret, and as many sign-outs. Each sign-out is written to the disk. */
const quotas = [
  { limit: 30, windowMs: 60_000 },
  { limit: 300, windowMs: 3_600_000 },
];
const tooOften = 'Signed in or out too often';
const fromElsewhere =
  'This page has another address than the service knows as its own. Open the console by its own address; behind a proxy the operator sets TRIBUTARY_PUBLIC_API_URL to it';

const messages = {
  200: 'Ok',
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Access denied',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
} as const;
type Status = keyof typeof messages;

/** Answers in the envelope of the export area, which the pages read all answers by. */
function answer(reply: FastifyReply, code: Status, data: unknown): FastifyReply {
  const body = JSON.stringify({ code, message: messages[code], data });
  return reply.code(code).header('cache-control', 'no-store').type('application/json; charset=utf-8').send(body);
}

function refuse(reply: FastifyReply, code: Status, detail: string, waitSeconds?: number): FastifyReply {
  if (waitSeconds !== undefined) reply.header('retry-after', waitSeconds);
  return answer(reply, code, { error: { detail, ...(waitSeconds === undefined ? {} : { info: { waitSeconds } }) } });
}

/** What a sign-in gives: `{"idUser": "1", "secret": "..."}`; undefined for anything else. */
function parseCredentials(body: unknown): { readonly idUser: string; readonly secret: string } | undefined {
  try {
    const { idUser, secret } = JSON.parse(String(body)) as Readonly<Record<string, unknown>>;
    const isGood = typeof idUser === 'string' && typeof secret === 'string' && /^[1-9]\d{0,14}$/.test(idUser);
    return isGood ? { idUser, secret } : undefined;
  } catch {
    return undefined;
  }
}

/** A browser says where a request comes from; what is no browser has no cookie that somebody else could use. */
function isFromElsewhere({ raw, headers }: FastifyRequest, publicUrl: string | undefined): boolean {
  const { origin } = headers;
  const own = [addressOf(raw), ...(publicUrl === undefined ? [] : [new URL(publicUrl).origin])];
  const isOwn =
    origin === undefined || own.some((url) => url.replace(/^https?:/, '') === origin.replace(/^https?:/, ''));
  return !isOwn || isOfOtherSite(headers);
}

/** Gives what sets the two cookies: no script sees them, and no other site's request has them. */
function createCookies(
  { sessions, browsers }: Pick<SessionRouteDependencies, 'sessions' | 'browsers'>,
  isSecure: boolean,
) {
  const rules = `HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`;
  return {
    setSession(reply: FastifyReply, value: string, ages = ''): void {
      reply.header('set-cookie', `${sessions.cookieName()}=${value}; Path=/; ${rules}${ages}`);
    },
    /** Makes a browser known again at the next sign-in of the user, which is all that it is sent for. */
    setBrowser(reply: FastifyReply, { idUser }: User): void {
      const value = `${browsers.cookieName()}=${browsers.mark(idUser)}`;
      reply.header('set-cookie', `${value}; Path=/console/session; ${rules}; Max-Age=${browserSeconds}`);
    },
  };
}

/** Adds sign-in, sign-out, and who is signed in: POST, DELETE and GET of `/console/session`. */
export function addSessionRoutes(
  server: FastifyInstance,
  { access, sessions, browsers, guard, isReady }: SessionRouteDependencies,
  { publicUrl, version, timezone }: SessionRouteOptions,
): void {
  const quota = createQuotaCounter(quotas);
  const cookies = createCookies({ sessions, browsers }, publicUrl?.startsWith('https:') === true);

  function describe({ user, csrfToken, endsAtLatestSeconds }: Session): Record<string, unknown> {
    const { idUser, name, idAccount, canExport, isOperator } = user;
    const ends = String(endsAtLatestSeconds);
    return { idUser, name, idAccount, canExport, isOperator, csrfToken, timestampEnds: ends, version, timezone };
  }

  /** The session that a cookie is of, in the form in which requests find it. */
  function begin(user: User, reply: FastifyReply): FastifyReply {
    const value = sessions.begin(user);
    const session = sessions.find({ cookie: `${sessions.cookieName()}=${value}` });
    if (session === undefined) return refuse(reply, 500, 'The session could not be begun', retryAfterSeconds);
    cookies.setSession(reply, value);
    cookies.setBrowser(reply, user);
    return answer(reply, 200, describe(session));
  }

  const onRequest = async (_: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> =>
    isReady()
      ? undefined
      : refuse(reply, 500, 'The service cannot read the key of its sessions now', retryAfterSeconds);

  server.post('/console/session', { bodyLimit: maxBodyBytes, onRequest }, (request, reply) => {
    if (isFromElsewhere(request, publicUrl)) return refuse(reply, 403, fromElsewhere);
    const given = parseCredentials(request.body);
    if (given === undefined) return refuse(reply, 400, 'The id of a user is a whole number; the secret is a text');
    const nowMs = performance.now();
    const { idUser, secret } = given;
    const who = { idUser, address: request.ip, browser: browsers.find(idUser, request.headers.cookie) };
    const waitSeconds = guard.waitSeconds(who, nowMs);
    if (waitSeconds > 0)
      return refuse(reply, 429, `Too many wrong secrets: wait ${waitSeconds} s before you try again`, waitSeconds);
    const user = findUserBySecret(idUser, secret, access.current());
    if (user === undefined && access.mayLackUsers())
      return refuse(reply, 500, 'The service cannot read its users now', retryAfterSeconds);
    if (user === undefined) {
      guard.fail(who, nowMs);
      return refuse(reply, 401, 'The id or the secret is wrong');
    }
    guard.succeed(who);
    const quotaSeconds = quota.take(`in ${idUser}`, nowMs);
    if (quotaSeconds !== undefined) return refuse(reply, 429, tooOften, quotaSeconds);
    return begin(user, reply);
  });

  // Pages ask when they are opened, and now and then while somebody is at work with them.
  server.get('/console/session', { onRequest }, (request, reply) => {
    const session = isOfOtherSite(request.headers) ? undefined : sessions.find(request.headers);
    if (session === undefined && access.mayLackUsers())
      return refuse(reply, 500, 'The service cannot read its users now', retryAfterSeconds);
    if (session === undefined) return refuse(reply, 401, 'Nobody is signed in');
    cookies.setSession(reply, sessions.renew(session));
    return answer(reply, 200, describe(session));
  });

  server.delete('/console/session', { onRequest }, async (request, reply) => {
    const session = sessions.find(request.headers);
    if (session !== undefined && sessions.findCaller(request.headers) === undefined)
      return refuse(reply, 403, `The header ${csrfHeader} is missing or wrong`);
    if (session !== undefined) {
      const waitSeconds = quota.take(`out ${session.user.idUser}`, performance.now());
      if (waitSeconds !== undefined) return refuse(reply, 429, tooOften, waitSeconds);
      await sessions.end(session);
    }
    cookies.setSession(reply, '', '; Max-Age=0');
    return answer(reply, 200, {});
  });
}
