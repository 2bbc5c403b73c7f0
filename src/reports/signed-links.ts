import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { AppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { openStore } from '../runtime/store/open-store.ts';
import { createRecords, type Records } from '../runtime/store/records.ts';
import { isCount, isInteger, listOf, matching, optional, shapeOf } from '../runtime/store/shape.ts';

/** The user that a link was given to. A link needs no header, and ends with its user or the user's secret. */
export interface LinkHolder {
  readonly idUser: string;
  /** Hash of the user's secret; signed and never shown. */
  readonly secretFingerprint: string;
}

interface LinkTarget {
  readonly id: number;
  readonly name: string;
  readonly expiresSeconds: number;
  /** Absent in links before 0.3, which end with the user who created the report. */
  readonly holder?: LinkHolder;
}

export type FindSecretFingerprint = (idUser: string) => string | undefined;

const targetPattern = /^(\/files\/([1-9]\d{0,14})\/([A-Za-z0-9][A-Za-z0-9._-]{0,199}))\?(.*)$/;
/**
 * The parameters sorted by name, each once and in one spelling; nothing is decoded before this matches. `x-ending` is
 * the ending of the file, by which readers such as pandas recognize packed files; links of 0.3 lack it.
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
  const of = holder === undefined ? '' : `\n${holder.idUser}\n${holder.secretFingerprint}`;
  // One link serves GET and HEAD, signed as GET.
  return createHmac('sha256', secret).update(`GET\n${file}\n${expiresSeconds}\n${kid}${of}`).digest();
}

/** Signs a link with HMAC-SHA256 over method, path, expiry, key id and holder. Returns path and query. */
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
  findSecretFingerprint: FindSecretFingerprint,
): LinkTarget | undefined {
  const link = matchLink(requestTarget);
  if (link === undefined) return undefined;
  const { file, id, name, expires, kid, signature, idUser } = link;
  const key = keys.find(kid);
  if (key === undefined) return undefined;
  const mark = idUser === undefined ? undefined : findSecretFingerprint(idUser);
  const holder = idUser === undefined ? undefined : { idUser, secretFingerprint: mark ?? '' };
  const isSigned = timingSafeEqual(sign(key.secret, file, expires, kid, holder), Buffer.from(signature, 'hex'));
  if (!isSigned || (holder !== undefined && mark === undefined)) return undefined;
  const expiresSeconds = Number(expires);
  return nowMs < expiresSeconds * 1000
    ? { id: Number(id), name, expiresSeconds, ...(holder === undefined ? {} : { holder }) }
    : undefined;
}

/** Creates the list of the downloads in progress, each with the holder of its link. */
export function createOpenDownloads() {
  const open = new Map<ServerResponse, LinkHolder>();
  return {
    /** Adds a download until its response ends. */
    add(holder: LinkHolder, response: ServerResponse): void {
      // The client has disconnected: no close event will remove it.
      if (response.destroyed) return;
      open.set(response, holder);
      response.once('close', () => open.delete(response));
    },
    /** Destroys the downloads of some holders: the connection breaks, so that no file seems complete. */
    endWhere(isGone: (holder: LinkHolder) => boolean): void {
      for (const [response, holder] of open) if (isGone(holder)) response.destroy();
    },
  };
}

export interface SigningKey {
  /** 8 lower-case hex digits, part of each link. */
  readonly kid: string;
  readonly secret: Buffer;
}

export type SigningKeys = Awaited<ReturnType<typeof openSigningKeys>>;

interface KeyRecord {
  readonly kid: string;
  readonly secret: string;
  readonly createdMs: number;
  /** Absent on the current key. */
  readonly retiredMs?: number;
}

/** Longest life of a link (TRIBUTARY_LINK_TTL_SECONDS is at most this); older retired keys have no live link. */
const maxLinkMs = 604_800_000;

const keysHint =
  "Restore it from a backup, or remove it and run 'tributary key rotate links': earlier links then stop working.";

