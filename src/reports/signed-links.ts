import type { ServerResponse } from 'node:http';
import { createHmac, timingSafeEqual } from 'node:crypto';
import path from 'node:path';
import type { SigningKeys } from './signing-keys.ts';

/** The user that a link was given to. A link needs no header, and ends with its user or the user's secret. */
export interface LinkHolder {
  readonly idUser: string;
  /** Hash of the user's secret; signed and never shown. */
  readonly mark: string;
}

/** The file of a valid link. */
export interface LinkTarget {
  readonly id: number;
  readonly name: string;
  /** Unix s. */
  readonly expiresSeconds: number;
  /** Absent in links before 0.3, which end with the user who created the report. */
  readonly holder?: LinkHolder;
}

/** Finds the present mark of a user; undefined if there is none. */
export type FindMark = (idUser: string) => string | undefined;

const targetPattern = /^(\/files\/([1-9]\d{0,14})\/([A-Za-z0-9][A-Za-z0-9._-]{0,199}))\?(.*)$/;
/**
 * The parameters in the order of their names, each once and in one spelling; nothing is decoded before this matches.
 * `x-ending` repeats the ending of the file, so that readers such as pandas recognize packed files. Links of 0.3 lack
 * it.
 */
const queryPattern =
  /^expires=([1-9]\d{0,11})&kid=([0-9a-f]{8})&signature=([0-9a-f]{64})(?:&user=([1-9]\d{0,14}))?(?:&x-ending=([A-Za-z0-9._-]+))?$/;

/** Parses a link, signed or not, from a request target; undefined for other texts. */
function matchLink(requestTarget: string) {
  const [, file = '', id = '', name = '', query = ''] = targetPattern.exec(requestTarget) ?? [];
  // Gateways sort parameters.
  const match = queryPattern.exec(query.split('&').toSorted().join('&'));
  const [, expires = '', kid = '', signature = '', idUser, ending = path.extname(name)] = match ?? [];
  if (match === null || ending !== path.extname(name)) return undefined;
  return { file, id, name, expires, kid, signature, idUser };
}

function sign(
  secret: Buffer,
  file: string,
  expiresSeconds: string,
  kid: string,
  holder: LinkHolder | undefined,
): Buffer {
  const of = holder === undefined ? '' : `\n${holder.idUser}\n${holder.mark}`;
  // One link serves GET and HEAD, signed as GET.
  return createHmac('sha256', secret).update(`GET\n${file}\n${expiresSeconds}\n${kid}${of}`).digest();
}

/**
 * Signs a link with the current key: HMAC-SHA256 over method, path, expiry, key id and holder. Returns path and query.
 */
export function signLink(keys: SigningKeys, { id, name, expiresSeconds, holder }: LinkTarget): string {
  const { kid, secret } = keys.current();
  const [file, ending] = [`/files/${id}/${name}`, path.extname(name)];
  const expires = String(expiresSeconds);
  const signature = sign(secret, file, expires, kid, holder).toString('hex');
  const of = holder === undefined ? '' : `&user=${holder.idUser}`;
  const asFile = ending === '' ? '' : `&x-ending=${ending}`;
  return `${file}?expires=${expires}&kid=${kid}&signature=${signature}${of}${asFile}`;
}

/** Returns the user of a link, signed or not; undefined for none. */
export function findNamedUser(requestTarget: string): string | undefined {
  return matchLink(requestTarget)?.idUser;
}

/**
 * Parses the request target of a download, as received. Undefined unless this service signed the link, it has not
 * expired, and its holder has the same secret. Signatures are compared in constant time.
 */
export function parseLink(
  keys: SigningKeys,
  requestTarget: string,
  nowMs: number,
  findMark: FindMark,
): LinkTarget | undefined {
  const link = matchLink(requestTarget);
  if (link === undefined) return undefined;
  const { file, id, name, expires, kid, signature, idUser } = link;
  const key = keys.find(kid);
  if (key === undefined) return undefined;
  const mark = idUser === undefined ? undefined : findMark(idUser);
  const holder = idUser === undefined ? undefined : { idUser, mark: mark ?? '' };
  const isSigned = timingSafeEqual(sign(key.secret, file, expires, kid, holder), Buffer.from(signature, 'hex'));
  if (!isSigned || (holder !== undefined && mark === undefined)) return undefined;
  const expiresSeconds = Number(expires);
  return nowMs < expiresSeconds * 1000
    ? { id: Number(id), name, expiresSeconds, ...(holder === undefined ? {} : { holder }) }
    : undefined;
}

/** The downloads in progress, each with the holder of its link. */
export interface OpenDownloads {
  /** Adds a download until its response ends. */
  add(holder: LinkHolder, response: ServerResponse): void;
  /**
   * Destroys the downloads of the holders that `isGone` selects: the connection breaks, so that no file seems complete.
   */
  endWhere(isGone: (holder: LinkHolder) => boolean): void;
}

export function createOpenDownloads(): OpenDownloads {
  const open = new Map<ServerResponse, LinkHolder>();
  return {
    add(holder, response) {
      // The client has disconnected: no close event will remove it.
      if (response.destroyed) return;
      open.set(response, holder);
      response.once('close', () => open.delete(response));
    },
    endWhere(isGone) {
      for (const [response, holder] of open) if (isGone(holder)) response.destroy();
    },
  };
}
