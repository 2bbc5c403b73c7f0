import path from 'node:path';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { AppError } from '../runtime/errors.ts';
import { changeAccessFile, readAccessFile, type AccessFile, type AccessPaths, type UserRecord } from './access-file.ts';
import { noAccount, type FilePreferences } from './access.ts';
import { createToken, ensureSecretsKey, getSecretsKey, decryptSecret, encryptSecret } from './secrets.ts';

/**
 * Users of the export area. Each running process sees a change within a second:
 *
 * - a removed app: imports get 403, also while their body is arriving; exports omit its rows, and running ones
 *   restart. Acknowledged events stay in the stream or the lake until they are erased.
 * - a removed user: calls get 403, export requests are canceled, links and running downloads end.
 * - a new secret: the old one and the links signed under it end.
 *
 * The id of a removed app or user is never used again.
 */

/** A user to add. `idAccount` is `noAccount` only for operators. */
export type NewUser = Omit<UserRecord, 'idUser' | 'encryptedSecret' | 'passwordHash'>;

/** Settings of a user; absent members stay. */
export interface UserSettings {
  readonly canExport?: boolean;
  /** null: the account's limit. */
  readonly maxExports?: number | null;
  readonly files?: FilePreferences;
}

export interface ListedUser {
  readonly idUser: string;
  readonly name: string;
  /** Absent for an operator without an account. */
  readonly idAccount?: string;
  readonly canExport: boolean;
  readonly maxExports?: number;
  readonly files: FilePreferences;
  readonly operator?: true;
  /** Whether the user can sign in to the console with a personal password. */
  readonly hasPassword?: true;
}

export function toListedUser(user: UserRecord): ListedUser {
  const { idUser, name, idAccount, canExport, maxExports, files, operator, passwordHash } = user;
  return {
    idUser: String(idUser),
    name,
    ...(idAccount === noAccount ? {} : { idAccount: String(idAccount) }),
    canExport,
    ...(maxExports === undefined ? {} : { maxExports }),
    files: files ?? 'auto',
    ...(operator === undefined ? {} : { operator }),
    ...(passwordHash === undefined ? {} : { hasPassword: true as const }),
  };
}

export async function listUsers(paths: AccessPaths): Promise<ListedUser[]> {
  const { users } = await readAccessFile(paths);
  return users.toSorted((a, b) => a.idUser - b.idUser).map(toListedUser);
}

/**
 * Throws `not_found` for an account without a user and without a live or removed app. Errors: also `access_damaged`.
 */
export async function assertAccount(paths: AccessPaths, idAccount: number): Promise<void> {
  const { apps, removedApps = [], users } = await readAccessFile(paths);
  if (idAccount !== noAccount && [...apps, ...removedApps, ...users].some((each) => each.idAccount === idAccount))
    return;
  throw new AppError('not_found', `account ${idAccount} does not exist: no app and no user has it`, {
    hint: "Run 'tributary app list' or 'tributary user list' for the accounts.",
  });
}

function getUser({ users, nextIdUser }: AccessFile, idUser: number): UserRecord {
  const user = users.find((candidate) => candidate.idUser === idUser);
  if (user !== undefined) return user;
  throw new AppError(
    'not_found',
    idUser < nextIdUser ? `user ${idUser} was removed` : `user ${idUser} does not exist`,
    {
      hint: "Run 'tributary user list' for the users, or 'tributary user add' to add one.",
    },
  );
}

export async function changeUser(
  paths: AccessPaths,
  idUser: number,
  change: (user: UserRecord) => UserRecord,
): Promise<UserRecord> {
  return await changeAccessFile(paths, (access) => {
    const user = getUser(access, idUser);
    const result = change(user);
    return { access: { ...access, users: access.users.map((other) => (other === user ? result : other)) }, result };
  });
}

/**
 * Adds a user and returns the secret, which cannot be shown again: it is stored encrypted. Errors: `conflict` if the
 * account has a user of that name; `access_damaged` if the key of the other users' secrets is damaged or missing.
 */
