import { AppError } from '../runtime/errors.ts';
import { noAccount, type FileHabit } from './access.ts';
import { changeAccessFile, type AccessPaths } from './access-file.ts';
import { noSuchApp } from './commands.ts';
import { toListedApp, toListedUser, type ListedApp, type ListedUser } from './listing.ts';
import { noSuchUser } from './take-back.ts';

/**
 * What may be changed of an app; what is absent stays. Its account, platform and SDK key may not: they say whose its
 * rows are, and what is in them.
 */
export interface AppSettings {
  readonly title?: string;
  /** null: none. */
  readonly idProject?: number | null;
}

/** What may be changed of a user; what is absent stays. */
export interface UserSettings {
  readonly canExport?: boolean;
  /** null: as many as the account. */
  readonly maxExports?: number | null;
  readonly files?: FileHabit;
}

/** Changes an app; in force within a second everywhere. Errors: `not_found`. */
export function setApp(paths: AccessPaths, idApp: number, { title, idProject }: AppSettings): Promise<ListedApp> {
  return changeAccessFile(paths, (access) => {
    const app = access.apps.find((candidate) => candidate.idApp === idApp);
    if (app === undefined) throw noSuchApp(access, idApp);
    const { idProject: before, ...kept } = app;
    const after = idProject === undefined ? before : (idProject ?? undefined);
    const changed = {
      ...kept,
      ...(title === undefined ? {} : { title }),
      ...(after === undefined ? {} : { idProject: after }),
    };
    const apps = access.apps.map((other) => (other === app ? changed : other));
    return { access: { ...access, apps }, answer: toListedApp(changed) };
  });
}

/**
 * Changes a user; in force within a second everywhere, for what is asked from then on. Errors: `not_found`; `usage`
 * where an operator without an account is to order exports.
 */
export function setUser(paths: AccessPaths, idUser: number, settings: UserSettings): Promise<ListedUser> {
  return changeAccessFile(paths, (access) => {
    const user = access.users.find((candidate) => candidate.idUser === idUser);
    if (user === undefined) throw noSuchUser(access, idUser);
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
    const users = access.users.map((other) => (other === user ? changed : other));
    return { access: { ...access, users }, answer: toListedUser(changed) };
  });
}
