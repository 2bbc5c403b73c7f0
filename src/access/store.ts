import { describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { watchFile } from '../runtime/watched-file.ts';
import type { AccessReader, AccessView, App, User } from './access.ts';
import { readAccessFile, type AccessFile } from './access-file.ts';
import type { AccessPaths } from './commands.ts';
import { getSecretsKey, hashToken, openSecret, sameHash } from './secrets.ts';

/** Opens the users' secrets. One that cannot be opened keeps its user out, and nobody else: import needs none of them. */
function openUsers(access: AccessFile, keysFolder: string, logger: Logger): ReadonlyMap<string, User> {
  const users = new Map<string, User>();
  let secretsKey: Buffer | undefined;
  try {
    secretsKey = access.users.length === 0 ? undefined : getSecretsKey(keysFolder);
  } catch (error) {
    logger.error({ error: describeError(error), users: access.users.length }, 'no user can sign in');
  }
  if (secretsKey === undefined) return users;
  for (const { idUser, sealedSecret, maxExports, ...rest } of access.users) {
    const name = String(idUser);
    try {
      users.set(name, { ...rest, idUser: name, secret: openSecret(secretsKey, sealedSecret, name), maxExports });
    } catch (error) {
      logger.error({ error: describeError(error), idUser: name }, 'user cannot sign in');
    }
  }
  return users;
}

function createView(access: AccessFile, users: ReadonlyMap<string, User>): AccessView {
  const apps = new Map<number, { app: App; tokenHashes: readonly Buffer[] }>();
  const byAccount = new Map<number, App[]>();
  for (const record of access.apps) {
    const { tokens, idProject, ...rest } = record;
    const app: App = { ...rest, idProject };
    apps.set(app.idApp, { app, tokenHashes: tokens.map((token) => Buffer.from(token.sha256, 'hex')) });
    byAccount.set(app.idAccount, [...(byAccount.get(app.idAccount) ?? []), app].toSorted((a, b) => a.idApp - b.idApp));
  }
  return {
    findApp: (idApp) => apps.get(idApp)?.app,
    findAppByToken(idApp, token) {
      const hash = hashToken(token);
      const found = apps.get(idApp);
      return found?.tokenHashes.some((live) => sameHash(live, hash)) === true ? found.app : undefined;
    },
    findUser: (idUser) => users.get(idUser),
    appsOfAccount: (idAccount) => byAccount.get(idAccount) ?? [],
  };
}

/**
 * Opens the access data for reading and keeps the view fresh. `corrupt` at start when the file cannot be read; while
 * running, an unreadable or missing file is logged and the last good view stays.
 */
export function openAccessReader(paths: AccessPaths, logger: Logger): AccessReader {
  const load = (): AccessView => {
    const access = readAccessFile(paths.access);
    return createView(access, openUsers(access, paths.keys, logger));
  };
  const watched = watchFile(paths.access, load, logger);
  return { current: () => watched.current(), close: () => watched.close() };
}
