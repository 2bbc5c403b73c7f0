import { createHmac, randomBytes } from 'node:crypto';
import { findCookie } from './cookies.ts';
import { sameText } from './secrets.ts';
import { sessionKeyId, type SessionKey } from './session-key.ts';

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

const valuePattern = /^([1-9]\d{0,14})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

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
      const [, of, nonce = '', signature = ''] = valuePattern.exec(findCookie(cookies, cookieName()) ?? '') ?? [];
      return of === idUser && sameText(sign(idUser, nonce), signature) ? nonce : undefined;
    },
  };
}
