import { describeError } from '../runtime/errors.ts';
import { findAccessFile, type AccessPaths, type UserRecord } from './access-file.ts';
import { packRecords, type PackedRecords } from './packed-records.ts';
import { getSecretsKey, openSecret } from './secrets.ts';

/** Why a user, or every user, cannot sign in. */
export interface UserError {
  readonly error: string;
  /** Undefined: the key itself. */
  readonly idUser: string | undefined;
}

/** One reading of the access file and of the key beside it, in a form that goes from thread to thread. */
export interface AccessReading {
  /** There is no access.json. */
  readonly isGone: boolean;
  readonly apps: PackedRecords;
  readonly users: PackedRecords;
  /**
   * The keys that open the users' secrets: the one that rests now and, where that one does not open all, the one
   * before.
   */
  readonly keys: readonly Uint8Array[];
  /** What is wrong with the key or with secrets, the first few. */
  readonly userErrors: readonly UserError[];
  /** Some user's secret is opened by none of the keys. */
  readonly lacksUsers: boolean;
}

export interface ReadAccessOptions {
  readonly paths: AccessPaths;
  /** Whether anybody will ask for users: import does not, and then no secret is tried. */
  readonly withUsers: boolean;
  /** The key of the last reading, in case the one that rests is damaged or gone: who could sign in goes on doing so. */
  readonly lastKey: Uint8Array | undefined;
}

/** Errors that are listed one by one. */
const listedErrors = 10;

/**
 * Tries each user's secret. One that cannot be opened keeps its user out, and nobody else: import needs none of them.
 */
function tryUsers(
  users: readonly UserRecord[],
  keysFolder: string,
  lastKey: Uint8Array | undefined,
): Pick<AccessReading, 'keys' | 'userErrors' | 'lacksUsers'> {
  if (users.length === 0) return { keys: [], userErrors: [], lacksUsers: false };
  const userErrors: UserError[] = [];
  let keys: Uint8Array[] = [];
  try {
    keys = [Uint8Array.from(getSecretsKey(keysFolder))];
  } catch (error) {
    userErrors.push({ error: describeError(error), idUser: undefined });
  }
  const older = lastKey === undefined || keys.some((key) => Buffer.compare(key, lastKey) === 0) ? [] : [lastKey];
  let usesOlder = keys.length === 0;
  let lacksUsers = false;
  for (const { idUser, sealedSecret } of users) {
    const opens = (key: Uint8Array): string | undefined => {
      try {
        openSecret(key, sealedSecret, String(idUser));
        return undefined;
      } catch (error) {
        return describeError(error);
      }
    };
    const error = keys.map(opens).at(0);
    if (keys.length > 0 && error === undefined) continue;
    usesOlder = true;
    lacksUsers ||= older.length === 0 || opens(older[0] ?? new Uint8Array()) !== undefined;
    if (error !== undefined && userErrors.length < listedErrors) userErrors.push({ error, idUser: String(idUser) });
  }
  return { keys: usesOlder ? [...keys, ...older] : keys, userErrors, lacksUsers };
}

/**
 * Reads the access file, and tries the users' secrets. `access_damaged` as `findAccessFile`. Takes time that grows with
 * the file.
 */
export function readAccess({ paths, withUsers, lastKey }: ReadAccessOptions): AccessReading {
  const access = findAccessFile(paths);
  const users = withUsers ? (access?.users ?? []) : [];
  return {
    isGone: access === undefined,
    apps: packRecords(access?.apps ?? [], ({ idApp }) => idApp),
    users: packRecords(users, ({ idUser }) => idUser),
    ...tryUsers(users, paths.keys, lastKey),
  };
}