export async function addUser(paths: AccessPaths, user: NewUser): Promise<{ idUser: string; secret: string }> {
  await ensureDataFolder(path.dirname(paths.access));
  const { users } = await readAccessFile(paths);
  // A new key would lock out the users of a lost key permanently; a damaged key would lock out this user once restored.
  const key = users.length > 0 ? await getSecretsKey(paths.keys) : await ensureSecretsKey(paths.keys);
  for (const { encryptedSecret, idUser } of users.slice(0, 1)) decryptSecret(key, encryptedSecret, String(idUser));
  const secret = createToken();
  return changeAccessFile(paths, (access) => {
    const namesake = access.users.find((other) => other.idAccount === user.idAccount && other.name === user.name);
    if (namesake !== undefined) {
      const where = user.idAccount === noAccount ? 'without an account' : `in account ${user.idAccount}`;
      throw new AppError('conflict', `user ${user.name} already exists ${where}: ${namesake.idUser}`, {
        hint: `Run 'tributary user rotate-secret ${namesake.idUser}' for a new secret, or pass another name.`,
      });
    }
    const idUser = access.nextIdUser;
    const { name, idAccount, canExport, maxExports, files, operator } = user;
    const added = {
      idUser,
      name,
      idAccount,
      encryptedSecret: encryptSecret(key, secret, String(idUser)),
      canExport,
      ...(maxExports === undefined ? {} : { maxExports }),
      ...(files === undefined ? {} : { files }),
      ...(operator === undefined ? {} : { operator }),
    };
    return {
      access: { ...access, nextIdUser: idUser + 1, users: [...access.users, added] },
      result: { idUser: String(idUser), secret },
    };
  });
}

export async function removeUser(paths: AccessPaths, idUser: number): Promise<{ idUser: string; name: string }> {
  return changeAccessFile(paths, (access) => {
    const user = getUser(access, idUser);
    return {
      access: { ...access, users: access.users.filter((other) => other.idUser !== idUser) },
      result: { idUser: String(idUser), name: user.name },
    };
  });
}

/**
 * Rotates a user's secret and returns the new one, which cannot be shown again. Creates a new key if this is the only
 * user. Errors: `not_found`; `access_damaged` if the key of the users' secrets is damaged or missing.
 */
export async function rotateUserSecret(
  paths: AccessPaths,
  idUser: number,
): Promise<{ idUser: string; secret: string }> {
  const before = await readAccessFile(paths);
  getUser(before, idUser);
  const [witness] = before.users.filter((user) => user.idUser !== idUser);
  const key = witness === undefined ? await ensureSecretsKey(paths.keys) : await getSecretsKey(paths.keys);
  // A secret under another key than the other users' would be lost when their key is restored. This user's old secret
  // may be the damaged one.
  if (witness !== undefined) decryptSecret(key, witness.encryptedSecret, String(witness.idUser));
  const secret = createToken();
  await changeUser(paths, idUser, (user) => ({ ...user, encryptedSecret: encryptSecret(key, secret, String(idUser)) }));
  return { idUser: String(idUser), secret };
}

/**
 * Changes the settings of a user; effective for later calls everywhere within a second. Errors: `not_found`; `usage` if
 * an operator without an account may create exports.
 */
export async function setUser(paths: AccessPaths, idUser: number, settings: UserSettings): Promise<ListedUser> {
  const changed = await changeUser(paths, idUser, (user) => {
    const { maxExports: before, files: filesBefore, ...unchanged } = user;
    const { canExport = user.canExport, maxExports, files = filesBefore } = settings;
    if (canExport && user.idAccount === noAccount)
      throw new AppError('usage', `user ${idUser} has no account, and cannot create exports`, {
        hint: "Run 'tributary user add' to add a user of an account.",
      });
    const newMaxExports = maxExports === undefined ? before : (maxExports ?? undefined);
    return {
      ...unchanged,
      canExport,
      ...(newMaxExports === undefined ? {} : { maxExports: newMaxExports }),
      ...(files === 'gzip' ? { files } : {}),
    };
  });
  return toListedUser(changed);
}
