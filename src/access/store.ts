import { AppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { watchOptionalFile } from '../runtime/files/watched-file.ts';
import type { AccessReader, AccessView, App, User } from './access.ts';
import { hadAccessFile, type AccessPaths, type AppRecord, type UserRecord } from './access-file.ts';
import { openRecords, packRecords } from './packed-records.ts';
import { readAccess, type AccessReading, type ReadAccessOptions } from './read-access.ts';
import { readAccessAside } from './read-aside.ts';
import { revisionPath } from './revision.ts';
import { secretsKeyPath, hashToken, openSecret, sameHash } from './secrets.ts';

/** Opens a user's secret with the first key that does; undefined when none does. */
function openUser(
  { idUser, sealedSecret, maxExports, files, operator, ...rest }: UserRecord,
  keys: readonly Uint8Array[],
): User | undefined {
  for (const key of keys) {
    try {
      return {
        ...rest,
        idUser: String(idUser),
        secret: openSecret(key, sealedSecret, String(idUser)),
        maxExports,
        files: files ?? 'auto',
        isOperator: operator === true,
      };
    } catch {
      // Listed by the reading; the next key may be the right one.
    }
  }
  return undefined;
}

/** Tokens of apps that are remembered once they were found right, so that not each request hashes its own. */
const maxRightTokens = 1000;

function createView({ apps: packedApps, users: packedUsers, keys }: AccessReading): AccessView {
  // What a reading has checked and packed.
  const apps = openRecords(packedApps, (json) => {
    const { tokens, idProject, ...rest } = JSON.parse(json) as AppRecord;
    const app: App = { ...rest, idProject };
    return { app, tokenHashes: tokens.map((token) => Buffer.from(token.sha256, 'hex')) };
  });
  const users = openRecords(packedUsers, (json) => ({ user: openUser(JSON.parse(json) as UserRecord, keys) }));
  // As old as this view, which each change of a token ends.
  const rightTokens = new Map<string, App>();
  return {
    findApp: (idApp) => apps.find(idApp)?.app,
    findAppByToken(idApp, token) {
      const known = rightTokens.get(token);
      if (known?.idApp === idApp) return known;
      const hash = hashToken(token);
      const found = apps.find(idApp);
      if (found?.tokenHashes.some((live) => sameHash(live, hash)) !== true) return undefined;
      if (rightTokens.size >= maxRightTokens) rightTokens.clear();
      rightTokens.set(token, found.app);
      return found.app;
    },
    findUser: (idUser) => (/^[1-9]\d{0,15}$/.test(idUser) ? users.find(Number(idUser))?.user : undefined),
    appsOfAccount: (idAccount) => apps.ofAccount(idAccount).map(({ app }) => app),
  };
}

/** A reading, opened. */
interface Reading extends AccessReading {
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

/** Creates what stands in for the access data until it can be read for the first time: it knows nobody. */
function createUnread(): Reading {
  const none = packRecords([], () => 0);
  const reading = { isGone: false, apps: none, users: none, keys: [], userErrors: [], lacksUsers: true };
  return { ...reading, view: createView(reading) };
}

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
 * is not the service's own. While running, an unreadable or missing file is a problem and the last good view stays. A change costs this thread nothing that grows with the number of apps and
 * users.
 */
export function openAccessReader(
  paths: AccessPaths,
  logger: Logger,
  { isExpected = () => false, isOwn = () => true, withUsers = true }: AccessReaderOptions = {},
): AccessReader {
  const { access: file, keys } = paths;
  const listeners = new Set<() => void>();
  let lastKey: Uint8Array | undefined;

  const request = (): ReadAccessOptions => ({ paths, withUsers, lastKey });
  function open(reading: AccessReading): Reading {
    // Asked after the file was read: another folder may have come in the place of this one before.
    if (!isOwn())
      throw new AppError('folder_lost', `${file} is not in the folder that the service was started on`, {
        hint: 'Put that folder back and the service goes on by itself; or stop it, and start it on this one.',
      });
    // A key that opens a secret is kept until another one does.
    if (!reading.lacksUsers && reading.keys.length > 0) lastKey = reading.keys.at(-1);
    for (const { error, idUser } of reading.userErrors) {
      logger.error(
        { error, ...(idUser === undefined ? {} : { idUser }) },
        reading.lacksUsers ? 'users cannot sign in' : 'users can sign in until the service ends',
      );
    }
    return { ...reading, view: createView(reading) };
  }

  const watched = watchOptionalFile(file, () => open(readAccess(request())), logger, {
    beside: [secretsKeyPath(keys), revisionPath(keys)],
    reload: async () => open(await readAccessAside(request())),
    onChange: () => listeners.forEach((listener) => listener()),
  });
  const unread = createUnread();
  const current = (): Reading => watched.current() ?? unread;
  const isMissing = (): boolean => current().isGone && isNeeded;
  const isNeeded = current().isGone && (hadAccessFile(paths) || isExpected());
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
