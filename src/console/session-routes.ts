import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { User } from '../access/access.ts';
import { csrfHeader, isOfOtherSite, type Session, type Sessions } from '../access/sessions.ts';
import { addressOf } from '../runtime/http/request-head.ts';
import { createQuotaCounter } from '../runtime/async/rate-limits.ts';
import { addPasswordRoute } from './password-routes.ts';
import { createSignIn, type SignInDependencies } from './sign-in.ts';

export interface SessionRouteDependencies extends SignInDependencies {
  /** Stores a password, and returns its hash. Error: `usage` for one that breaks a rule. */
  readonly setPassword: (idUser: string, password: string) => Promise<string | undefined>;
  readonly sessions: Sessions;
  /** Whether the key of sessions is readable; otherwise sessions cannot be used. */
  readonly isReady: () => boolean;
}

export interface SessionRouteOptions {
  /** The public address of a proxy, without a trailing slash. */
  readonly publicUrl: string | undefined;
  readonly version: string;
  /** The default time zone of exports. */
  readonly timezone: string;
  /** Whether clients have separate addresses; not behind a proxy. */
  readonly hasClientAddresses: boolean;
}

const maxBodyBytes = 4096;
/** Lifetime of the mark of a known browser, s. */
const browserSeconds = 365 * 86_400;
const retryAfterSeconds = 5;
/** Quotas of a user's sign-ins and of the sign-outs, each of which writes to the disk. */
const quotas = [
  { limit: 30, windowMs: 60_000 },
  { limit: 300, windowMs: 3_600_000 },
];
const tooOften = 'Too many sign-ins or sign-outs';
const fromElsewhere =
  'The request came from another origin. Open the console at its own address; behind a proxy, the operator must set TRIBUTARY_PUBLIC_API_URL to it';

const messages = {
  200: 'Ok',
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Access denied',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
} as const;
type Status = keyof typeof messages;

/** Sends the envelope of the export API. */
function sendEnvelope(reply: FastifyReply, code: Status, data: unknown): FastifyReply {
  const body = JSON.stringify({ code, message: messages[code], data });
  return reply.code(code).header('cache-control', 'no-store').type('application/json; charset=utf-8').send(body);
}

function refuse(reply: FastifyReply, code: Status, detail: string, waitSeconds?: number): FastifyReply {
  if (waitSeconds !== undefined) reply.header('retry-after', waitSeconds);
  return sendEnvelope(reply, code, {
    error: { detail, ...(waitSeconds === undefined ? {} : { info: { waitSeconds } }) },
  });
}

/** Reports whether a browser sent the request from another origin. Other clients have no cookies to abuse. */
function isFromElsewhere({ raw, headers }: FastifyRequest, publicUrl: string | undefined): boolean {
  const { origin } = headers;
  const own = [addressOf(raw), ...(publicUrl === undefined ? [] : [new URL(publicUrl).origin])];
  const isOwn =
    origin === undefined || own.some((url) => url.replace(/^https?:/, '') === origin.replace(/^https?:/, ''));
  return !isOwn || isOfOtherSite(headers);
}

/** Returns functions that set the two cookies, which no script and no other site can read. */
export function createCookies(
  { sessions, browsers }: Pick<SessionRouteDependencies, 'sessions' | 'browsers'>,
  isSecure: boolean,
) {
  const rules = `HttpOnly; SameSite=Strict${isSecure ? '; Secure' : ''}`;
  return {
    setSession(reply: FastifyReply, value: string, ages = ''): void {
      reply.header('set-cookie', `${sessions.cookieName()}=${value}; Path=/; ${rules}${ages}`);
    },
    setBrowser(reply: FastifyReply, { idUser }: User): void {
      const value = `${browsers.cookieName()}=${browsers.mark(idUser)}`;
      reply.header('set-cookie', `${value}; Path=/console/session; ${rules}; Max-Age=${browserSeconds}`);
    },
  };
}

