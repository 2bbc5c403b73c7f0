import { createHash, createHmac, randomBytes } from 'node:crypto';
import type { Clock } from '../runtime/clock.ts';
import type { AccessReader, User } from './access.ts';
import { sameText } from './secrets.ts';
import { sessionKeyId, type SessionEnds, type SessionKey } from './session-key.ts';

/** A session ends so long after its user was last at work, and so long after the sign-in, seconds. */
const idleSeconds = 2 * 3600;
export const longestSeconds = 12 * 3600;
/** The clock may be set back by so much while sessions go on. */
const clockSlackSeconds = 300;

/** Header by which a page shows that it was given the session's CSRF token, which no other site can read. */
export const csrfHeader = 'x-csrf-token';

/** Somebody who is signed in. */
export interface Session {
  readonly user: User;
  /** Makes the session one of its own: 22 characters. */
  readonly nonce: string;
  /** Unix seconds. */
  readonly startedSeconds: number;
  /** From then on it is over, unless it is renewed; and at the latest. */
  readonly endsSeconds: number;
  readonly endsAtLatestSeconds: number;
  /** What a request that comes with the cookie must show. */
  readonly csrfToken: string;
}

/** The headers of a request that sessions are found by. */
export interface SessionHeaders {
  readonly cookie?: string | undefined;
  readonly [csrfHeader]?: string | string[] | undefined;
  readonly 'sec-fetch-site'?: string | string[] | undefined;
}

/**
 * Sessions of the console, at rest nowhere: a cookie says who signed in and when, signed by the key of sessions. One is
 * over when its time has come, its user signed out, is gone or has another secret, or the key is another one.
 */
export interface Sessions {
  /** The name of the cookie, another one for each key: services on one host would overwrite each other's. */
  cookieName(): string;
  /** Begins a session; the value of its cookie. */
  begin(user: User): string;
  /** The value of the cookie of a session whose user is at work now. */
  renew(session: Session): string;
  /** The session of a request's cookie. It says who asks, not that the console asks: see `findCaller`. */
  find(headers: SessionHeaders): Session | undefined;
  /** The user whose session a request is of: it has the cookie and the CSRF token, and comes from no other site. */
  findCaller(headers: SessionHeaders): User | undefined;
  /** Ends all sessions of the session's user, since cookies can be copied. Durable when it resolves. */
  end(session: Session): Promise<void>;
}

const valuePattern = /^([1-9]\d{0,14})\.(\d{1,12})\.(\d{1,12})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

/** Another one under each secret of the user. It is signed and never shown. */
function markOf({ idUser, secret }: Pick<User, 'idUser' | 'secret'>): string {
  return createHash('sha256').update(`sessions of ${idUser}\n${secret}`).digest('hex');
}

/** Says whether a browser says that a request comes from a page of another site or origin. */
export function isOfOtherSite(headers: SessionHeaders): boolean {
  const site = headers['sec-fetch-site'];
  return site !== undefined && site !== 'same-origin' && site !== 'none';
}

export interface SessionDependencies {
  readonly key: SessionKey;
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly ends: SessionEnds;
}

/** Finds a cookie; undefined where it is not there, or there twice, as another site of the domain might set it. */
function findCookie(header: string | undefined, name: string): string | undefined {
  const values = (header ?? '').split(';').flatMap((pair) => {
    const text = pair.trim();
    return text.startsWith(`${name}=`) ? [text.slice(name.length + 1)] : [];
  });
  return values.length === 1 ? values[0] : undefined;
}

