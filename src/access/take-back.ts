import { AppError } from '../runtime/errors.ts';
import { changeAccessFile, readAccessFile, type AccessFile, type AccessPaths } from './access-file.ts';
import { newToken, noSuchApp } from './commands.ts';
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

/** Removes an app with all its tokens. `not_found`: there is none, or it was removed already. */
export async function removeApp(
  paths: AccessPaths,
  idApp: number,
  nowMs: number,
): Promise<{ idApp: string; removedAt: string; revoked: readonly string[] }> {
  const removedAt = new Date(nowMs).toISOString();
  return changeAccessFile(paths, (access) => {
    const app = access.apps.find((candidate) => candidate.idApp === idApp);
    if (app === undefined) throw noSuchApp(access, idApp);
    const { tokens, ...kept } = app;
    const changed: AccessFile = {
      ...access,
      apps: access.apps.filter((other) => other.idApp !== idApp),
      removedApps: [...(access.removedApps ?? []), { ...kept, removedAt }],
    };
    return {
      access: changed,
      answer: { idApp: String(idApp), removedAt, revoked: tokens.map(({ prefix }) => prefix) },
    };
  });
}

/** Brings a removed app back as it was, with a new token, which is shown this once. `conflict`: it was not removed. */
export async function restoreApp(
  paths: AccessPaths,
  idApp: number,
  nowMs: number,
): Promise<{ idApp: string; token: string }> {
  const { token, record } = newToken(nowMs);
  return changeAccessFile(paths, (access) => {
    const removed = access.removedApps?.find((app) => app.idApp === idApp);
    if (removed === undefined && access.apps.some((app) => app.idApp === idApp)) {
      throw new AppError('conflict', `app ${idApp} is there: it was not removed`, {
        hint: `A further token comes from 'tributary app token ${idApp}'.`,
      });
    }
    if (removed === undefined) throw noSuchApp(access, idApp);
    const { removedAt: _, ...app } = removed;
    const changed: AccessFile = {
      ...access,
      apps: [...access.apps, { ...app, tokens: [record] }],
      removedApps: access.removedApps?.filter((other) => other !== removed) ?? [],
    };
    return { access: changed, answer: { idApp: String(idApp), token } };
  });
}

/** The error for a user who is not there; says so when the user was removed. */
export function noSuchUser({ nextIdUser }: Pick<AccessFile, 'nextIdUser'>, idUser: number): AppError {
  const what = idUser < nextIdUser ? `user ${idUser} was removed` : `there is no user ${idUser}`;
  return new AppError('not_found', what, {
    hint: "'tributary user list' shows the users; 'tributary user add' adds one, under an id of its own.",
  });
}

/** Removes a user. `not_found`: there is none, or it was removed already. */
export async function removeUser(paths: AccessPaths, idUser: number): Promise<{ idUser: string; name: string }> {
  return changeAccessFile(paths, (access) => {
    const user = access.users.find((candidate) => candidate.idUser === idUser);
    if (user === undefined) throw noSuchUser(access, idUser);
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
  if (!before.users.some((user) => user.idUser === idUser)) throw noSuchUser(before, idUser);
  const [witness] = before.users.filter((user) => user.idUser !== idUser);
  const key = witness === undefined ? await ensureSecretsKey(paths.keys) : await getSecretsKey(paths.keys);
  // Under another key than the other users' the secret would be lost when theirs is restored. Its own may be what is
  // damaged.
  if (witness !== undefined) openSecret(key, witness.sealedSecret, String(witness.idUser));
  const secret = createToken();
  return changeAccessFile(paths, (access) => {
    if (!access.users.some((user) => user.idUser === idUser)) throw noSuchUser(access, idUser);
    const users = access.users.map((user) =>
      user.idUser === idUser ? { ...user, sealedSecret: sealSecret(key, secret, String(idUser)) } : user,
    );
    return { access: { ...access, users }, answer: { idUser: String(idUser), secret } };
  });
}
