import { createHmac } from 'node:crypto';
import type { AccessView, User } from './access.ts';
import { sameText } from './secrets.ts';

/** What authorization is decided from: the request exactly as it came in. */
export interface ReceivedRequest {
  readonly method: string;
  /** The request target as received, never re-encoded; one character a byte. */
  readonly target: string;
  readonly host: string | undefined;
  readonly body: Buffer | undefined;
  /** The Authorization header. */
  readonly authorization: string | undefined;
}

const hmacPattern = /^AuthHMAC ([1-9]\d{0,14}):([A-Za-z0-9+/]{27}=)$/i;
const basicPattern = /^Basic ([A-Za-z0-9+/]{1,1000}={0,2})$/i;
const basicCredentials = /^([1-9]\d{0,14}):(.*)$/s;
/** Stands in for the secret of a user that does not exist, so that the answer takes the same time. */
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
 * The AuthHMAC signature of a call (clients.md): standard base64 of HMAC-SHA1 over METHOD, the complete URL and the
 * body, the last two percent-encoded down to the unreserved characters, joined by `&`. `url`: one character a byte.
 */
export function signAuthHmac(secret: string, method: string, url: string, body: Buffer): string {
  const text = `${method.toUpperCase()}&${percentEncode(Buffer.from(url, 'latin1'))}&${percentEncode(body)}`;
  return createHmac('sha1', secret).update(text).digest('base64');
}

/**
 * The URLs a client may have signed: as received, and under the public address when a proxy stands before the service.
 */
function signedUrls({ target, host }: ReceivedRequest, publicUrl: string | undefined): readonly string[] {
  return [
    ...(publicUrl === undefined ? [] : [`${publicUrl}${target}`]),
    ...(host === undefined ? [] : [`http://${host}${target}`]),
  ];
}

/** Finds the user of an id and a secret, in a time that does not say which of the two is wrong. */
export function findUserBySecret(idUser: string, secret: string, access: AccessView): User | undefined {
  const user = access.findUser(idUser);
  return sameText(user?.secret ?? noSecret, secret) ? user : undefined;
}

/**
 * Finds the user a request comes from, by AuthHMAC or HTTP Basic (`id:secret`); undefined when the header is missing,
 * malformed, names nobody, or its secret or signature is wrong. All of these look the same from outside, time included.
 * Requests of the console have no such header: `findCaller` of sessions.ts knows them.
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
    const matches = expected.filter((candidate) => sameText(candidate, signature)).length > 0;
    return matches ? user : undefined;
  }
  const basic = basicPattern.exec(header);
  if (basic === null) return undefined;
  const credentials = basicCredentials.exec(Buffer.from(basic[1] ?? '', 'base64').toString('utf8'));
  if (credentials === null) return undefined;
  const [, idUser = '', secret = ''] = credentials;
  return findUserBySecret(idUser, secret, access);
}
