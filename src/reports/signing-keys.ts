import { randomBytes } from 'node:crypto';
import path from 'node:path';
import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { ensureFolder, findTextFile, writeFileDurably } from '../runtime/files/durable-file.ts';
import { AppError } from '../runtime/errors.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import type { Logger } from '../runtime/logger.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';
import { watchOptionalFile } from '../runtime/files/watched-file.ts';

/** A key that signs or verifies links. The secret never leaves the process. */
export interface SigningKey {
  /** Key id: 8 lower-case hex digits, part of each link. */
  readonly kid: string;
  readonly secret: Buffer;
}

/** The link keys in force, renewed from the file within a second of a rotation by another process. */
export interface SigningKeys {
  /** The key that signs new links. */
  current(): SigningKey;
  find(kid: string): SigningKey | undefined;
  /** False: no link can be signed or verified. */
  isReadable(): boolean;
  problems(): readonly Problem[];
  close(): void;
}

interface KeyRecord {
  readonly kid: string;
  /** 32 bytes, hex. */
  readonly secret: string;
  readonly createdMs: number;
  /** When a newer key took over; absent on the current one. */
  readonly retiredMs?: number;
}

/**
 * The longest life a link may have (TRIBUTARY_LINK_TTL_SECONDS is at most that): then a retired key has no live link
 * left.
 */
const longestLinkMs = 604_800_000;
const lockWaitMs = 5000;

const keysHint =
  "Restore it from a backup, or remove it and run 'tributary key rotate': links given out before then stop working.";

/** Path of the key file: JSON, mode 0600, the current key last. */
export function signingKeysPath(keysDir: string): string {
  return path.join(keysDir, 'links.json');
}

function parseKeys(file: string, text: string): readonly KeyRecord[] {
  let records: unknown;
  try {
    records = parseChecked(text)['keys'];
  } catch {
    records = undefined;
  }
  const valid = (record: Partial<KeyRecord> | null): boolean =>
    typeof record === 'object' &&
    record !== null &&
    /^[0-9a-f]{8}$/.test(String(record.kid)) &&
    /^[0-9a-f]{64}$/.test(String(record.secret)) &&
    Number.isSafeInteger(record.createdMs);
  if (!Array.isArray(records) || records.length === 0 || !records.every(valid)) {
    throw new AppError('link_keys_damaged', `${file} does not hold link keys`, {
      hint: keysHint,
    });
  }
  return records as KeyRecord[];
}

async function changeKeys<T>(
  keysDir: string,
  change: (keys: readonly KeyRecord[]) => { keys: readonly KeyRecord[]; answer: T } | T,
): Promise<T> {
  await ensureFolder(keysDir);
  const file = signingKeysPath(keysDir);
  const lock = await waitForLock(keysDir, 'a change of the link keys', lockWaitMs);
  try {
    const text = await findTextFile(file);
    const changed = change(text === undefined ? [] : parseKeys(file, text));
    if (typeof changed !== 'object' || changed === null || !('keys' in changed)) return changed;
    await writeFileDurably(file, renderChecked({ keys: changed.keys }));
    return changed.answer;
  } finally {
    lock.release();
  }
}

function newKey(nowMs: number): KeyRecord {
  return { kid: randomBytes(4).toString('hex'), secret: randomBytes(32).toString('hex'), createdMs: nowMs };
}

/** Creates the first key when there is none. */
export async function ensureSigningKeys(keysDir: string, clock: Clock): Promise<void> {
  await changeKeys(keysDir, (keys) =>
    keys.length > 0 ? undefined : { keys: [newKey(clock.nowMs())], answer: undefined },
  );
}

/**
 * Makes a new current key. The ones before verify on until every link they may have signed has ended, then go at a
 * later rotation. A running service signs with the new key within a second. Durable when it returns.
 */
export async function rotateSigningKey(keysDir: string, clock: Clock): Promise<{ kid: string; retired: string[] }> {
  const nowMs = clock.nowMs();
  const key = newKey(nowMs);
  return changeKeys(keysDir, (keys) => {
    const kept = keys
      .map((old) => ({ ...old, retiredMs: old.retiredMs ?? nowMs }))
      .filter((old) => old.retiredMs + longestLinkMs > nowMs && old.kid !== key.kid);
    return { keys: [...kept, key], answer: { kid: key.kid, retired: kept.map((old) => old.kid) } };
  });
}

/**
 * Opens the keys, creating the first one on first use, unless links were given out (`isInUse`): with new keys those
 * would be refused as forged. Keys that are damaged, or gone, are a problem: while running, the last good ones stay;
 * from the start on, no link is signed or verified until they can be read.
 */
export async function openSigningKeys(
  keysDir: string,
  clock: Clock,
  logger: Logger,
  isInUse = false,
): Promise<SigningKeys> {
  const file = signingKeysPath(keysDir);
  if ((await findTextFile(file)) === undefined && !isInUse) await ensureSigningKeys(keysDir, clock);
  const load = (): readonly SigningKey[] => {
    const text = findTextFileSync(file);
    if (text === undefined)
      throw new AppError('link_keys_damaged', `${file} is gone, beside report files whose links it verifies`, {
        hint: keysHint,
      });
    return parseKeys(file, text).map(({ kid, secret }) => ({ kid, secret: Buffer.from(secret, 'hex') }));
  };
  const watched = watchOptionalFile(file, load, logger);
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