/** Returns the path of the key file: JSON, mode 0600, the current key last. */
export function signingKeysPath(keysDir: string): string {
  return path.join(keysDir, 'links.json');
}

interface KeyFile {
  readonly keys: readonly KeyRecord[];
}

const keysId = 'links';
const isKeyRecord = shapeOf<KeyRecord>({
  kid: matching(/^[0-9a-f]{8}$/),
  secret: matching(/^[0-9a-f]{64}$/),
  createdMs: isInteger,
  retiredMs: optional(isCount),
});
const keysKind = {
  isValid: shapeOf<KeyFile>({ keys: (keys) => listOf(isKeyRecord)(keys) && keys.length > 0 }),
  damaged: { code: 'link_keys_damaged', what: 'link keys', hint: keysHint },
} as const;

const openRecords = (keysDir: string): Records<KeyFile> => createRecords(openStore(keysDir), keysKind);

function newKey(nowMs: number): KeyRecord {
  return { kid: randomBytes(4).toString('hex'), secret: randomBytes(32).toString('hex'), createdMs: nowMs };
}

export async function ensureSigningKeys(keysDir: string, clock: Clock): Promise<void> {
  await openRecords(keysDir).change(keysId, (known) => known ?? { keys: [newKey(clock.nowMs())] });
}

/**
 * Creates a new current key, durably. Earlier keys verify until their links have expired, and are removed by a later
 * rotation. A running service uses the new key within a second.
 */
export async function rotateSigningKey(keysDir: string, clock: Clock): Promise<{ kid: string; retired: string[] }> {
  const nowMs = clock.nowMs();
  const key = newKey(nowMs);
  const after = await openRecords(keysDir).change(keysId, (known) => {
    const kept = (known?.keys ?? [])
      .map((old) => ({ ...old, retiredMs: old.retiredMs ?? nowMs }))
      .filter((old) => old.retiredMs + maxLinkMs > nowMs && old.kid !== key.kid);
    return { keys: [...kept, key] };
  });
  return { kid: key.kid, retired: (after?.keys ?? []).slice(0, -1).map(({ kid }) => kid) };
}

/**
 * Opens the link keys, reloaded within a second of a rotation by another process. Creates the first one, unless links
 * exist (`isInUse`), which a new key would reject. Damaged or missing keys are a problem: a running service keeps the
 * last valid ones; after a start no link works until they can be read.
 */
export async function openSigningKeys(keysDir: string, clock: Clock, logger: Logger, isInUse = false) {
  const file = signingKeysPath(keysDir);
  const records = openRecords(keysDir);
  if (!isInUse && !(await records.ids()).includes(keysId)) await ensureSigningKeys(keysDir, clock);
  const load = (record: KeyFile | undefined): readonly SigningKey[] => {
    if (record === undefined)
      throw new AppError('link_keys_damaged', `${file} is missing, and report files have links signed with it`, {
        hint: keysHint,
      });
    return record.keys.map(({ kid, secret }) => ({ kid, secret: Buffer.from(secret, 'hex') }));
  };
  const watched = await records.watch(keysId, load, logger);
  return {
    current(): SigningKey {
      const key = watched.current()?.at(-1);
      if (key === undefined) throw new AppError('link_keys_damaged', `cannot read ${file}`, { hint: keysHint });
      return key;
    },
    find: (kid: string): SigningKey | undefined => watched.current()?.find((key) => key.kid === kid),
    /** Reports whether links can be signed and verified. */
    isReadable: (): boolean => watched.current() !== undefined,
    problems(): readonly Problem[] {
      const why = watched.problem();
      const effect = watched.current() === undefined ? 'no link works' : 'no link works after the next start';
      return why === undefined
        ? []
        : [{ code: 'link_keys_unreadable', message: `${effect}: ${why}`, action: keysHint }];
    },
    close: (): void => watched.close(),
  };
}
