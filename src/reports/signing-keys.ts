import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { AppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { createFolderStore } from '../runtime/store/folder-store.ts';
import { createRecords, type Records } from '../runtime/store/records.ts';
import { isCount, isInteger, listOf, matching, optional, shapeOf } from '../runtime/store/shape.ts';

export interface SigningKey {
  /** 8 lower-case hex digits, part of each link. */
  readonly kid: string;
  readonly secret: Buffer;
}

/** The link keys, reloaded within a second of a rotation by another process. */
export interface SigningKeys {
  /** The key of new links. */
  current(): SigningKey;
  find(kid: string): SigningKey | undefined;
  /** Reports whether links can be signed and verified. */
  isReadable(): boolean;
  problems(): readonly Problem[];
  close(): void;
}

interface KeyRecord {
  readonly kid: string;
  /** 32 bytes, hex. */
  readonly secret: string;
  readonly createdMs: number;
  /** Absent on the current key. */
  readonly retiredMs?: number;
}

/** Longest life of a link (TRIBUTARY_LINK_TTL_SECONDS is at most this); older retired keys have no live link. */
const longestLinkMs = 604_800_000;

const keysHint =
  "Restore it from a backup, or remove it and run 'tributary key rotate': links given out before then stop working.";

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
  isValid: shapeOf<KeyFile>({ keys: (keys) => listOf(isKeyRecord)(keys) && (keys as KeyRecord[]).length > 0 }),
  damaged: { code: 'link_keys_damaged', what: 'link keys', hint: keysHint },
} as const;

const openRecords = (keysDir: string): Records<KeyFile> => createRecords(createFolderStore(keysDir), keysKind);

function newKey(nowMs: number): KeyRecord {
  return { kid: randomBytes(4).toString('hex'), secret: randomBytes(32).toString('hex'), createdMs: nowMs };
}

/** Creates the first key if there is none. */
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
      .filter((old) => old.retiredMs + longestLinkMs > nowMs && old.kid !== key.kid);
    return { keys: [...kept, key] };
  });
  return { kid: key.kid, retired: (after?.keys ?? []).slice(0, -1).map(({ kid }) => kid) };
}

/**
 * Opens the keys. Creates the first one, unless links were given out (`isInUse`), which a new key would reject. Damaged
 * or missing keys are a problem: a running service keeps the last valid ones; after a start no link works until they
 * can be read.
 */
export async function openSigningKeys(
  keysDir: string,
  clock: Clock,
  logger: Logger,
  isInUse = false,
): Promise<SigningKeys> {
  const file = signingKeysPath(keysDir);
  const records = openRecords(keysDir);
  if (!isInUse && !(await records.ids()).includes(keysId)) await ensureSigningKeys(keysDir, clock);
  const load = (record: KeyFile | undefined): readonly SigningKey[] => {
    if (record === undefined)
      throw new AppError('link_keys_damaged', `${file} is gone, beside report files whose links it verifies`, {
        hint: keysHint,
      });
    return record.keys.map(({ kid, secret }) => ({ kid, secret: Buffer.from(secret, 'hex') }));
  };
  const watched = await records.watch(keysId, load, logger);
  return {
    current() {
      const key = watched.current()?.at(-1);
      if (key === undefined) throw new AppError('link_keys_damaged', `${file} cannot be read`, { hint: keysHint });
      return key;
    },
    find: (kid) => watched.current()?.find((key) => key.kid === kid),
    isReadable: () => watched.current() !== undefined,
    problems() {
      const why = watched.problem();
      const effect = watched.current() === undefined ? 'no link works' : 'no link works after the next start';
      return why === undefined ? [] : [{ code: 'link_keys_unreadable', what: `${effect}: ${why}`, todo: keysHint }];
    },
    close: () => watched.close(),
  };
}
