import { noAccount, type FileHabit } from './access.ts';
import type { Platform } from '../datasets/field-schema.ts';
import { AppError } from '../runtime/errors.ts';
import { readAccessFile, type AccessPaths, type AppRecord, type UserRecord } from './access-file.ts';

/** A line of `tributary app list`. Ids are texts, as in every answer. */
export interface ListedApp {
  readonly idApp: string;
  readonly platform: Platform;
  readonly title: string;
  readonly idAccount: string;
  readonly idProject?: string;
  readonly sdkKey: string;
  /** The live tokens by their first characters; empty for an app that was removed. */
  readonly tokens: readonly { readonly prefix: string; readonly createdAt: string }[];
  /** ISO time; of a removed app. */
  readonly removedAt?: string;
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

/** An app as it is listed. */
export function toListedApp(app: AppRecord & { readonly removedAt?: string | undefined }): ListedApp {
  const { idApp, platform, title, idAccount, idProject, sdkKey, tokens, removedAt } = app;
  return {
    idApp: String(idApp),
    platform,
    title,
    idAccount: String(idAccount),
    ...(idProject === undefined ? {} : { idProject: String(idProject) }),
    sdkKey,
    tokens: tokens.map(({ prefix, createdAt }) => ({ prefix, createdAt })),
    ...(removedAt === undefined ? {} : { removedAt }),
  };
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

/** The apps by id: the live ones, or those that were removed. `access_damaged` as `readAccessFile`. */
export async function listApps(paths: AccessPaths, removed = false): Promise<ListedApp[]> {
  const { apps, removedApps = [] } = await readAccessFile(paths);
  const listed = removed
    ? removedApps.map((app) => ({ ...app, tokens: [] }))
    : apps.map((app) => ({ ...app, removedAt: undefined }));
  return listed.toSorted((a, b) => a.idApp - b.idApp).map(toListedApp);
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
