import { randomInt } from 'node:crypto';
import type { Platform } from '../datasets/field-schema.ts';
import { AppError } from '../runtime/errors.ts';
import {
  changeAccessFile,
  readAccessFile,
  type AccessFile,
  type AccessPaths,
  type AppRecord,
  type KeepRule,
  type TokenRecord,
} from './access-file.ts';
import { createToken, hashToken, tokenPrefixLength } from './secrets.ts';

const sdkKeyRule =
  'Pass 1 to 255 characters without a comma, which separates SDK keys in the SDKKey filter of exports.';

/** Reports whether a text can be an SDK key: 1 to 255 code points without a comma. */
export function isSdkKey(text: string): boolean {
  const { length } = Array.from(text);
  return length >= 1 && length <= 255 && !text.includes(',');
}

export type NewApp = Omit<AppRecord, 'title' | 'sdkKey' | 'tokens'> & Partial<Pick<AppRecord, 'title' | 'sdkKey'>>;

/**
 * Settings of an app that can be changed; absent members stay. Account, platform and SDK key cannot: they define who
 * owns its rows and what they contain.
 */
export interface AppSettings {
  readonly title?: string;
  readonly idProject?: number | null;
}

/** A line of `tributary app list`. Ids are texts, as in the API. */
export interface ListedApp {
  readonly idApp: string;
  readonly platform: Platform;
  readonly title: string;
  readonly idAccount: string;
  readonly idProject?: string;
  readonly sdkKey: string;
  readonly tokens: readonly { readonly prefix: string; readonly createdAt: string }[];
  /** Own age limits, days; absent: the limit of the service. */
  readonly keep?: KeepRule;
  readonly removedAt?: string;
}

/** A new token of an app, in clear text: it cannot be shown again. */
interface IssuedToken {
  readonly idApp: string;
  readonly token: string;
}

function toListedApp(app: AppRecord & { readonly removedAt?: string | undefined }): ListedApp {
  const { idApp, platform, title, idAccount, idProject, sdkKey, tokens, keep, removedAt } = app;
  return {
    idApp: String(idApp),
    platform,
    title,
    idAccount: String(idAccount),
    ...(idProject === undefined ? {} : { idProject: String(idProject) }),
    sdkKey,
    tokens: tokens.map(({ prefix, createdAt }) => ({ prefix, createdAt })),
    ...(keep === undefined ? {} : { keep }),
    ...(removedAt === undefined ? {} : { removedAt }),
  };
}

/** Returns the live or the removed apps by id. Errors: `access_damaged`. */
export async function listApps(paths: AccessPaths, removed = false): Promise<ListedApp[]> {
  const { apps, removedApps = [] } = await readAccessFile(paths);
  const listed: readonly Parameters<typeof toListedApp>[0][] = removed
    ? removedApps.map((app) => ({ ...app, tokens: [] }))
    : apps;
  return listed.toSorted((a, b) => a.idApp - b.idApp).map(toListedApp);
}

function appNotFoundError({ removedApps = [] }: Pick<AccessFile, 'removedApps'>, idApp: number): AppError {
  const removed = removedApps.find((app) => app.idApp === idApp);
  if (removed === undefined)
    return new AppError('not_found', `app ${idApp} does not exist`, {
      hint: "Run 'tributary app list' for the apps, or 'tributary app add' to add one.",
    });
  return new AppError('not_found', `app ${idApp} was removed at ${removed.removedAt}`, {
    hint: `Run 'tributary app restore ${idApp}' to restore it with a new token.`,
  });
}

function getApp(access: AccessFile, idApp: number): AppRecord {
  const app = access.apps.find((candidate) => candidate.idApp === idApp);
  if (app === undefined) throw appNotFoundError(access, idApp);
  return app;
}

/** Changes the record of a live app. `change` also returns the result. Errors: `not_found`. */
function changeApp<T>(
  paths: AccessPaths,
  idApp: number,
  change: (app: AppRecord) => readonly [AppRecord, T],
): Promise<T> {
  return changeAccessFile(paths, (access) => {
    const app = getApp(access, idApp);
    const [changed, result] = change(app);
    return { access: { ...access, apps: access.apps.map((other) => (other === app ? changed : other)) }, result };
  });
}