/** Creates the sessions. `isSecure`: browsers are to send the cookie over HTTPS only. */
export function createSessions({ key, access, clock, ends }: SessionDependencies, isSecure: boolean): Sessions {
  const nowSeconds = (): number => Math.floor(clock.nowMs() / 1000);
  const hmac = (text: string): string => createHmac('sha256', key.current()).update(text).digest('base64url');
  const cookieName = (): string => `${isSecure ? '__Host-' : ''}tributary_${sessionKeyId(key.current())}`;

  function render(user: User, startedSeconds: number, nonce: string): string {
    const value = `${user.idUser}.${startedSeconds}.${nowSeconds()}.${nonce}`;
    return `${value}.${hmac(`session\n${value}\n${markOf(user)}`)}`;
  }

  function find(headers: SessionHeaders): Session | undefined {
    const match = valuePattern.exec(findCookie(headers.cookie, cookieName()) ?? '');
    if (match === null) return undefined;
    const [, idUser = '', started = '', seen = '', nonce = '', signature = ''] = match;
    const user = access.current().findUser(idUser);
    const mark = markOf(user ?? { idUser, secret: 'no user has this secret' });
    const isSigned = sameText(hmac(`session\n${idUser}.${started}.${seen}.${nonce}\n${mark}`), signature);
    if (user === undefined || !isSigned) return undefined;
    const [startedSeconds, seenSeconds] = [Number(started), Number(seen)];
    const endsAtLatestSeconds = startedSeconds + longestSeconds;
    const endsSeconds = Math.min(seenSeconds + idleSeconds, endsAtLatestSeconds);
    const now = nowSeconds();
    const isSignedOut = startedSeconds <= ends.of(idUser);
    if (now >= endsSeconds || seenSeconds > now + clockSlackSeconds || isSignedOut) return undefined;
    const csrfToken = hmac(`csrf\n${idUser}.${started}.${nonce}`);
    return { user, nonce, startedSeconds, endsSeconds, endsAtLatestSeconds, csrfToken };
  }

  return {
    cookieName,
    // One that begins within the second of a sign-out must not be over with it.
    begin: (user) =>
      render(user, Math.max(nowSeconds(), ends.of(user.idUser) + 1), randomBytes(16).toString('base64url')),
    renew: ({ user, startedSeconds, nonce }) => render(user, startedSeconds, nonce),
    find,
    findCaller(headers) {
      const shown = headers[csrfHeader];
      if (typeof shown !== 'string' || isOfOtherSite(headers)) return undefined;
      const session = find(headers);
      return session !== undefined && sameText(session.csrfToken, shown) ? session.user : undefined;
    },
    end: ({ user, startedSeconds }) => ends.end(user.idUser, Math.max(nowSeconds(), startedSeconds)),
  };
}

/**
 * Browsers in which a user has signed in before. Wrong secrets are counted for each of them by itself, so that nobody
 * can make a user wait there by trying wrong ones elsewhere. A cookie says it, signed by the key of sessions; it
 * authorizes nothing, and names no secret.
 */
export interface KnownBrowsers {
  /** The name of the cookie, another one for each key, as that of sessions. */
  cookieName(): string;
  /** The value of the cookie for a browser in which the user has just signed in. */
  mark(idUser: string): string;
  /** The browser of a request, 22 characters, where the user has signed in with it before; undefined for others. */
  find(idUser: string, cookies: string | undefined): string | undefined;
}

const browserPattern = /^([1-9]\d{0,14})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

/** Creates what knows browsers again. */
export function createKnownBrowsers(key: SessionKey): KnownBrowsers {
  const cookieName = (): string => `tributary_browser_${sessionKeyId(key.current())}`;
  const sign = (idUser: string, nonce: string): string =>
    createHmac('sha256', key.current()).update(`browser\n${idUser}\n${nonce}`).digest('base64url');
  return {
    cookieName,
    mark(idUser) {
      const nonce = randomBytes(16).toString('base64url');
      return `${idUser}.${nonce}.${sign(idUser, nonce)}`;
    },
    find(idUser, cookies) {
      const [, of, nonce = '', signature = ''] = browserPattern.exec(findCookie(cookies, cookieName()) ?? '') ?? [];
      return of === idUser && sameText(sign(idUser, nonce), signature) ? nonce : undefined;
    },
  };
}
