import { createHmac } from 'node:crypto';
import type { AccessView, User } from './access.ts';
import { timingSafeEqualText } from './secrets.ts';

export interface ReceivedRequest {
  readonly method: string;
  /** The request target, never re-encoded; one character per byte. */
  readonly target: string;
  readonly host: string | undefined;
  readonly body: Buffer | undefined;
  readonly authorization: string | undefined;
}

const hmacPattern = /^AuthHMAC ([1-9]\d{0,14}):([A-Za-z0-9+/]{27}=)$/i;
const basicPattern = /^Basic ([A-Za-z0-9+/]{1,1000}={0,2})$/i;
const basicCredentials = /^([1-9]\d{0,14}):(.*)$/s;
/** Secret of a missing user, so that the response takes the same time. */
const noSecret = 'no user has this secret';

function percentEncode(bytes: Buffer): string {
  let text = '';
  for (const byte of bytes) {
    const character = String.fromCharCode(byte);
    text += /[A-Za-z0-9\-._~]/.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return text;
}

/**
 * Returns the AuthHMAC signature of a call (clients.md): base64 of HMAC-SHA1 over METHOD, the complete URL and the
 * body, the last two percent-encoded down to the unreserved characters, joined by `&`. `url` has one character per
 * byte.
 */
export function signAuthHmac(secret: string, method: string, url: string, body: Buffer): string {
  const text = `${method.toUpperCase()}&${percentEncode(Buffer.from(url, 'latin1'))}&${percentEncode(body)}`;
  return createHmac('sha1', secret).update(text).digest('base64');
}

/** Returns the URLs that a client may have signed: as received, and under the public address of a proxy. */
function signedUrls({ target, host }: ReceivedRequest, publicUrl: string | undefined): readonly string[] {
  return [
    ...(publicUrl === undefined ? [] : [`${publicUrl}${target}`]),
    ...(host === undefined ? [] : [`http://${host}${target}`]),
  ];
}

/** Finds a user by id and secret, in a time that does not reveal which of the two is wrong. */
export function findUserBySecret(idUser: string, secret: string, access: AccessView): User | undefined {
  const user = access.findUser(idUser);
  return timingSafeEqualText(user?.secret ?? noSecret, secret) ? user : undefined;
}

/** Returns the id of the user that a header names, right or wrong; undefined if it names none. */
export function findClaimedUser(authorization: string | undefined): string | undefined {
  const header = authorization ?? '';
  const basic = basicPattern.exec(header)?.[1];
  const credentials = basic === undefined ? null : basicCredentials.exec(Buffer.from(basic, 'base64').toString('utf8'));
  return (hmacPattern.exec(header) ?? credentials)?.[1];
}

/**
 * Finds the user of a request by AuthHMAC or HTTP Basic (`id:secret`). Returns undefined for a missing or malformed
 * header, an unknown user, and a wrong secret or signature; all look the same, also in time. Requests of the console
 * are authenticated by `findCaller` of sessions.ts instead.
 */
export function findCaller(
  request: ReceivedRequest,
  access: AccessView,
  publicUrl: string | undefined,
): User | undefined {
  const header = request.authorization ?? '';
  const hmac = hmacPattern.exec(header);
  if (hmac !== null) {
    const [, idUser = '', signature = ''] = hmac;
    const user = access.findUser(idUser);
    const secret = user?.secret ?? noSecret;
    const expected = signedUrls(request, publicUrl).map((url) =>
      signAuthHmac(secret, request.method, url, request.body ?? Buffer.alloc(0)),
    );
    const matches = expected.filter((candidate) => timingSafeEqualText(candidate, signature)).length > 0;
    return matches ? user : undefined;
  }
  const basic = basicPattern.exec(header);
  if (basic === null) return undefined;
  const credentials = basicCredentials.exec(Buffer.from(basic[1] ?? '', 'base64').toString('utf8'));
  if (credentials === null) return undefined;
  const [, idUser = '', secret = ''] = credentials;
  return findUserBySecret(idUser, secret, access);
}
