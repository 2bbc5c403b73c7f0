import { randomInt } from 'node:crypto';
import type { Platform } from '../datasets/field-schema.ts';
import { AppError } from '../runtime/errors.ts';
import {
  changeAccessFile,
  readAccessFile,
  type AccessFile,
  type AccessPaths,
  type AppRecord,
  type TokenRecord,
} from './access-file.ts';
import { createToken, hashToken, tokenPrefixLength } from './secrets.ts';

/** What an SDK key may be, as the end of a sentence for whoever chose another. */
export const sdkKeyRule =
  'An SDK key has 1 to 255 characters and no comma: the SDKKey filter of an export takes several, with commas between.';

/** Says whether a text can be an app's SDK key: 1 to 255 code points, none of them a comma. */
export function isSdkKey(text: string): boolean {
  const { length } = Array.from(text);
  return length >= 1 && length <= 255 && !text.includes(',');
}

export interface NewApp {
  readonly idApp: number;
  readonly platform: Platform;
  readonly title?: string;
  readonly sdkKey?: string;
  readonly idAccount: number;
  readonly idProject?: number;
}

/**
 * What may be changed of an app; what is absent stays. Its account, platform and SDK key may not: they say whose its
 * rows are, and what is in them.
 */
export interface AppSettings {
  readonly title?: string;
  /** null: none. */
  readonly idProject?: number | null;
}

/** A line of `tributary app list`. Ids are texts, as in every answer. */
export interface ListedApp {
  readonly idApp: string;
  readonly platform: Platform;
  readonly title: string;
  readonly idAccount: string;
  readonly idProject?: string;
  readonly sdkKey: string;
  /** The live tokens by their first characters; empty for an app that was removed. */
  readonly tokens: readonly { readonly prefix: string; readonly createdAt: string }[];
  /** ISO time; of a removed app. */
  readonly removedAt?: string;
}

/** An app as it is listed. */
export function toListedApp(app: AppRecord & { readonly removedAt?: string | undefined }): ListedApp {
  const { idApp, platform, title, idAccount, idProject, sdkKey, tokens, removedAt } = app;
  return {
    idApp: String(idApp),
    platform,
    title,
    idAccount: String(idAccount),
    ...(idProject === undefined ? {} : { idProject: String(idProject) }),
    sdkKey,
    tokens: tokens.map(({ prefix, createdAt }) => ({ prefix, createdAt })),
    ...(removedAt === undefined ? {} : { removedAt }),
  };
}

/** The apps by id: the live ones, or those that were removed. `access_damaged` as `readAccessFile`. */
export async function listApps(paths: AccessPaths, removed = false): Promise<ListedApp[]> {
  const { apps, removedApps = [] } = await readAccessFile(paths);
  const listed = removed
    ? removedApps.map((app) => ({ ...app, tokens: [] }))
    : apps.map((app) => ({ ...app, removedAt: undefined }));
  return listed.toSorted((a, b) => a.idApp - b.idApp).map(toListedApp);
}

/** Makes an import token and what rests of it. */
function newToken(nowMs: number): { token: string; record: TokenRecord } {
  const token = createToken();
  const record = {
    prefix: token.slice(0, tokenPrefixLength),
    sha256: hashToken(token).toString('hex'),
    createdAt: new Date(nowMs).toISOString(),
  };
  return { token, record };
}

/** The error for an app that is not there; says so when it was removed. */
function noSuchApp({ removedApps = [] }: Pick<AccessFile, 'removedApps'>, idApp: number): AppError {
  const removed = removedApps.find((app) => app.idApp === idApp);
  if (removed === undefined)
    return new AppError('not_found', `there is no app ${idApp}`, {
      hint: "'tributary app list' shows the apps; 'tributary app add' adds one.",
    });
  return new AppError('not_found', `app ${idApp} was removed at ${removed.removedAt}`, {
    hint: `'tributary app restore ${idApp}' brings it back with a new token.`,
  });
}

/** Returns a live app. Error: `not_found`. */
function getApp(access: AccessFile, idApp: number): AppRecord {
  const app = access.apps.find((candidate) => candidate.idApp === idApp);
  if (app === undefined) throw noSuchApp(access, idApp);
  return app;
}

/** Returns the access data with another record of an app. */
function withApp(access: AccessFile, changed: AppRecord): AccessFile {
  return { ...access, apps: access.apps.map((app) => (app.idApp === changed.idApp ? changed : app)) };
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
    const app = getApp(access, idApp);
    const changed = withApp(access, { ...app, tokens: [...app.tokens, record] });
    return { access: changed, answer: { idApp: String(idApp), token } };
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
    const app = getApp(access, idApp);
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
    return {
      access: withApp(access, { ...app, tokens }),
      answer: { idApp: String(idApp), revoked: token.prefix, tokens: tokens.map((kept) => kept.prefix) },
    };
  });
}

/** Removes an app with all its tokens. `not_found`: there is none, or it was removed already. */
export async function removeApp(
  paths: AccessPaths,
  idApp: number,
  nowMs: number,
): Promise<{ idApp: string; removedAt: string; revoked: readonly string[] }> {
  const removedAt = new Date(nowMs).toISOString();
  return changeAccessFile(paths, (access) => {
    const app = getApp(access, idApp);
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

/** Changes an app; in force within a second everywhere. Errors: `not_found`. */
export function setApp(paths: AccessPaths, idApp: number, { title, idProject }: AppSettings): Promise<ListedApp> {
  return changeAccessFile(paths, (access) => {
    const app = getApp(access, idApp);
    const { idProject: before, ...kept } = app;
    const after = idProject === undefined ? before : (idProject ?? undefined);
    const changed = {
      ...kept,
      ...(title === undefined ? {} : { title }),
      ...(after === undefined ? {} : { idProject: after }),
    };
    return { access: withApp(access, changed), answer: toListedApp(changed) };
  });
}
