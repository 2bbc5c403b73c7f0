import { AppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import type { StoredObject } from '../runtime/store/object-store.ts';
import { watchObjects } from '../runtime/store/watch.ts';
import type { AccessReader, AccessView, App, User } from './access.ts';
import { hadAccessFile, openAccessStore, type AccessFile, type AccessPaths, type UserRecord } from './access-file.ts';
import { hashToken, openSecret, parseSecretsKey, sameHash } from './secrets.ts';

/** Tokens of apps that are remembered once they were found right, so that not each request hashes its own. */
const maxRightTokens = 1000;
/** Errors of users that are listed one by one. */
const listedErrors = 10;

/** Why a user, or every user, cannot sign in. */
interface UserError {
  readonly error: string;
  /** Undefined: the key itself. */
  readonly idUser: string | undefined;
}

/** The users of a reading whose secrets were opened, and what is wrong with the others. */
interface Users {
  /** By the user's id; kept from reading to reading, since opening a secret costs more than all else of its user. */
  readonly secrets: ReadonlyMap<string, { readonly sealed: string; readonly secret: string }>;
  /** The key that opened them. */
  readonly key: Buffer | undefined;
  readonly userErrors: readonly UserError[];
  /** Some user's secret is opened by no key. */
  readonly lacksUsers: boolean;
}

const noUsers: Users = { secrets: new Map(), key: undefined, userErrors: [], lacksUsers: false };

/**
 * Opens the secrets of users. One that cannot be opened keeps its user out, and nobody else. Whoever could sign in
 * before continues to, also if the key is damaged or gone now.
 */
function openUsers(users: readonly UserRecord[], getKey: () => Buffer, before: Users): Users {
  if (users.length === 0) return noUsers;
  const userErrors: UserError[] = [];
  let key: Buffer | undefined;
  try {
    key = getKey();
  } catch (error) {
    userErrors.push({ error: describeError(error), idUser: undefined });
  }
  const isSameKey = key !== undefined && before.key?.equals(key) === true;
  const secrets = new Map<string, { readonly sealed: string; readonly secret: string }>();
  let lacksUsers = false;
  for (const { idUser: id, sealedSecret: sealed } of users) {
    const idUser = String(id);
    const known = before.secrets.get(idUser);
    const opened = known?.sealed === sealed ? known : undefined;
    if (opened !== undefined && isSameKey) {
      secrets.set(idUser, opened);
      continue;
    }
    try {
      if (key !== undefined) secrets.set(idUser, { sealed, secret: openSecret(key, sealed, idUser) });
    } catch (error) {
      if (userErrors.length < listedErrors) userErrors.push({ error: describeError(error), idUser });
    }
    if (!secrets.has(idUser) && opened !== undefined) secrets.set(idUser, opened);
    lacksUsers ||= !secrets.has(idUser);
  }
  return { secrets, key: key ?? before.key, userErrors, lacksUsers };
}

function createView({ apps, users }: Pick<AccessFile, 'apps' | 'users'>, { secrets }: Users): AccessView {
  const appsById = new Map(apps.map((app) => [app.idApp, app]));
  const usersById = new Map(users.map((user) => [String(user.idUser), user]));
  // As old as this view, which each change of a token ends.
  const rightTokens = new Map<string, App>();
  function findApp(idApp: number): App | undefined {
    const record = appsById.get(idApp);
    if (record === undefined) return undefined;
    const { tokens: _, idProject, ...rest } = record;
    return { ...rest, idProject };
  }
  return {
    findApp,
    findAppByToken(idApp, token) {
      const known = rightTokens.get(token);
      if (known?.idApp === idApp) return known;
      const hash = hashToken(token);
      const isLive = appsById.get(idApp)?.tokens.some(({ sha256 }) => sameHash(Buffer.from(sha256, 'hex'), hash));
      const found = isLive === true ? findApp(idApp) : undefined;
      if (found === undefined) return undefined;
      if (rightTokens.size >= maxRightTokens) rightTokens.clear();
      rightTokens.set(token, found);
      return found;
    },
    findUser(idUser): User | undefined {
      const [user, opened] = [usersById.get(idUser), secrets.get(idUser)];
      if (user === undefined || opened === undefined) return undefined;
      const { sealedSecret: _, maxExports, files = 'auto', operator, ...rest } = user;
      return { ...rest, idUser, secret: opened.secret, maxExports, files, isOperator: operator === true };
    },
    appsOfAccount: (idAccount) =>
      [...appsById.values()]
        .filter((app) => app.idAccount === idAccount)
        .toSorted((a, b) => a.idApp - b.idApp)
        .flatMap(({ idApp }) => findApp(idApp) ?? []),
  };
}

/** A reading of the access data. */
interface Reading extends Users {
  readonly isGone: boolean;
  readonly view: AccessView;
}

const fileTodo =
  'Put it back from a backup: it is read within a second. Who is not known meanwhile is answered with 500 and asked to send again, not with 403.';
const usersTodo =
  'Restore access.json and keys/secrets.key from the same backup. Users are answered with 500 meanwhile.';
const keyTodo =
  'Restore keys/secrets.key from the backup that access.json is of before the service is started again: until then users can sign in.';

function missingProblem(file: string): Problem {
  return {
    code: 'access_missing',
    what: `${file} is gone, beside data that was sent to its apps: no event is taken`,
    todo: fileTodo,
  };
}

/** What stands in for the access data until it can be read for the first time: it knows nobody. */
const unread: Reading = {
  ...noUsers,
  isGone: false,
  lacksUsers: true,
  view: createView({ apps: [], users: [] }, noUsers),
};

/** What is wrong with the newest good reading, and with those after it: `error`, of the newest. */
function describeReading({ userErrors, lacksUsers }: Reading, error: string | undefined): Problem[] {
  const problems: Problem[] = [];
  if (error !== undefined)
    problems.push({
      code: 'access_unreadable',
      what: `the access data cannot be read, ${lacksUsers && userErrors.length === 0 ? 'no event is accepted and nobody can sign in' : 'its last good reading stays in force'}: ${error}`,
      todo: fileTodo,
    });
  const userError = userErrors.at(-1)?.error;
  if (userError === undefined) return problems;
  problems.push(
    lacksUsers
      ? { code: 'users_unreadable', what: `users of the export area cannot sign in: ${userError}`, todo: usersTodo }
      : {
          code: 'users_key_gone',
          what: `users of the export area cannot sign in after the next start: ${userError}`,
          todo: keyTodo,
        },
  );
  return problems;
}

export interface AccessReaderOptions {
  /** Says that the folder has what clients have sent: then a missing access.json is damage. */
  readonly isExpected?: () => boolean;
  /**
   * Says that the folder is the one that the service was started on. What is read from another, which stands at its
   * path, is never believed, and nobody is unknown for it.
   */
  readonly isOwn?: () => boolean;
  /** False: nobody will ask for users. True by default. */
  readonly withUsers?: boolean;
}

/**
 * Opens the access data for reading and keeps the view fresh. Without a file the view is empty, which is right in a new
 * folder: where there was one before, or `isExpected` says that the folder has what clients have sent, that is a
 * problem. A file that cannot be read at the start is one too, and nobody is known until it can; `folder_lost` when it
 * is not the service's own. While running, an unreadable or missing file is a problem and the last good view stays.
 * Cost of a change on this thread: 0.3 s with 100,000 apps.
 */
export async function openAccessReader(
  paths: AccessPaths,
  logger: Logger,
  { isExpected = () => false, isOwn = () => true, withUsers = true }: AccessReaderOptions = {},
): Promise<AccessReader> {
  const { access: file, keys: keysFolder } = paths;
  const listeners = new Set<() => void>();
  const accessStore = openAccessStore(paths);
  let before = noUsers;

  function read([revision, secretsKey, access]: readonly (StoredObject | undefined)[]): Reading {
    // Asked after the file was read: another folder may have come in the place of this one before.
    if (!isOwn())
      throw new AppError('folder_lost', `${file} is not in the folder that the service was started on`, {
        hint: 'Put that folder back and the service goes on by itself; or stop it, and start it on this one.',
      });
    const found = accessStore.parse(revision, access);
    const { apps = [], users = [] } = found ?? {};
    const opened = openUsers(withUsers ? users : [], () => parseSecretsKey(keysFolder, secretsKey), before);
    before = opened;
    for (const { error, idUser } of opened.userErrors) {
      logger.error(
        { error, ...(idUser === undefined ? {} : { idUser }) },
        opened.lacksUsers ? 'users cannot sign in' : 'users can sign in until the service ends',
      );
    }
    return { ...opened, isGone: found === undefined, view: createView({ apps, users }, opened) };
  }

  const watched = await watchObjects(accessStore.store, accessStore.keys, read, logger, () =>
    listeners.forEach((listener) => listener()),
  );
  const current = (): Reading => watched.current() ?? unread;
  const isMissing = (): boolean => current().isGone && isNeeded;
  const isNeeded = current().isGone && ((await hadAccessFile(paths)) || isExpected());
  if (isNeeded) logger.error({ file, todo: fileTodo }, 'access file is gone, no event is taken');

  const mayLackApps = (): boolean => isMissing() || watched.problem() !== undefined || !isOwn();
  return {
    current: () => current().view,
    mayLackApps,
    mayLackUsers: () => mayLackApps() || current().lacksUsers,
    problems: () => (isMissing() ? [missingProblem(file)] : describeReading(current(), watched.problem())),
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    close: () => watched.close(),
  };
}
