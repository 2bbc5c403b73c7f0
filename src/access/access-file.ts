import path from 'node:path';
import { platforms } from '../datasets/field-schema.ts';
import { AppError } from '../runtime/errors.ts';
import { isRecord, parseChecksummed, renameMembers, renderChecksummed } from '../runtime/files/checksummed-json.ts';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { openStore } from '../runtime/store/open-store.ts';
import type { StoredObject } from '../runtime/store/object-store.ts';
import { createRecords, numberCodec, type RecordKind, type Records } from '../runtime/store/records.ts';
import { isCount, isFlag, isId, isText, listOf, matching, oneOf, optional, shapeOf } from '../runtime/store/shape.ts';
import { noAccount, type App } from './access.ts';

export interface AccessPaths {
  readonly access: string;
  readonly keys: string;
}

export interface TokenRecord {
  /** The first characters of the token, which identify it to operators. */
  readonly prefix: string;
  /** SHA-256 of the token, hex. */
  readonly sha256: string;
  readonly createdAt: string;
}

/** Own age limits of an app's rows, days; 0: no limit. */
export interface KeepRule {
  readonly days?: number;
  /** By kind of event, or name of another table. */
  readonly kinds?: Readonly<Record<string, number>>;
}

export interface AppRecord extends Omit<App, 'idProject'> {
  readonly idProject?: number;
  /** Absent: the limit of the service. */
  readonly keep?: KeepRule;
  readonly tokens: readonly TokenRecord[];
}

/** A removed app. Its id is never used again: the exports of another app would show its rows. */
interface RemovedApp extends Omit<AppRecord, 'tokens'> {
  readonly removedAt: string;
}

/** A stored user; `encryptedSecret` is encrypted under keys/secrets.key. */
export interface UserRecord {
  readonly idUser: number;
  readonly name: string;
  readonly idAccount: number;
  readonly encryptedSecret: string;
  /** Hash of the personal password (passwords.ts); absent without one. */
  readonly passwordHash?: string;
  readonly canExport: boolean;
  readonly maxExports?: number;
  /** Absent for `auto`. */
  readonly files?: 'gzip';
  /** Absent for users who are not operators. An operator without an account has `noAccount`. */
  readonly operator?: true;
}

/** The document of all apps and users. */
export interface AccessFile {
  /** The next user id: ids grow and are never used again. */
  readonly nextIdUser: number;
  /** Number of changes; absent before version 0.3. */
  readonly revision?: number;
  readonly apps: readonly AppRecord[];
  readonly removedApps?: readonly RemovedApp[];
  readonly users: readonly UserRecord[];
}

const empty: AccessFile = { nextIdUser: 1, apps: [], users: [] };
/** Limit of apps and users up to which the file is indented for people: indentation costs time at each read. */
const readableRecords = 1000;

const appMembers = {
  idApp: isId,
  platform: oneOf(platforms),
  title: isText,
  sdkKey: isText,
  idAccount: isId,
  idProject: optional(isId),
  keep: optional(
    shapeOf<KeepRule>({
      days: optional(isCount),
      kinds: optional((kinds) => isRecord(kinds) && Object.values(kinds).every(isCount)),
    }),
  ),
};
const isToken = shapeOf<Pick<TokenRecord, 'prefix' | 'sha256'>>({ prefix: isText, sha256: matching(/^[0-9a-f]{64}$/) });
const isApp = shapeOf<AppRecord>({ ...appMembers, tokens: listOf(isToken) });
const isRemovedApp = shapeOf<RemovedApp>({ ...appMembers, removedAt: isText });
const isUserRecord = shapeOf<UserRecord>({
  idUser: isId,
  name: isText,
  idAccount: isCount,
  encryptedSecret: isText,
  passwordHash: optional(isText),
  canExport: isFlag,
  maxExports: optional(isId),
  files: oneOf([undefined, 'gzip']),
  operator: oneOf([undefined, true]),
});
const isUser = (value: unknown): boolean =>
  isUserRecord(value) && (value.idAccount !== noAccount || value.operator !== undefined);

/** Renames members of all users; returns a document of another shape unchanged. */
function renameOfUsers(document: Readonly<Record<string, unknown>>, names: Readonly<Record<string, string>>) {
  const { users } = document;
  if (!Array.isArray(users)) return document;
  return { ...document, users: users.map((user: unknown) => (isRecord(user) ? renameMembers(user, names) : user)) };
}

const accessKind: RecordKind<AccessFile> = {
  isValid: shapeOf<AccessFile>({
    nextIdUser: isId,
    revision: optional(isCount),
    apps: listOf(isApp),
    removedApps: optional(listOf(isRemovedApp)),
    users: listOf(isUser),
  }),
  damaged: {
    code: 'access_damaged',
    hint: 'Restore access.json from a backup. If it was edited by hand, set its version to 1 and remove sha256: the next command adds them again.',
  },
  codec: {
    parse(text) {
      const { version, ...document } = parseChecksummed(text);
      if (version !== 1 && version !== 2) return undefined;
      return renameOfUsers(document, { sealedSecret: 'encryptedSecret' });
    },
    // Version 0.3 reads data folders of this format, and knows the former name only.
    render: (access) =>
      renderChecksummed(
        renameOfUsers({ ...access }, { encryptedSecret: 'sealedSecret' }),
        access.apps.length + access.users.length > readableRecords ? undefined : 2,
      ),
  },
};

