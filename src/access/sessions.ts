import { createHash, createHmac, randomBytes } from 'node:crypto';
import type { Clock } from '../runtime/clock.ts';
import type { AccessReader, User } from './access.ts';
import { timingSafeEqualText } from './secrets.ts';
import { sessionKeyId, type SessionEnds, type SessionKey } from './session-key.ts';

/** Idle and absolute session timeout, s. */
const idleSeconds = 2 * 3600;
export const maxSessionSeconds = 12 * 3600;
/** Tolerated backward step of the clock, s. */
const clockSlackSeconds = 300;

/** Header with the session's CSRF token, which no other site can read. */
export const csrfHeader = 'x-csrf-token';

export interface Session {
  readonly user: User;
  /** Random part of the session: 22 characters. */
  readonly nonce: string;
  readonly startedSeconds: number;
  /** Expiry unless renewed, and the latest possible expiry. */
  readonly endsSeconds: number;
  readonly endsAtLatestSeconds: number;
  /** The value that requests with the cookie must send in `csrfHeader`. */
  readonly csrfToken: string;
}

export interface SessionHeaders {
  readonly cookie?: string | undefined;
  readonly [csrfHeader]?: string | string[] | undefined;
  readonly 'sec-fetch-site'?: string | string[] | undefined;
}

const valuePattern = /^([1-9]\d{0,14})\.(\d{1,12})\.(\d{1,12})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

/** Returns a fingerprint of the user's secret and password, which is signed and never shown. */
function markOf({ idUser, secret, passwordHash }: Pick<User, 'idUser' | 'secret' | 'passwordHash'>): string {
  const password = passwordHash === undefined ? '' : `\n${passwordHash}`;
  return createHash('sha256').update(`sessions of ${idUser}\n${secret}${password}`).digest('hex');
}

/** Reports whether the browser marks a request as cross-site. */
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

/** Finds a cookie; undefined also if it occurs twice, which another site of the domain could cause. */
export function findCookie(header: string | undefined, name: string): string | undefined {
  const values = (header ?? '').split(';').flatMap((pair) => {
    const text = pair.trim();
    return text.startsWith(`${name}=`) ? [text.slice(name.length + 1)] : [];
  });
  return values.length === 1 ? values[0] : undefined;
}

/**
 * Creates console sessions. They are stored only in signed cookies with the user and the time of sign-in. A session
 * ends by its timeout, a sign-out, the removal of its user, a new secret or password, or a new key.
 */
export function createSessions({ key, access, clock, ends }: SessionDependencies, isSecure: boolean) {
  const nowSeconds = (): number => Math.floor(clock.nowMs() / 1000);
  const hmac = (text: string): string => createHmac('sha256', key.current()).update(text).digest('base64url');
  // Services on one host share cookies.
  const cookieName = (): string => `${isSecure ? '__Host-' : ''}tributary_${sessionKeyId(key.current())}`;

  function render(user: User, startedSeconds: number, nonce: string): string {
    const value = `${user.idUser}.${startedSeconds}.${nowSeconds()}.${nonce}`;
    return `${value}.${hmac(`session\n${value}\n${markOf(user)}`)}`;
  }

  /** Finds the session of a cookie. That does not prove that the console sent the request: see `findCaller`. */
  function find(headers: SessionHeaders): Session | undefined {
    const match = valuePattern.exec(findCookie(headers.cookie, cookieName()) ?? '');
    if (match === null) return undefined;
    const [, idUser = '', started = '', seen = '', nonce = '', signature = ''] = match;
    const user = access.current().findUser(idUser);
    const mark = markOf(user ?? { idUser, secret: 'no user has this secret' });
    const isSigned = timingSafeEqualText(hmac(`session\n${idUser}.${started}.${seen}.${nonce}\n${mark}`), signature);
    if (user === undefined || !isSigned) return undefined;
    const [startedSeconds, seenSeconds] = [Number(started), Number(seen)];
    const endsAtLatestSeconds = startedSeconds + maxSessionSeconds;
    const endsSeconds = Math.min(seenSeconds + idleSeconds, endsAtLatestSeconds);
    const now = nowSeconds();
    const isSignedOut = startedSeconds <= ends.of(idUser);
    if (now >= endsSeconds || seenSeconds > now + clockSlackSeconds || isSignedOut) return undefined;
    const csrfToken = hmac(`csrf\n${idUser}.${started}.${nonce}`);
    return { user, nonce, startedSeconds, endsSeconds, endsAtLatestSeconds, csrfToken };
  }

  return {
    cookieName,
    /** Starts a session and returns its cookie. One that starts in the second of a sign-out does not end with it. */
    begin: (user: User): string =>
      render(user, Math.max(nowSeconds(), ends.of(user.idUser) + 1), randomBytes(16).toString('base64url')),
    /** Returns a cookie with a renewed idle timeout. */
    renew: ({ user, startedSeconds, nonce }: Session): string => render(user, startedSeconds, nonce),
    find,
    /** Finds the user of a request that has the cookie and the CSRF token and does not come from another site. */
    findCaller(headers: SessionHeaders): User | undefined {
      const shown = headers[csrfHeader];
      if (typeof shown !== 'string' || isOfOtherSite(headers)) return undefined;
      const session = find(headers);
      return session !== undefined && timingSafeEqualText(session.csrfToken, shown) ? session.user : undefined;
    },
    /** Ends all sessions of the user, since cookies can be copied. Durable when it resolves. */
    end: ({ user, startedSeconds }: Session): Promise<void> =>
      ends.end(user.idUser, Math.max(nowSeconds(), startedSeconds)),
  };
}

export type Sessions = ReturnType<typeof createSessions>;

const browserPattern = /^([1-9]\d{0,14})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

/**
 * Creates the marks of browsers in which a user has signed in before. Each has its own count of wrong secrets, so that
 * attempts elsewhere cannot lock the user out there. A mark is a signed cookie that authorizes nothing.
 */
export function createRememberedBrowsers(key: SessionKey) {
  const cookieName = (): string => `tributary_browser_${sessionKeyId(key.current())}`;
  const sign = (idUser: string, nonce: string): string =>
    createHmac('sha256', key.current()).update(`browser\n${idUser}\n${nonce}`).digest('base64url');
  return {
    cookieName,
    /** Returns a cookie for a browser in which the user has signed in. */
    mark(idUser: string): string {
      const nonce = randomBytes(16).toString('base64url');
      return `${idUser}.${nonce}.${sign(idUser, nonce)}`;
    },
    /** Returns the id of a browser (22 characters) in which the user has signed in before. */
    find(idUser: string, cookies: string | undefined): string | undefined {
      const [, of, nonce = '', signature = ''] = browserPattern.exec(findCookie(cookies, cookieName()) ?? '') ?? [];
      return of === idUser && timingSafeEqualText(sign(idUser, nonce), signature) ? nonce : undefined;
    },
  };
}

export type RememberedBrowsers = ReturnType<typeof createRememberedBrowsers>;
