import path from 'node:path';
import { platforms, type Platform } from '../datasets/field-schema.ts';
import { AppError } from '../runtime/errors.ts';
import { parseChecked, renderChecked } from '../runtime/files/checked-json.ts';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { createFolderStore } from '../runtime/store/folder-store.ts';
import type { ObjectStore, StoredObject } from '../runtime/store/object-store.ts';
import { createRecords, numberCodec, type RecordKind, type Records } from '../runtime/store/records.ts';
import { isCount, isFlag, isId, isText, listOf, matching, oneOf, optional, shapeOf } from '../runtime/store/shape.ts';
import { noAccount } from './access.ts';

/** Where the access data rests. */
export interface AccessPaths {
  /** access.json */
  readonly access: string;
  /** Folder of the keys. */
  readonly keys: string;
}

/** A live import token at rest. */
export interface TokenRecord {
  /** First characters of the token, to name it by. */
  readonly prefix: string;
  /** SHA-256 of the token, hex. */
  readonly sha256: string;
  /** ISO time. */
  readonly createdAt: string;
}

/** An app at rest. */
export interface AppRecord {
  readonly idApp: number;
  readonly platform: Platform;
  readonly title: string;
  readonly sdkKey: string;
  readonly idAccount: number;
  readonly idProject?: number;
  readonly tokens: readonly TokenRecord[];
}

/**
 * An app that was removed: its id is never given to another one, whose exports would show the rows that it has left.
 */
export interface RemovedApp extends Omit<AppRecord, 'tokens'> {
  /** ISO time. */
  readonly removedAt: string;
}

/** A user at rest; `sealedSecret` is encrypted under keys/secrets.key. */
export interface UserRecord {
  readonly idUser: number;
  readonly name: string;
  readonly idAccount: number;
  readonly sealedSecret: string;
  readonly canExport: boolean;
  readonly maxExports?: number;
  /** Absent: auto. */
  readonly files?: 'gzip';
  /** Absent: no operator. One who belongs to no account has `noAccount`. */
  readonly operator?: true;
}

/** The record of all apps and users. */
export interface AccessFile {
  /** User ids grow and are never given twice. */
  readonly nextIdUser: number;
  /** Counts the changes; absent before version 0.3. */
  readonly revision?: number;
  readonly apps: readonly AppRecord[];
  /** Absent while none was removed, and before version 0.3. */
  readonly removedApps?: readonly RemovedApp[];
  readonly users: readonly UserRecord[];
}

const empty: AccessFile = { nextIdUser: 1, apps: [], users: [] };
/** People read a file of up to so many apps and users; in a longer one, line breaks would cost time at each reading. */
const readableRecords = 1000;

const appMembers = {
  idApp: isId,
  platform: oneOf(platforms),
  title: isText,
  sdkKey: isText,
  idAccount: isId,
  idProject: optional(isId),
};
const isToken = shapeOf<Pick<TokenRecord, 'prefix' | 'sha256'>>({ prefix: isText, sha256: matching(/^[0-9a-f]{64}$/) });
const isApp = shapeOf<AppRecord>({ ...appMembers, tokens: listOf(isToken) });
const isRemovedApp = shapeOf<RemovedApp>({ ...appMembers, removedAt: isText });
const isUserRecord = shapeOf<UserRecord>({
  idUser: isId,
  name: isText,
  idAccount: isCount,
  sealedSecret: isText,
  canExport: isFlag,
  maxExports: optional(isId),
  files: oneOf([undefined, 'gzip']),
  operator: oneOf([undefined, true]),
});
const isUser = (value: unknown): boolean =>
  isUserRecord(value) && (value.idAccount !== noAccount || value.operator !== undefined);

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
      const { version, ...document } = parseChecked(text);
      return version === 1 || version === 2 ? document : undefined;
    },
    render: (access) =>
      renderChecked({ ...access }, access.apps.length + access.users.length > readableRecords ? undefined : 2),
  },
};

/** Returns the path of the newest revision, which is kept a second time beside the keys. */
export function revisionPath(keysFolder: string): string {
  return path.join(keysFolder, 'access-revision');
}

/**
 * The access data in its store. The revision that it has reached is kept a second time beside the keys: it says that
 * there was access data once it is gone, and that what is there is an older copy, which would let revoked tokens in
 * again and refuse new apps.
 */
