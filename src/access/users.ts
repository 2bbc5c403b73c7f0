import path from 'node:path';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { AppError } from '../runtime/errors.ts';
import { changeAccessFile, readAccessFile, type AccessFile, type AccessPaths, type UserRecord } from './access-file.ts';
import { noAccount, type FileHabit } from './access.ts';
import { createToken, ensureSecretsKey, getSecretsKey, openSecret, sealSecret } from './secrets.ts';

/**
 * Takes access back. Every running process sees it within a second; what it ends:
 *
 * - a removed app: its imports, also those whose body is still coming in, are answered 403; exports leave its rows out,
 *   those that run begin anew. What was acknowledged before is in the stream or the lake and stays until it is erased.
 * - a removed user: calls are answered 403, requests of the user that wait or run are canceled, and every link that was
 *   given to the user is refused; a download under way is cut off.
 * - a new secret: calls with the old one, and the links that were given out under it.
 *
 * An id of an app or a user that was removed is never given to another one.
 */

export interface NewUser {
  readonly name: string;
  /** `noAccount`: none, which an operator may have. */
  readonly idAccount: number;
  readonly canExport: boolean;
  readonly maxExports?: number;
  /** Absent: auto. */
  readonly files?: 'gzip';
  /** May look at how the service is, and change apps and users. Absent: no. */
  readonly operator?: true;
}

/** What may be changed of a user; what is absent stays. */
export interface UserSettings {
  readonly canExport?: boolean;
  /** null: as many as the account. */
  readonly maxExports?: number | null;
  readonly files?: FileHabit;
}

/** A line of `tributary user list`. */
export interface ListedUser {
  readonly idUser: string;
  readonly name: string;
  /** Absent: an operator who belongs to none. */
  readonly idAccount?: string;
  readonly canExport: boolean;
  readonly maxExports?: number;
  readonly files: FileHabit;
  /** Present where the user is one. */
  readonly operator?: true;
}

/** A user as they are listed. */
export function toListedUser(user: UserRecord): ListedUser {
  const { idUser, name, idAccount, canExport, maxExports, files, operator } = user;
  return {
    idUser: String(idUser),
    name,
    ...(idAccount === noAccount ? {} : { idAccount: String(idAccount) }),
    canExport,
    ...(maxExports === undefined ? {} : { maxExports }),
    files: files ?? 'auto',
    ...(operator === undefined ? {} : { operator }),
  };
}

/** The users by id. `access_damaged` as `readAccessFile`. */
export async function listUsers(paths: AccessPaths): Promise<ListedUser[]> {
  const { users } = await readAccessFile(paths);
  return users.toSorted((a, b) => a.idUser - b.idUser).map(toListedUser);
}

/**
 * Refuses an account that nobody has: an account is there with its first app, live or removed, or its first user.
 * Errors: `not_found`; `access_damaged` as `readAccessFile`.
 */
export async function assertAccount(paths: AccessPaths, idAccount: number): Promise<void> {
  const { apps, removedApps = [], users } = await readAccessFile(paths);
  if (idAccount !== noAccount && [...apps, ...removedApps, ...users].some((each) => each.idAccount === idAccount))
    return;
  throw new AppError('not_found', `there is no account ${idAccount}: no app and no user has it`, {
    hint: "'tributary app list' and 'tributary user list' name the accounts.",
  });
}

/** The error for a user who is not there; says so when the user was removed. */
function noSuchUser({ nextIdUser }: Pick<AccessFile, 'nextIdUser'>, idUser: number): AppError {
  const what = idUser < nextIdUser ? `user ${idUser} was removed` : `there is no user ${idUser}`;
  return new AppError('not_found', what, {
    hint: "'tributary user list' shows the users; 'tributary user add' adds one, under an id of its own.",
  });
}

/** Returns a user. Error: `not_found`. */
function getUser(access: AccessFile, idUser: number): UserRecord {
  const user = access.users.find((candidate) => candidate.idUser === idUser);
  if (user === undefined) throw noSuchUser(access, idUser);
  return user;
}

/** Returns the access data with another record of a user. */
function withUser(access: AccessFile, changed: UserRecord): AccessFile {
  return { ...access, users: access.users.map((user) => (user.idUser === changed.idUser ? changed : user)) };
}