function newToken(idApp: number, nowMs: number): { readonly issued: IssuedToken; readonly record: TokenRecord } {
  const token = createToken();
  const [prefix, sha256] = [token.slice(0, tokenPrefixLength), hashToken(token).toString('hex')];
  return {
    issued: { idApp: String(idApp), token },
    record: { prefix, sha256, createdAt: new Date(nowMs).toISOString() },
  };
}

/** Throws `conflict` if the id or the SDK key is taken. A removed app keeps both, since its rows stay. */
function assertNewApp({ apps, removedApps }: AccessFile, idApp: number, sdkKey: string): void {
  if (apps.some((other) => other.idApp === idApp))
    throw new AppError('conflict', `app ${idApp} already exists`, {
      hint: `Run 'tributary app token add ${idApp}' for another token.`,
    });
  const removed = removedApps?.find((other) => other.idApp === idApp || other.sdkKey === sdkKey);
  if (removed !== undefined) {
    const what = removed.idApp === idApp ? `app ${idApp}` : `app ${removed.idApp}, which has the SDK key ${sdkKey},`;
    throw new AppError('conflict', `${what} was removed at ${removed.removedAt}, and still owns its rows`, {
      hint: `Run 'tributary app restore ${removed.idApp}' to restore it, or pass another id and SDK key.`,
    });
  }
  if (apps.some((other) => other.sdkKey === sdkKey))
    throw new AppError('conflict', `another app has the SDK key ${sdkKey}`, {
      hint: "Pass another SDK key; 'tributary app list' shows those in use.",
    });
}

/** Adds an app with its first token. Errors: `usage` for an SDK key that no export could name; `conflict`. */
export async function addApp(paths: AccessPaths, app: NewApp, nowMs: number): Promise<IssuedToken> {
  const { idApp, platform, title = `App ${idApp}`, idAccount, idProject } = app;
  if (app.sdkKey !== undefined && !isSdkKey(app.sdkKey)) {
    throw new AppError('usage', `the SDK key ${JSON.stringify(app.sdkKey.slice(0, 50))} is not valid`, {
      hint: sdkKeyRule,
    });
  }
  const sdkKey = app.sdkKey ?? Array.from({ length: 20 }, () => randomInt(10)).join('');
  const { issued, record } = newToken(idApp, nowMs);
  const project = idProject === undefined ? {} : { idProject };
  const added: AppRecord = { idApp, platform, title, sdkKey, idAccount, ...project, tokens: [record] };
  return changeAccessFile(paths, (access) => {
    assertNewApp(access, idApp, sdkKey);
    return { access: { ...access, apps: [...access.apps, added] }, result: issued };
  });
}

/** Adds a token to an app, so that clients can move over before the old one is revoked. Errors: `not_found`. */
export async function addAppToken(paths: AccessPaths, idApp: number, nowMs: number): Promise<IssuedToken> {
  const { issued, record } = newToken(idApp, nowMs);
  return changeApp(paths, idApp, (app) => [{ ...app, tokens: [...app.tokens, record] }, issued]);
}

/**
 * Revokes the only token of an app that starts with `prefix`, which has at least four characters. Returns the prefixes
 * of the remaining tokens. Errors: `not_found`; `conflict` for several such tokens.
 */
export async function revokeAppToken(
  paths: AccessPaths,
  idApp: number,
  prefix: string,
): Promise<{ idApp: string; revoked: string; tokens: readonly string[] }> {
  return changeApp(paths, idApp, (app) => {
    const shownPrefix = prefix.slice(0, tokenPrefixLength);
    const matching = app.tokens.filter((token) => token.prefix.startsWith(shownPrefix));
    const [token] = matching;
    if (shownPrefix.length < 4 || token === undefined || matching.length > 1) {
      const live = app.tokens.map((kept) => kept.prefix).join(', ') || '(none)';
      throw new AppError(
        token === undefined ? 'not_found' : 'conflict',
        `'${shownPrefix}' does not match exactly one token of app ${idApp}`,
        { hint: `Pass the start of a live token: ${live}.` },
      );
    }
    const tokens = app.tokens.filter((kept) => kept !== token);
    const result = { idApp: String(idApp), revoked: token.prefix, tokens: tokens.map((kept) => kept.prefix) };
    return [{ ...app, tokens }, result];
  });
}

