import path from 'node:path';
import { platforms, type Platform } from '../datasets/field-schema.ts';
import { noAccount } from './access.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { ensureDataFolder } from '../runtime/files/data-folder.ts';
import { writeFileDurably } from '../runtime/files/durable-file.ts';
import { findTextFileSync } from '../runtime/files/text-file.ts';
import { createMutex } from '../runtime/async/mutex.ts';
import { AppError, describeError } from '../runtime/errors.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { findRevision, keepRevision, revisionPath } from './revision.ts';

/** Where the access data rests. */
export interface AccessPaths {
  /** access.json */
  readonly access: string;
  /** Folder of the keys. */
  readonly keys: string;
}

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

/**
 * An app that was removed: its id is never given to another one, whose exports would show the rows that it has left.
 */
export interface RemovedApp extends Omit<AppRecord, 'tokens'> {
  /** ISO time. */
  readonly removedAt: string;
}

/** A user at rest; `sealedSecret` is encrypted under keys/secrets.key. */
export interface UserRecord {
  readonly idUser: number;
  readonly name: string;
  readonly idAccount: number;
  readonly sealedSecret: string;
  readonly canExport: boolean;
  readonly maxExports?: number;
  /** Absent: auto. */
  readonly files?: 'gzip';
  /** Absent: no operator. One who belongs to no account has `noAccount`. */
  readonly operator?: true;
}

/** The whole of access.json, without the checksum it carries (runtime/files/checked-json.ts). */
export interface AccessFile {
  /** User ids grow and are never given twice. */
  readonly nextIdUser: number;
  /** Counts the changes; absent before version 0.3. */
  readonly revision?: number;
  readonly apps: readonly AppRecord[];
  /** Absent while none was removed, and before version 0.3. */
  readonly removedApps?: readonly RemovedApp[];
  readonly users: readonly UserRecord[];
}

const empty: AccessFile = { nextIdUser: 1, apps: [], users: [] };

const isId = (value: unknown): boolean => typeof value === 'number' && Number.isSafeInteger(value) && value >= 1;
const isOptionalId = (value: unknown): boolean => value === undefined || isId(value);

function isDescribed(app: Omit<AppRecord, 'tokens'>): boolean {
  return (
    isId(app.idApp) &&
    isId(app.idAccount) &&
    isOptionalId(app.idProject) &&
    platforms.includes(app.platform) &&
    typeof app.title === 'string' &&
    typeof app.sdkKey === 'string'
  );
}

function isApp(app: AppRecord): boolean {
  return (
    isDescribed(app) &&
    app.tokens.every((token) => /^[0-9a-f]{64}$/.test(token.sha256) && typeof token.prefix === 'string')
  );
}

function isRemovedApp(app: RemovedApp): boolean {
  return isDescribed(app) && typeof app.removedAt === 'string';
}

function isUser(user: UserRecord): boolean {
  return (
    isId(user.idUser) &&
    [undefined, true].includes(user.operator) &&
    (isId(user.idAccount) || (user.operator !== undefined && user.idAccount === noAccount)) &&
    isOptionalId(user.maxExports) &&
    (user.files === undefined || user.files === 'gzip') &&
    typeof user.name === 'string' &&
    typeof user.sealedSecret === 'string' &&
    typeof user.canExport === 'boolean'
  );
}

function parseAccessFile(file: string): AccessFile | undefined {
  try {
    const text = findTextFileSync(file);
    if (text === undefined) return undefined;
    const { version, ...rest } = parseChecked(text);
    const access = rest as unknown as AccessFile;
    const isWhole =
      isId(access.nextIdUser) &&
      access.apps.every(isApp) &&
      (access.removedApps ?? []).every(isRemovedApp) &&
      access.users.every(isUser);
    if (![1, 2].includes(version as number) || !isWhole) {
      throw new Error('its content is not what this version writes');
    }
    return access;
  } catch (error) {
    throw new AppError('access_damaged', `${file} cannot be read: ${describeError(error)}`, {
      hint: 'Restore access.json from a backup. If it was edited by hand, set its version to 1 and remove sha256: the next command adds them again.',
      cause: error,
    });
  }
}

/**
 * Reads access.json; undefined when there is none. `access_damaged` when it is damaged, not what this version or the
 * one before writes, or an older copy of itself.
 */
export function findAccessFile({ access: file, keys }: AccessPaths): AccessFile | undefined {
  // First: a command that changes the file meanwhile must not make the one that is read look old.
  const reached = findRevision(keys);
  const access = parseAccessFile(file);
  if (access === undefined) return undefined;
  if (reached !== undefined && (access.revision ?? 0) < reached) {
    throw new AppError(
      'access_damaged',
      `${file} is an older copy: it has revision ${access.revision ?? 0}, and ${reached} was there before`,
      {
        hint: `Restore the newest copy; if this one is meant, remove ${revisionPath(keys)}.`,
      },
    );
  }
  return access;
}

/** Says that there was an access.json here, whether there is one now or not. */
export function hadAccessFile({ keys }: AccessPaths): boolean {
  return findRevision(keys) !== undefined;
}

/**
 * Reads access.json to change it; an empty one where none ever was; `access_damaged` as `findAccessFile`, and when it
 * is gone.
 */
export function readAccessFile(paths: AccessPaths): AccessFile {
  const access = findAccessFile(paths);
  if (access === undefined && hadAccessFile(paths)) {
    throw new AppError('access_damaged', `${paths.access} is gone`, {
      hint: `Restore it from a backup; to begin anew without its apps and users, remove ${revisionPath(paths.keys)}.`,
    });
  }
  return access ?? empty;
}

/** Remembers the access.json that is here, where a version before 0.3 has written it. */
export async function keepAccessRevision(paths: AccessPaths): Promise<void> {
  if (hadAccessFile(paths)) return;
  const access = findAccessFile(paths);
  if (access !== undefined) await keepRevision(paths.keys, access.revision ?? 0);
}

/** A change as a function of the file before it; it has no other effect. */
type Change<T> = (access: AccessFile) => { access: AccessFile; answer: T };

/** Those of this process take turns: each look for the lock stops the process, the one that has it among them. */
const turns = createMutex();

/**
 * Changes access.json under the lock of the keys: reads it, applies `change`, and writes it whole and durably. An error
 * thrown by `change` leaves the file as it was.
 */
export function changeAccessFile<T>(paths: AccessPaths, change: Change<T>): Promise<T> {
  return turns.run(() => changeLocked(paths, change));
}

async function changeLocked<T>(paths: AccessPaths, change: Change<T>): Promise<T> {
  // What fails on an empty file is to create nothing.
  if (findAccessFile(paths) === undefined && !hadAccessFile(paths)) change(empty);
  await ensureDataFolder(path.dirname(paths.access), [paths.keys]);
  const lock = await waitForLock(paths.keys, 'an access command', 10_000);
  try {
    const before = readAccessFile(paths);
    const { access, answer } = change(before);
    const revision = (before.revision ?? 0) + 1;
    await writeFileDurably(paths.access, renderChecked({ ...access, revision }, 2));
    // Second: a crash between the two leaves a file that is newer than what is kept, which is no older copy.
    await keepRevision(paths.keys, revision);
    return answer;
  } finally {
    lock.release();
  }
}