export interface AccessStore {
  readonly store: ObjectStore;
  /** What a reading needs, in the order in which it reads: the revision before the access data. */
  readonly keys: readonly [revision: string, secrets: string, access: string];
  /** Reads the access data from its objects; undefined if there is none. Error: `access_damaged`. */
  parse(revision: StoredObject | undefined, access: StoredObject | undefined): AccessFile | undefined;
  readonly records: Records<AccessFile>;
  readonly revisions: Records<{ readonly number: number }>;
}

/** Opens the store of the access data. */
export function openAccessStore({ access: file, keys: keysFolder }: AccessPaths): AccessStore {
  const keysName = path.relative(path.dirname(file), keysFolder);
  const store = createFolderStore(path.dirname(file), keysFolder);
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
    keys: [revisionId, `${keysName}/secrets.key`, `${id}.json`],
    records,
    revisions,
    parse(revision, access) {
      if (access === undefined) return undefined;
      const found = records.parse(id, access);
      const reached = parseRevision(revisions, revisionId, revision);
      if ((found.revision ?? 0) >= reached) return found;
      throw new AppError(
        'access_damaged',
        `${file} is an older copy: it has revision ${found.revision ?? 0}, and ${reached} was there before`,
        { hint: `Restore the newest copy; if this one is meant, remove ${revisionPath(keysFolder)}.` },
      );
    },
  };
}

/** Returns the revision that was kept; 0 if there is none, or a damaged one: it must keep nobody out. */
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
 * Reads the access data; undefined when there is none. Error: `access_damaged` when it is damaged, not what this version
 * or the one before writes, or an older copy of itself.
 */
export async function findAccessFile(paths: AccessPaths): Promise<AccessFile | undefined> {
  const { store, keys, ...access } = openAccessStore(paths);
  // First: a command that changes the file meanwhile must not make the one that is read look old.
  const revision = await store.get(keys[0]);
  return access.parse(revision, await store.get(keys[2]));
}

/** Reports whether there was access data here, whether there is any now or not. */
export async function hadAccessFile(paths: AccessPaths): Promise<boolean> {
  const { revisions, keys } = openAccessStore(paths);
  return (await revisions.getSound(keys[0])) !== undefined;
}

function goneError({ access: file, keys }: AccessPaths): AppError {
  return new AppError('access_damaged', `${file} is gone`, {
    hint: `Restore it from a backup; to begin anew without its apps and users, remove ${revisionPath(keys)}.`,
  });
}

/**
 * Reads the access data to change it; empty where none ever was. Error: `access_damaged` as `findAccessFile`, and when
 * it is gone.
 */
export async function readAccessFile(paths: AccessPaths): Promise<AccessFile> {
  const access = await findAccessFile(paths);
  if (access === undefined && (await hadAccessFile(paths))) throw goneError(paths);
  return access ?? empty;
}

/** Keeps a revision, durably. The access data that has it is written first. */
async function keepRevision(paths: AccessPaths, revision: number): Promise<void> {
  const { revisions, keys } = openAccessStore(paths);
  if ((await revisions.getSound(keys[0])) === undefined) await revisions.put(keys[0], { number: revision });
  else
    await revisions.change(keys[0], (kept) =>
      kept !== undefined && kept.number >= revision ? undefined : { number: revision },
    );
}

/** Keeps the revision of the access data that is here, where a version before 0.3 has written it. */
export async function keepAccessRevision(paths: AccessPaths): Promise<void> {
  if (await hadAccessFile(paths)) return;
  const access = await findAccessFile(paths);
  if (access !== undefined) await keepRevision(paths, access.revision ?? 0);
}

/** A change as a function of the access data before it. It has no other effect, and may be asked again. */
type Change<T> = (access: AccessFile) => { access: AccessFile; answer: T };

/** Changes the access data, durably. An error thrown by `change` leaves it as it was. */
export async function changeAccessFile<T>(paths: AccessPaths, change: Change<T>): Promise<T> {
  const before = await readAccessFile(paths);
  // What fails on an empty file is to create nothing.
  if (before === empty) change(empty);
  await ensureDataFolder(path.dirname(paths.access), [paths.keys]);
  const answers: T[] = [];
  const changed = await openAccessStore(paths).records.change(path.basename(paths.access, '.json'), (found) => {
    if (found === undefined && before !== empty) throw goneError(paths);
    const { access, answer } = change(found ?? empty);
    answers.push(answer);
    return { ...access, revision: (found?.revision ?? 0) + 1 };
  });
  // Second: a crash between the two leaves access data that is newer than what is kept, which is no older copy.
  await keepRevision(paths, changed?.revision ?? 0);
  return answers.at(-1) as T;
}