export async function removeApp(
  paths: AccessPaths,
  idApp: number,
  nowMs: number,
): Promise<{ idApp: string; removedAt: string; revoked: readonly string[] }> {
  const removedAt = new Date(nowMs).toISOString();
  return changeAccessFile(paths, (access) => {
    const app = getApp(access, idApp);
    const { tokens, ...kept } = app;
    const apps = access.apps.filter((other) => other !== app);
    const removedApps = [...(access.removedApps ?? []), { ...kept, removedAt }];
    const result = { idApp: String(idApp), removedAt, revoked: tokens.map(({ prefix }) => prefix) };
    return { access: { ...access, apps, removedApps }, result };
  });
}

/** Restores a removed app with a new token. Errors: `not_found`; `conflict` if the app is live. */
export async function restoreApp(paths: AccessPaths, idApp: number, nowMs: number): Promise<IssuedToken> {
  const { issued, record } = newToken(idApp, nowMs);
  return changeAccessFile(paths, (access) => {
    const removed = access.removedApps?.find((app) => app.idApp === idApp);
    if (removed === undefined && access.apps.some((app) => app.idApp === idApp)) {
      throw new AppError('conflict', `app ${idApp} is not removed`, {
        hint: `Run 'tributary app token add ${idApp}' for another token.`,
      });
    }
    if (removed === undefined) throw appNotFoundError(access, idApp);
    const { removedAt: _, ...app } = removed;
    const apps = [...access.apps, { ...app, tokens: [record] }];
    const removedApps = access.removedApps?.filter((other) => other !== removed) ?? [];
    return { access: { ...access, apps, removedApps }, result: issued };
  });
}

/** Changes the settings of an app; effective everywhere within a second. Errors: `not_found`. */
export function setApp(paths: AccessPaths, idApp: number, { title, idProject }: AppSettings): Promise<ListedApp> {
  return changeApp(paths, idApp, ({ idProject: before, ...app }) => {
    const after = idProject === undefined ? before : (idProject ?? undefined);
    const changed: AppRecord = {
      ...app,
      ...(title === undefined ? {} : { title }),
      ...(after === undefined ? {} : { idProject: after }),
    };
    return [changed, toListedApp(changed)];
  });
}

/** Returns the age limits of all apps, removed ones included. Errors: `access_damaged`. */
export async function listKeepRules(paths: AccessPaths): Promise<({ readonly idApp: number } & KeepRule)[]> {
  const { apps, removedApps = [] } = await readAccessFile(paths);
  return [...apps, ...removedApps].map(({ idApp, keep }) => ({ idApp, ...keep }));
}

/**
 * Sets the age limit of an app's rows, or of one kind of them. `days`: 0 for no limit, undefined to remove the rule.
 * Errors: `not_found`.
 */
export function keepApp(
  paths: AccessPaths,
  idApp: number,
  days: number | undefined,
  kind: string | undefined,
): Promise<ListedApp> {
  return changeApp(paths, idApp, ({ keep: before = {}, ...app }) => {
    const { [kind ?? '']: _before, ...otherKinds } = before.kinds ?? {};
    const kinds = kind === undefined || days === undefined ? otherKinds : { ...otherKinds, [kind]: days };
    const ofApp = kind === undefined ? days : before.days;
    const keep: KeepRule = {
      ...(ofApp === undefined ? {} : { days: ofApp }),
      ...(Object.keys(kinds).length === 0 ? {} : { kinds }),
    };
    const changed: AppRecord = { ...app, ...(Object.keys(keep).length === 0 ? {} : { keep }) };
    return [changed, toListedApp(changed)];
  });
}