/** Returns the path of the second copy of the newest revision, next to the keys. */
export function revisionPath(keysFolder: string): string {
  return path.join(keysFolder, 'access-revision');
}

/**
 * Opens the access data and a second copy of its revision. The copy proves that access data existed if it is missing,
 * and that the present data is an older copy, which would accept revoked tokens and reject new apps.
 */
export function openAccessStore({ access: file, keys: keysFolder }: AccessPaths) {
  const keysName = path.relative(path.dirname(file), keysFolder);
  const store = openStore(path.dirname(file), { lockFolder: keysFolder });
  const records = createRecords(store, accessKind);
  const id = path.basename(file, '.json');
  const revisionId = `${keysName}/access-revision`;
  const revisions = createRecords(store, {
    isValid: shapeOf<{ readonly number: number }>({ number: isCount }),
    damaged: { code: 'record_damaged', hint: 'Remove it.' },
    codec: numberCodec,
    ending: '',
  });
  return {
    store,
    /** Keys of the objects that a read needs, in the order of reading: the revision before the access data. */
    keys: [revisionId, `${keysName}/secrets.key`, `${id}.json`] as const,
    records,
    revisions,
    parse(revision: StoredObject | undefined, access: StoredObject | undefined): AccessFile | undefined {
      if (access === undefined) return undefined;
      const found = records.parse(id, access);
      const reached = parseRevision(revisions, revisionId, revision);
      if ((found.revision ?? 0) >= reached) return found;
      throw new AppError(
        'access_damaged',
        `${file} is an older copy: its revision is ${found.revision ?? 0}, expected at least ${reached}`,
        { hint: `Restore the newest copy; to accept this one, remove ${revisionPath(keysFolder)}.` },
      );
    },
  };
}

/** Returns the stored revision; 0 if it is missing or damaged, so that damage locks out no user. */
function parseRevision(
  revisions: Records<{ readonly number: number }>,
  id: string,
  object: StoredObject | undefined,
): number {
  try {
    return object === undefined ? 0 : revisions.parse(id, object).number;
  } catch {
    return 0;
  }
}

/**
 * Reads the access data; undefined if there is none. Errors: `access_damaged` if it is damaged, has an unknown format,
 * or is an older copy.
 */
export async function findAccessFile(paths: AccessPaths): Promise<AccessFile | undefined> {
  const { store, keys, ...access } = openAccessStore(paths);
  // Read first: a concurrent change must not make newer access data appear to be an older copy.
  const revision = await store.get(keys[0]);
  return access.parse(revision, await store.get(keys[2]));
}

/** Reports whether access.json ever existed. */
export async function hadAccessFile(paths: AccessPaths): Promise<boolean> {
  const { revisions, keys } = openAccessStore(paths);
  return (await revisions.getSound(keys[0])) !== undefined;
}

function goneError({ access: file, keys }: AccessPaths): AppError {
  return new AppError('access_damaged', `${file} is missing`, {
    hint: `Restore it from a backup; to start without its apps and users, remove ${revisionPath(keys)}.`,
  });
}

/** Reads the access data for a change; empty if it never existed. Errors: `access_damaged`, also if it is missing. */
export async function readAccessFile(paths: AccessPaths): Promise<AccessFile> {
  const access = await findAccessFile(paths);
  if (access === undefined && (await hadAccessFile(paths))) throw goneError(paths);
  return access ?? empty;
}

/** Stores a revision, durably, after its access data. */
async function keepRevision(paths: AccessPaths, revision: number): Promise<void> {
  const { revisions, keys } = openAccessStore(paths);
  if ((await revisions.getSound(keys[0])) === undefined) await revisions.put(keys[0], { number: revision });
  else
    await revisions.change(keys[0], (kept) =>
      kept !== undefined && kept.number >= revision ? undefined : { number: revision },
    );
}

/** Stores the revision of access data that a version before 0.3 has written. */
export async function keepAccessRevision(paths: AccessPaths): Promise<void> {
  if (await hadAccessFile(paths)) return;
  const access = await findAccessFile(paths);
  if (access !== undefined) await keepRevision(paths, access.revision ?? 0);
}

/** A pure function from the old access data to the new; may be called again. */
type Change<T> = (access: AccessFile) => { access: AccessFile; result: T };

/** Changes the access data, durably. If `change` throws, nothing changes. */
export async function changeAccessFile<T>(paths: AccessPaths, change: Change<T>): Promise<T> {
  const before = await readAccessFile(paths);
  // A change that fails on an empty file must create nothing.
  if (before === empty) change(empty);
  await ensureDataFolder(path.dirname(paths.access), [paths.keys]);
  const results: T[] = [];
  const changed = await openAccessStore(paths).records.change(path.basename(paths.access, '.json'), (found) => {
    if (found === undefined && before !== empty) throw goneError(paths);
    const { access, result } = change(found ?? empty);
    results.push(result);
    return { ...access, revision: (found?.revision ?? 0) + 1 };
  });
  // A crash before this line leaves access data that is newer than the stored revision, which is valid.
  await keepRevision(paths, changed?.revision ?? 0);
  return results.at(-1) as T;
}
