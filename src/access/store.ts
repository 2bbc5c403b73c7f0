import { addFormerNames } from '../runtime/former-names.ts';
import { AppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import type { StoredObject } from '../runtime/store/object-store.ts';
import { watchObjects } from '../runtime/store/watch.ts';
import type { AccessReader, AccessView, App, User } from './access.ts';
import { hadAccessFile, openAccessStore, type AccessFile, type AccessPaths, type UserRecord } from './access-file.ts';
import { hashToken, decryptSecret, parseSecretsKey, sameHash } from './secrets.ts';

/** Most apps of a service that names the app of a wrong token. */
const maxNamedApps = 10_000;
/** Maximum number of remembered valid tokens, which spare requests a hash. */
const maxRightTokens = 1000;
/** Longest time for which the last version is used while a bucket does not respond, ms. Then nothing is known. */
const maxStaleMs = 600_000;
/** Maximum number of users that a name finds. */
const maxNamesakes = 10;
/** Maximum number of listed errors of users. */
const listedErrors = 10;

interface UserError {
  readonly error: string;
  /** Undefined for an error of the key itself. */
  readonly idUser: string | undefined;
}

/** The decrypted users of a version, and the errors of the others. */
interface Users {
  /** By user id; kept between versions, since decryption is the largest cost per user. */
  readonly secrets: ReadonlyMap<string, { readonly sealed: string; readonly secret: string }>;
  /** The key that decrypted them. */
  readonly key: Buffer | undefined;
  readonly userErrors: readonly UserError[];
  /** Whether a user's secret could not be decrypted. */
  readonly usersUnavailable: boolean;
}

const noUsers: Users = { secrets: new Map(), key: undefined, userErrors: [], usersUnavailable: false };

/**
 * Decrypts the secrets of users. An undecryptable secret locks out its user only. Users of the previous version stay,
 * also if the key is damaged or missing now.
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
  let usersUnavailable = false;
  for (const { idUser: id, encryptedSecret: sealed } of users) {
    const idUser = String(id);
    const known = before.secrets.get(idUser);
    const opened = known?.sealed === sealed ? known : undefined;
    if (opened !== undefined && isSameKey) {
      secrets.set(idUser, opened);
      continue;
    }
    try {
      if (key !== undefined) secrets.set(idUser, { sealed, secret: decryptSecret(key, sealed, idUser) });
    } catch (error) {
      if (userErrors.length < listedErrors) userErrors.push({ error: describeError(error), idUser });
    }
    if (!secrets.has(idUser) && opened !== undefined) secrets.set(idUser, opened);
    usersUnavailable ||= !secrets.has(idUser);
  }
  return { secrets, key: key ?? before.key, userErrors, usersUnavailable };
}

function createView({ apps, users }: Pick<AccessFile, 'apps' | 'users'>, { secrets }: Users): AccessView {
  const appsById = new Map(apps.map((app) => [app.idApp, app]));
  const usersById = new Map(users.map((user) => [String(user.idUser), user]));
  // Valid for this view: each change of a token creates a new one.
  const rightTokens = new Map<string, App>();
  let appsByHash: Map<string, number> | undefined;
  const hasPasswords = users.some(({ passwordHash }) => passwordHash !== undefined);
  function findApp(idApp: number): App | undefined {
    const record = appsById.get(idApp);
    if (record === undefined) return undefined;
    const { tokens: _, idProject, ...rest } = record;
    return { ...rest, idProject };
  }
  function findUser(idUser: string): User | undefined {
    const [user, opened] = [usersById.get(idUser), secrets.get(idUser)];
    if (user === undefined || opened === undefined) return undefined;
    const { encryptedSecret: _, maxExports, files = 'auto', operator, ...rest } = user;
    return { ...rest, idUser, secret: opened.secret, maxExports, files, isOperator: operator === true };
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
    nameAppOfToken(token) {
      if (apps.length > maxNamedApps) return undefined;
      appsByHash ??= new Map(apps.flatMap(({ idApp, tokens }) => tokens.map(({ sha256 }) => [sha256, idApp] as const)));
      return appsByHash.get(hashToken(token).toString('hex')) ?? 'none';
    },
    findUser,
    findUsersByName: (name, idAccount) =>
      users
        .filter((user) => user.name === name && (idAccount === undefined || user.idAccount === idAccount))
        .slice(0, maxNamesakes)
        .flatMap(({ idUser }) => findUser(String(idUser)) ?? []),
    hasPasswords,
    appsOfAccount: (idAccount) =>
      [...appsById.values()]
        .filter((app) => app.idAccount === idAccount)
        .toSorted((a, b) => a.idApp - b.idApp)
        .flatMap(({ idApp }) => findApp(idApp) ?? []),
  };
}

interface Reading extends Users {
  readonly isGone: boolean;
  readonly view: AccessView;
}

const fileTodo =
  'Restore it from a backup; it is read within a second. Until then, unknown apps and users get 500 instead of 403, so that clients retry.';
const usersTodo = 'Restore access.json and keys/secrets.key from the same backup. Until then, users get 500.';
const keyTodo =
  'Restore keys/secrets.key from the same backup as access.json before you restart the service. Until then, users can sign in.';

function missingProblem(file: string): Problem {
  return {
    code: 'access_missing',
    message: `${file} is missing, although its apps have data; imports are rejected`,
    action: fileTodo,
  };
}

/** The version before the first successful read: it has no users. */
const unread: Reading = {
  ...noUsers,
  isGone: false,
  usersUnavailable: true,
  view: createView({ apps: [], users: [] }, noUsers),
};

/** Returns the problems of the last valid version and the error of the newest read. */
function describeReading({ userErrors, usersUnavailable }: Reading, error: string | undefined): Problem[] {
  const problems: Problem[] = [];
  if (error !== undefined)
    problems.push({
      code: 'access_unreadable',
      message: `cannot read the access data, ${usersUnavailable && userErrors.length === 0 ? 'imports and sign-ins are rejected' : 'keeping the last valid version'}: ${error}`,
      action: fileTodo,
    });
  const userError = userErrors.at(-1)?.error;
  if (userError === undefined) return problems;
  problems.push(
    usersUnavailable
      ? {
          code: 'users_unreadable',
          message: `users of the export area cannot sign in: ${userError}`,
          action: usersTodo,
        }
      : {
          code: 'secrets_key_missing',
          message: `users of the export area cannot sign in after the next start: ${userError}`,
          action: keyTodo,
        },
  );
  return problems;
}

export interface AccessReaderOptions {
  /** Whether the folder has data of clients: then a missing access.json is damage. */
  readonly isExpected?: () => boolean | Promise<boolean>;
  /** Whether the folder is still the one that the service was started on. Data of another folder is rejected. */
  readonly isOwn?: () => boolean;
  /** Whether users are needed; true by default. */
  readonly withUsers?: boolean;
}

/**
 * Opens the access data and keeps the view current. A missing file is valid in a new folder, and a problem if there was
 * one before or `isExpected`. An unreadable file at the start is a problem, and the view stays empty until it is
 * readable. While running, a missing or unreadable file is a problem, and the last valid view stays active. A change
 * blocks the thread for 0.3 s with 100,000 apps. Errors: `folder_lost`.
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
    // Checked after the read: another folder may have been moved here before it.
    if (!isOwn())
      throw new AppError('folder_lost', `${file} is not in the folder that the service was started on`, {
        hint: 'Move that folder back, and the service resumes; or restart the service on this one.',
      });
    const found = accessStore.parse(revision, access);
    const { apps = [], users = [] } = found ?? {};
    const opened = openUsers(withUsers ? users : [], () => parseSecretsKey(keysFolder, secretsKey), before);
    before = opened;
    for (const { error, idUser } of opened.userErrors) {
      logger.error(
        { error, ...(idUser === undefined ? {} : { idUser }) },
        opened.usersUnavailable
          ? 'users cannot sign in'
          : 'secrets key missing, users can sign in until the service stops',
      );
    }
    return { ...opened, isGone: found === undefined, view: createView({ apps, users }, opened) };
  }

  const onChange = (): void => listeners.forEach((listener) => listener());
  const watched = await watchObjects(accessStore.store, accessStore.keys, read, logger, onChange, true);
  const isStale = (): boolean => accessStore.store.isShared && watched.staleMs() > maxStaleMs;
  const current = (): Reading => (isStale() ? unread : (watched.current() ?? unread));
  const isMissing = (): boolean => current().isGone && isNeeded;
  const isNeeded = current().isGone && ((await hadAccessFile(paths)) || (await isExpected()));
  if (isNeeded)
    logger.error(addFormerNames('problem', { file, action: fileTodo }), 'access.json missing, rejecting imports');

  const mayMissApps = (): boolean => isStale() || isMissing() || watched.problem() !== undefined || !isOwn();
  return {
    current: () => current().view,
    mayMissApps,
    mayMissUsers: () => mayMissApps() || current().usersUnavailable,
    problems: () => (isMissing() ? [missingProblem(file)] : describeReading(current(), watched.problem())),
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    close: () => watched.close(),
  };
}
