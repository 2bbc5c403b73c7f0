import { randomInt } from 'node:crypto';
import path from 'node:path';
import { noAccount } from './access.ts';
import type { Platform } from '../datasets/field-schema.ts';
import { isSdkKey, sdkKeyRule } from './sdk-key.ts';
import { ensureDataFolder } from '../runtime/files/data-folder.ts';
import { AppError } from '../runtime/errors.ts';
import {
  changeAccessFile,
  readAccessFile,
  type AccessFile,
  type AccessPaths,
  type AppRecord,
  type TokenRecord,
} from './access-file.ts';
import {
  createToken,
  ensureSecretsKey,
  getSecretsKey,
  hashToken,
  openSecret,
  sealSecret,
  tokenPrefixLength,
} from './secrets.ts';

export interface NewApp {
  readonly idApp: number;
  readonly platform: Platform;
  readonly title?: string;
  readonly sdkKey?: string;
  readonly idAccount: number;
  readonly idProject?: number;
}

export interface NewUser {
  readonly name: string;
  /** `noAccount`: none, which an operator may have. */
  readonly idAccount: number;
  readonly canExport: boolean;
  readonly maxExports?: number;
  /** Absent: auto. */
  readonly files?: 'gzip';
  /** May look at how the service is, and change apps and users. Absent: no. */
  readonly operator?: true;
}

/** Makes an import token and what rests of it. */
export function newToken(nowMs: number): { token: string; record: TokenRecord } {
  const token = createToken();
  const record = {
    prefix: token.slice(0, tokenPrefixLength),
    sha256: hashToken(token).toString('hex'),
    createdAt: new Date(nowMs).toISOString(),
  };
  return { token, record };
}

/** The error for an app that is not there; says so when it was removed. */
export function noSuchApp({ removedApps = [] }: Pick<AccessFile, 'removedApps'>, idApp: number): AppError {
  const removed = removedApps.find((app) => app.idApp === idApp);
  if (removed === undefined)
    return new AppError('not_found', `there is no app ${idApp}`, {
      hint: "'tributary app list' shows the apps; 'tributary app add' adds one.",
    });
  return new AppError('not_found', `app ${idApp} was removed at ${removed.removedAt}`, {
    hint: `'tributary app restore ${idApp}' brings it back with a new token.`,
  });
}

/**
 * Adds an app with its first token, which is shown this once. `usage`: no export could name the SDK key. `conflict`:
 * the id or the SDK key is taken; that of a removed app stays taken, since its rows stay.
 */
export async function addApp(
  paths: AccessPaths,
  app: NewApp,
  nowMs: number,
): Promise<{ idApp: string; token: string }> {
  const { token, record } = newToken(nowMs);
  if (app.sdkKey !== undefined && !isSdkKey(app.sdkKey)) {
    throw new AppError(
      'usage',
      `the SDK key ${JSON.stringify(app.sdkKey.slice(0, 50))} cannot be named by an export's SDKKey filter`,
      { hint: sdkKeyRule },
    );
  }
  const sdkKey = app.sdkKey ?? Array.from({ length: 20 }, () => randomInt(10)).join('');
  return changeAccessFile(paths, (access) => {
    if (access.apps.some((other) => other.idApp === app.idApp)) {
      throw new AppError('conflict', `app ${app.idApp} exists already`, {
        hint: `A further token comes from 'tributary app token ${app.idApp}'.`,
      });
    }
    const removed = access.removedApps?.find((other) => other.idApp === app.idApp || other.sdkKey === sdkKey);
    if (removed !== undefined) {
      const what =
        removed.idApp === app.idApp ? `app ${app.idApp}` : `app ${removed.idApp}, which has the SDK key ${sdkKey},`;
      throw new AppError('conflict', `${what} was removed at ${removed.removedAt}, and its rows are still its own`, {
        hint: `'tributary app restore ${removed.idApp}' brings it back; another app needs another id and SDK key.`,
      });
    }
    if (access.apps.some((other) => other.sdkKey === sdkKey))
      throw new AppError('conflict', `another app has the SDK key ${sdkKey}`, {
        hint: "Give each app a key of its own; 'tributary app list' shows those that are taken.",
      });
    const added: AppRecord = {
      idApp: app.idApp,
      platform: app.platform,
      title: app.title ?? `App ${app.idApp}`,
      sdkKey,
      idAccount: app.idAccount,
      ...(app.idProject === undefined ? {} : { idProject: app.idProject }),
      tokens: [record],
    };
    return { access: { ...access, apps: [...access.apps, added] }, answer: { idApp: String(app.idApp), token } };
  });
}

