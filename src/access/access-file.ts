import { readFileSync } from 'node:fs';
import path from 'node:path';
import { platforms, type Platform } from '../model/event-kinds.ts';
import { parseChecked, renderChecked } from '../runtime/checked-json.ts';
import { ensureFolder, writeFileDurably } from '../runtime/durable-file.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { waitForLock } from '../runtime/lock.ts';

/** A live import token at rest. */
export interface TokenRecord {
  /** First characters of the token, to name it by. */
  readonly prefix: string;
  /** SHA-256 of the token, hex. */
  readonly sha256: string;
  /** ISO time. */
  readonly createdAt: string;
}

/** An app at rest. */
export interface AppRecord {
  readonly idApp: number;
  readonly platform: Platform;
  readonly title: string;
  readonly sdkKey: string;
  readonly idAccount: number;
  readonly idProject?: number;
  readonly tokens: readonly TokenRecord[];
}

/** A user at rest; `sealedSecret` is encrypted under keys/secrets.key. */
export interface UserRecord {
  readonly idUser: number;
  readonly name: string;
  readonly idAccount: number;
  readonly sealedSecret: string;
  readonly canExport: boolean;
  readonly maxExports?: number;
}

/** The whole of access.json, without the checksum it carries (runtime/checked-json.ts). */
export interface AccessFile {
  /** User ids grow and are never given twice. */
  readonly nextIdUser: number;
  readonly apps: readonly AppRecord[];
  readonly users: readonly UserRecord[];
}

const empty: AccessFile = { nextIdUser: 1, apps: [], users: [] };

const isId = (value: unknown): boolean => typeof value === 'number' && Number.isSafeInteger(value) && value >= 1;
const isOptionalId = (value: unknown): boolean => value === undefined || isId(value);

function isApp(app: AppRecord): boolean {
  return (
    isId(app.idApp) && isId(app.idAccount) && isOptionalId(app.idProject) && platforms.includes(app.platform) &&
    typeof app.title === 'string' && typeof app.sdkKey === 'string' &&
    app.tokens.every((token) => /^[0-9a-f]{64}$/.test(token.sha256) && typeof token.prefix === 'string')
  );
}

function isUser(user: UserRecord): boolean {
  return (
    isId(user.idUser) && isId(user.idAccount) && isOptionalId(user.maxExports) && typeof user.name === 'string' &&
    typeof user.sealedSecret === 'string' && typeof user.canExport === 'boolean'
  );
}

/** Reads access.json; an empty one when there is none; `corrupt` when it is damaged, or not what this version or the one before writes. */
export function readAccessFile(file: string): AccessFile {
  try {
    const { version, ...rest } = parseChecked(readFileSync(file, 'utf8'));
    const access = rest as unknown as AccessFile;
    if (![1, 2].includes(version as number) || !isId(access.nextIdUser) || !access.apps.every(isApp) || !access.users.every(isUser)) {
      throw new Error('its content is not what this version writes');
    }
    return access;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return empty;
    throw new AppError('corrupt', `${file} cannot be read: ${describeError(error)}`, {
      hint: 'Restore access.json from a backup. If it was edited by hand, set its version to 1 and remove sha256: the next command adds them again.',
      cause: error,
    });
  }
}

/**
 * Changes access.json under its lock: reads it, applies `change`, writes it whole and durably. An error thrown by
 * `change` leaves the file as it was.
 */
export async function changeAccessFile<T>(file: string, change: (access: AccessFile) => { access: AccessFile; answer: T }): Promise<T> {
  await ensureFolder(path.dirname(file));
  const lock = await waitForLock(`${file}.lock`, 'an access command', 10_000);
  try {
    const { access, answer } = change(readAccessFile(file));
    await writeFileDurably(file, renderChecked({ ...access }, 2));
    return answer;
  } finally {
    lock.release();
  }
}
