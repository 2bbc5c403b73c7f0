import { createHmac, timingSafeEqual } from 'node:crypto';
import type { SigningKeys } from './signing-keys.ts';

/** The file that a valid link leads to. */
export interface LinkTarget {
  readonly id: number;
  readonly name: string;
  /** Unix seconds. */
  readonly expiresSeconds: number;
}

/**
 * The one form a link has, as it stands in the request line. Nothing is decoded before this matches, and nothing is
 * left to chance after it: each parameter once, in this order, in its one spelling, none besides.
 */
const linkPattern = /^\/files\/([1-9]\d{0,14})\/([A-Za-z0-9][A-Za-z0-9._-]{0,199})\?expires=([1-9]\d{0,11})&kid=([0-9a-f]{8})&signature=([0-9a-f]{64})$/;

function sign(secret: Buffer, path: string, expiresSeconds: string, kid: string): Buffer {
  // HEAD asks for what GET would answer: one link serves both, signed as GET.
  return createHmac('sha256', secret).update(`GET\n${path}\n${expiresSeconds}\n${kid}`).digest();
}

/** Path and query of a file's link, signed with the current key: HMAC-SHA256 over method, path, expiry and key id. */
export function signLink(keys: SigningKeys, target: LinkTarget): string {
  const { kid, secret } = keys.current();
  const path = `/files/${target.id}/${target.name}`;
  const expires = String(target.expiresSeconds);
  return `${path}?expires=${expires}&kid=${kid}&signature=${sign(secret, path, expires, kid).toString('hex')}`;
}

/**
 * Parses the request target of a download (path and query exactly as received). Undefined unless the link is one that
 * this service signed and its time has not come. Comparing takes the same time wherever the signatures differ.
 */
export function parseLink(keys: SigningKeys, requestTarget: string, nowMs: number): LinkTarget | undefined {
  const match = linkPattern.exec(requestTarget);
  if (match === null) return undefined;
  const [, id = '', name = '', expires = '', kid = '', signature = ''] = match;
  const key = keys.find(kid);
  if (key === undefined) return undefined;
  if (!timingSafeEqual(sign(key.secret, `/files/${id}/${name}`, expires, kid), Buffer.from(signature, 'hex'))) return undefined;
  const expiresSeconds = Number(expires);
  return nowMs < expiresSeconds * 1000 ? { id: Number(id), name, expiresSeconds } : undefined;
}