/** Adds sign-in (POST), sign-out (DELETE) and the current session (GET) at `/console/session`. */
export function addSessionRoutes(
  server: FastifyInstance,
  { access, sessions, browsers, guard, audit, setPassword, isReady }: SessionRouteDependencies,
  { publicUrl, version, timezone, hasClientAddresses }: SessionRouteOptions,
): void {
  const quota = createQuotaCounter(quotas);
  const signIn = createSignIn({ access, browsers, guard, audit }, hasClientAddresses);
  const addressFor = ({ ip }: FastifyRequest): string | undefined => (hasClientAddresses ? ip : undefined);
  const cookies = createCookies({ sessions, browsers }, publicUrl?.startsWith('https:') === true);

  function describe({ user, csrfToken, endsAtLatestSeconds }: Session): Record<string, unknown> {
    const { idUser, name, idAccount, canExport, isOperator } = user;
    const ends = String(endsAtLatestSeconds);
    return { idUser, name, idAccount, canExport, isOperator, csrfToken, timestampEnds: ends, version, timezone };
  }

  function begin(user: User, reply: FastifyReply): FastifyReply {
    const value = sessions.begin(user);
    const session = sessions.find({ cookie: `${sessions.cookieName()}=${value}` });
    if (session === undefined) return refuse(reply, 500, 'The session could not be started', retryAfterSeconds);
    cookies.setSession(reply, value);
    cookies.setBrowser(reply, user);
    return sendEnvelope(reply, 200, describe(session));
  }

  const onRequest = async (_: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> =>
    isReady() ? undefined : refuse(reply, 500, 'The service cannot read its session key', retryAfterSeconds);

  server.post('/console/session', { bodyLimit: maxBodyBytes, onRequest }, async (request, reply) => {
    if (isFromElsewhere(request, publicUrl)) return refuse(reply, 403, fromElsewhere);
    const signedIn = await signIn(request);
    if ('code' in signedIn) return refuse(reply, signedIn.code, signedIn.detail, signedIn.waitSeconds);
    const { user } = signedIn;
    const { idUser, name } = user;
    const quotaSeconds = quota.take(`in ${idUser}`, performance.now());
    if (quotaSeconds !== undefined) return refuse(reply, 429, tooOften, quotaSeconds);
    await audit.record('sign_in', 'ok', { idUser, name, address: addressFor(request) });
    return begin(user, reply);
  });

  const ofPasswords = { access, sessions, audit, signIn, setPassword, begin, addressFor, refuse };
  addPasswordRoute(server, ofPasswords, { bodyLimit: maxBodyBytes, onRequest });

  // Pages call this when they open, and regularly while in use.
  server.get('/console/session', { onRequest }, (request, reply) => {
    const session = isOfOtherSite(request.headers) ? undefined : sessions.find(request.headers);
    if (session === undefined && access.mayMissUsers())
      return refuse(reply, 500, 'The service cannot read its users', retryAfterSeconds);
    // A page without a token opens: browsers would log a 401 of its first request as an error.
    if (session === undefined && request.headers[csrfHeader] === '') return sendEnvelope(reply, 200, null);
    if (session === undefined) return refuse(reply, 401, 'Not signed in');
    cookies.setSession(reply, sessions.renew(session));
    return sendEnvelope(reply, 200, describe(session));
  });

  server.delete('/console/session', { onRequest }, async (request, reply) => {
    const session = sessions.find(request.headers);
    if (session !== undefined && sessions.findCaller(request.headers) === undefined)
      return refuse(reply, 403, `The header ${csrfHeader} is missing or wrong`);
    if (session !== undefined) {
      const waitSeconds = quota.take(`out ${session.user.idUser}`, performance.now());
      if (waitSeconds !== undefined) return refuse(reply, 429, tooOften, waitSeconds);
      await sessions.end(session);
      const { idUser, name } = session.user;
      await audit.record('sign_out', 'ok', { idUser, name, address: addressFor(request) });
    }
    cookies.setSession(reply, '', '; Max-Age=0');
    return sendEnvelope(reply, 200, {});
  });
}
