import type { ServerResponse } from 'node:http';
import { createHmac, timingSafeEqual } from 'node:crypto';
import path from 'node:path';
import type { SigningKeys } from './signing-keys.ts';

/**
 * Whom a link was given to. It needs no header, yet ends with its holder: a removed user keeps no link, nor does an old
 * secret.
 */
export interface LinkHolder {
  readonly idUser: string;
  /** Another one under each secret of the user. It is signed and never shown. */
  readonly mark: string;
}

/** The file that a valid link leads to. */
export interface LinkTarget {
  readonly id: number;
  readonly name: string;
  /** Unix seconds. */
  readonly expiresSeconds: number;
  /** Absent in a link of a version before 0.3: those end with the user who ordered the report. */
  readonly holder?: LinkHolder;
}

/** Finds the present mark of a user; undefined when there is no such user. */
export type FindMark = (idUser: string) => string | undefined;

const targetPattern = /^(\/files\/([1-9]\d{0,14})\/([A-Za-z0-9][A-Za-z0-9._-]{0,199}))\?(.*)$/;
/**
 * The parameters in the order of their names: gateways sort them. Each once, in its one spelling, and no other; nothing
 * is decoded before this matches. `x-ending` repeats the ending of the file, so that the address of a packed file ends in
 * .gz: readers such as pandas unpack by that. Links of 0.3 lack it.
 */
const queryPattern =
  /^expires=([1-9]\d{0,11})&kid=([0-9a-f]{8})&signature=([0-9a-f]{64})(?:&user=([1-9]\d{0,14}))?(?:&x-ending=([A-Za-z0-9._-]+))?$/;

/** The parts of a link, signed or not, from a request target; undefined for any other text. */
function matchLink(requestTarget: string) {
  const [, file = '', id = '', name = '', query = ''] = targetPattern.exec(requestTarget) ?? [];
  // Any order is accepted.
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
  // HEAD asks for what GET would answer: one link serves both, signed as GET.
  return createHmac('sha256', secret).update(`GET\n${file}\n${expiresSeconds}\n${kid}${of}`).digest();
}

/**
 * Path and query of a file's link, signed with the current key: HMAC-SHA256 over method, path, expiry, key id and
 * holder.
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

/** The user whom a link names, whether it is signed or not; undefined for none. */
export function findNamedUser(requestTarget: string): string | undefined {
  return matchLink(requestTarget)?.idUser;
}

/**
 * Parses the request target of a download (path and query exactly as received). Undefined unless the link is one that
 * this service signed, its time has not come, and its holder is a user with the same secret. Comparing takes the same
 * time wherever the signatures differ.
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

/** The downloads under way, each with the holder of its link: one may take hours, and ends when its holder does. */
export interface OpenDownloads {
  /** Adds a download; it is forgotten when its answer is over. */
  add(holder: LinkHolder, response: ServerResponse): void;
  /**
   * Cuts off the downloads of the holders that `isGone` names. The client sees its connection break: no file looks
   * whole.
   */
  endWhere(isGone: (holder: LinkHolder) => boolean): void;
}

/** Creates the list of one server. */
export function createOpenDownloads(): OpenDownloads {
  const open = new Map<ServerResponse, LinkHolder>();
  return {
    add(holder, response) {
      // Its client has gone already: there will be no close event to remove it by.
      if (response.destroyed) return;
      open.set(response, holder);
      response.once('close', () => open.delete(response));
    },
    endWhere(isGone) {
      for (const [response, holder] of open) if (isGone(holder)) response.destroy();
    },
  };
}