/**
 * Adds a user of the export area. The secret is shown this once and rests encrypted. `conflict`: the account has a user
 * of that name. `access_damaged`: the key that the other users' secrets rest under is damaged or gone.
 */
export async function addUser(paths: AccessPaths, user: NewUser): Promise<{ idUser: string; secret: string }> {
  await ensureDataFolder(path.dirname(paths.access));
  const { users } = await readAccessFile(paths);
  // A new key beside users of a lost one would lock those out for good; and a damaged one would lock this user out once
  // it is restored.
  const key = users.length > 0 ? await getSecretsKey(paths.keys) : await ensureSecretsKey(paths.keys);
  for (const { sealedSecret, idUser } of users.slice(0, 1)) openSecret(key, sealedSecret, String(idUser));
  const secret = createToken();
  return changeAccessFile(paths, (access) => {
    const namesake = access.users.find((other) => other.idAccount === user.idAccount && other.name === user.name);
    if (namesake !== undefined) {
      const where = user.idAccount === noAccount ? 'there is an operator' : `account ${user.idAccount} has a user`;
      throw new AppError('conflict', `${where} ${user.name} already: ${namesake.idUser}`, {
        hint: `'tributary user secret ${namesake.idUser}' gives that one a new secret; another user needs another name.`,
      });
    }
    const idUser = access.nextIdUser;
    const added = {
      idUser,
      name: user.name,
      idAccount: user.idAccount,
      sealedSecret: sealSecret(key, secret, String(idUser)),
      canExport: user.canExport,
      ...(user.maxExports === undefined ? {} : { maxExports: user.maxExports }),
      ...(user.files === undefined ? {} : { files: user.files }),
      ...(user.operator === undefined ? {} : { operator: user.operator }),
    };
    return {
      access: { ...access, nextIdUser: idUser + 1, users: [...access.users, added] },
      answer: { idUser: String(idUser), secret },
    };
  });
}

/** Removes a user. `not_found`: there is none, or it was removed already. */
export async function removeUser(paths: AccessPaths, idUser: number): Promise<{ idUser: string; name: string }> {
  return changeAccessFile(paths, (access) => {
    const user = getUser(access, idUser);
    return {
      access: { ...access, users: access.users.filter((other) => other.idUser !== idUser) },
      answer: { idUser: String(idUser), name: user.name },
    };
  });
}

/**
 * Gives a user a new secret, which is shown this once; the old one ends. `not_found`: there is no such user.
 * `access_damaged`: the key of the users' secrets is damaged or gone; where this user is the only one, a new key is
 * made.
 */
export async function renewSecret(paths: AccessPaths, idUser: number): Promise<{ idUser: string; secret: string }> {
  const before = await readAccessFile(paths);
  getUser(before, idUser);
  const [witness] = before.users.filter((user) => user.idUser !== idUser);
  const key = witness === undefined ? await ensureSecretsKey(paths.keys) : await getSecretsKey(paths.keys);
  // Under another key than the other users' the secret would be lost when theirs is restored. Its own may be what is
  // damaged.
  if (witness !== undefined) openSecret(key, witness.sealedSecret, String(witness.idUser));
  const secret = createToken();
  return changeAccessFile(paths, (access) => {
    const changed = { ...getUser(access, idUser), sealedSecret: sealSecret(key, secret, String(idUser)) };
    return { access: withUser(access, changed), answer: { idUser: String(idUser), secret } };
  });
}

/**
 * Changes a user; in force within a second everywhere, for what is asked from then on. Errors: `not_found`; `usage`
 * where an operator without an account is to order exports.
 */
export function setUser(paths: AccessPaths, idUser: number, settings: UserSettings): Promise<ListedUser> {
  return changeAccessFile(paths, (access) => {
    const user = getUser(access, idUser);
    const { maxExports: before, files: filesBefore, ...kept } = user;
    const { canExport = user.canExport, maxExports, files = filesBefore } = settings;
    if (canExport && user.idAccount === noAccount)
      throw new AppError('usage', `user ${idUser} belongs to no account, and has no rows to export`, {
        hint: "'tributary user add' adds a user of an account.",
      });
    const most = maxExports === undefined ? before : (maxExports ?? undefined);
    const changed = {
      ...kept,
      canExport,
      ...(most === undefined ? {} : { maxExports: most }),
      ...(files === 'gzip' ? { files } : {}),
    };
    return { access: withUser(access, changed), answer: toListedUser(changed) };
  });
}