/** Gives an app a further live token, so that clients can move over before the old one is revoked. */
export async function addAppToken(
  paths: AccessPaths,
  idApp: number,
  nowMs: number,
): Promise<{ idApp: string; token: string }> {
  const { token, record } = newToken(nowMs);
  return changeAccessFile(paths, (access) => {
    if (!access.apps.some((app) => app.idApp === idApp)) throw noSuchApp(access, idApp);
    const apps = access.apps.map((app) => (app.idApp === idApp ? { ...app, tokens: [...app.tokens, record] } : app));
    return { access: { ...access, apps }, answer: { idApp: String(idApp), token } };
  });
}

/**
 * Ends the one token of an app that starts with `prefix` (at least four characters); a second match is refused.
 * `tokens`: the prefixes of those that are left.
 */
export async function revokeAppToken(
  paths: AccessPaths,
  idApp: number,
  prefix: string,
): Promise<{ idApp: string; revoked: string; tokens: readonly string[] }> {
  return changeAccessFile(paths, (access) => {
    const app = access.apps.find((candidate) => candidate.idApp === idApp);
    if (app === undefined) throw noSuchApp(access, idApp);
    const shown = prefix.slice(0, tokenPrefixLength);
    const matching = app.tokens.filter((token) => token.prefix.startsWith(shown));
    const live = `Live tokens start with: ${app.tokens.map((token) => token.prefix).join(', ') || '(none)'}.`;
    const [token] = matching;
    if (shown.length < 4 || token === undefined || matching.length > 1) {
      throw new AppError(
        token === undefined ? 'not_found' : 'conflict',
        `'${shown}' does not name one token of app ${idApp}`,
        { hint: live },
      );
    }
    const tokens = app.tokens.filter((kept) => kept !== token);
    const apps = access.apps.map((other) => (other === app ? { ...app, tokens } : other));
    return {
      access: { ...access, apps },
      answer: { idApp: String(idApp), revoked: token.prefix, tokens: tokens.map((kept) => kept.prefix) },
    };
  });
}

/**
 * Adds a user of the export area. The secret is shown this once and rests encrypted. `conflict`: the account has a user
 * of that name. `access_damaged`: the key that the other users' secrets rest under is damaged or gone.
 */
export async function addUser(paths: AccessPaths, user: NewUser): Promise<{ idUser: string; secret: string }> {
  await ensureDataFolder(path.dirname(paths.access));
  const { users } = await readAccessFile(paths);
  // A new key beside users of a lost one would lock those out for good; and a damaged one would lock this user out once
  // it is restored.
  const key = users.length > 0 ? await getSecretsKey(paths.keys) : await ensureSecretsKey(paths.keys);
  for (const { sealedSecret, idUser } of users.slice(0, 1)) openSecret(key, sealedSecret, String(idUser));
  const secret = createToken();
  return changeAccessFile(paths, (access) => {
    const namesake = access.users.find((other) => other.idAccount === user.idAccount && other.name === user.name);
    if (namesake !== undefined) {
      const where = user.idAccount === noAccount ? 'there is an operator' : `account ${user.idAccount} has a user`;
      throw new AppError('conflict', `${where} ${user.name} already: ${namesake.idUser}`, {
        hint: `'tributary user secret ${namesake.idUser}' gives that one a new secret; another user needs another name.`,
      });
    }
    const idUser = access.nextIdUser;
    const added = {
      idUser,
      name: user.name,
      idAccount: user.idAccount,
      sealedSecret: sealSecret(key, secret, String(idUser)),
      canExport: user.canExport,
      ...(user.maxExports === undefined ? {} : { maxExports: user.maxExports }),
      ...(user.files === undefined ? {} : { files: user.files }),
      ...(user.operator === undefined ? {} : { operator: user.operator }),
    };
    return {
      access: { ...access, nextIdUser: idUser + 1, users: [...access.users, added] },
      answer: { idUser: String(idUser), secret },
    };
  });
}
