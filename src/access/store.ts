import { AppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/problem.ts';
import { watchFile } from '../runtime/watched-file.ts';
import type { AccessReader, AccessView, App, User } from './access.ts';
import { findAccessFile, hadAccessFile, type AccessFile, type AccessPaths } from './access-file.ts';
import { revisionPath } from './revision.ts';
import { getSecretsKey, secretsKeyPath, hashToken, openSecret, sameHash } from './secrets.ts';

/** Opens the users' secrets. One that cannot be opened keeps its user out, and nobody else: import needs none of them. */
function openUsers(access: AccessFile, keysFolder: string, onError: (error: unknown, fields: object, what: string) => void): ReadonlyMap<string, User> {
  const users = new Map<string, User>();
  let secretsKey: Buffer | undefined;
  try {
    secretsKey = access.users.length === 0 ? undefined : getSecretsKey(keysFolder);
  } catch (error) {
    onError(error, { users: access.users.length }, 'no user can sign in');
  }
  if (secretsKey === undefined) return users;
  for (const { idUser, sealedSecret, maxExports, ...rest } of access.users) {
    const name = String(idUser);
    try {
      users.set(name, { ...rest, idUser: name, secret: openSecret(secretsKey, sealedSecret, name), maxExports });
    } catch (error) {
      onError(error, { idUser: name }, 'user cannot sign in');
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

/** What a reading of the file gave, and what it lacks. */
interface Reading {
  readonly view: AccessView;
  readonly isGone: boolean;
  /** Why users are kept out; the newest of several. */
  readonly userError: string | undefined;
}

const noAccess: AccessFile = { nextIdUser: 1, apps: [], users: [] };

const fileTodo = 'Put it back from a backup: it is read within a second. Who is not known meanwhile is answered with 500 and asked to send again, not with 403.';
const usersTodo = 'Restore access.json and keys/secrets.key from the same backup. Users are answered with 500 meanwhile.';

/**
 * Opens the access data for reading and keeps the view fresh. Without a file the view is empty, which is right in a new
 * folder: where there was one before, or `isExpected` says that the folder has what clients have sent, that is a problem.
 * `corrupt` at start when the file cannot be read; while running, an unreadable or missing file is a problem and the last
 * good view stays.
 */
export function openAccessReader(paths: AccessPaths, logger: Logger, isExpected: () => boolean = () => false): AccessReader {
  const { access: file, keys } = paths;
  let last: Reading | undefined;

  function load(): Reading {
    const access = findAccessFile(paths);
    let userError: string | undefined;
    const users = openUsers(access ?? noAccess, keys, (error, fields, what) => {
      // A user who could sign in goes on doing so.
      if (last !== undefined && last.userError === undefined) throw error;
      userError = describeError(error);
      logger.error({ error: userError, ...fields }, what);
    });
    last = { view: createView(access ?? noAccess, users), isGone: access === undefined, userError };
    return last;
  }

  const watched = watchFile(file, load, logger, [secretsKeyPath(keys), revisionPath(keys)]);
  const isMissing = (): boolean => watched.current().isGone && isNeeded;
  const isNeeded = watched.current().isGone && (hadAccessFile(paths) || isExpected());
  if (isNeeded) logger.error({ error: new AppError('corrupt', `${file} is gone`).message }, 'no client can be told from another');

  function problems(): readonly Problem[] {
    const error = watched.problem();
    if (isMissing()) return [{ what: `${file} is gone, beside data that was sent to its apps: no event is taken`, todo: fileTodo }];
    const { userError } = watched.current();
    return [
      ...(error === undefined ? [] : [{ what: `the access data cannot be read, its last good reading stays in force: ${error}`, todo: fileTodo }]),
      ...(userError === undefined ? [] : [{ what: `users of the export area cannot sign in: ${userError}`, todo: usersTodo }]),
    ];
  }

  const mayLackApps = (): boolean => isMissing() || watched.problem() !== undefined;
  return {
    current: () => watched.current().view,
    mayLackApps,
    mayLackUsers: () => mayLackApps() || watched.current().userError !== undefined,
    problems,
    close: () => watched.close(),
  };
}
