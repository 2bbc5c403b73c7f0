import { statSync } from 'node:fs';
import { describeError, isSystemError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { AccessReader, AccessView, App, User } from './access.ts';
import { readAccessFile, type AccessFile } from './access-file.ts';
import type { AccessPaths } from './commands.ts';
import { findSecretsKey, hashToken, openSecret, sameHash } from './secrets.ts';

/** How often the access file is looked at; a change is promised to take effect within a second. */
const pollMs = 400;

function createView(access: AccessFile, secretsKey: Buffer | undefined): AccessView {
  const apps = new Map<number, { app: App; tokenHashes: readonly Buffer[] }>();
  const byAccount = new Map<number, App[]>();
  for (const record of access.apps) {
    const { tokens, idProject, ...rest } = record;
    const app: App = { ...rest, idProject };
    apps.set(app.idApp, { app, tokenHashes: tokens.map((token) => Buffer.from(token.sha256, 'hex')) });
    byAccount.set(app.idAccount, [...(byAccount.get(app.idAccount) ?? []), app].toSorted((a, b) => a.idApp - b.idApp));
  }
  const users = new Map<string, User>();
  for (const { idUser, sealedSecret, maxExports, ...rest } of access.users) {
    // Without the key no secret can be opened: the user then cannot sign in, and the others still can.
    if (secretsKey === undefined) continue;
    users.set(String(idUser), { ...rest, idUser: String(idUser), secret: openSecret(secretsKey, sealedSecret, String(idUser)), maxExports });
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

/** What tells one version of the file from the next: every write is a new inode. */
function fingerprint(file: string): string {
  try {
    const { ino, mtimeMs, size } = statSync(file);
    return `${ino}:${mtimeMs}:${size}`;
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return 'none';
    throw error;
  }
}

/**
 * Opens the access data for reading and keeps the view fresh. `corrupt` at start when the file cannot be read; while
 * running, an unreadable file is logged and the last good view stays.
 */
export function openAccessReader(paths: AccessPaths, logger: Logger): AccessReader {
  const load = (): AccessView => createView(readAccessFile(paths.access), findSecretsKey(paths.keys));
  let seen = fingerprint(paths.access);
  let view = load();

  const timer = setInterval(() => {
    try {
      const now = fingerprint(paths.access);
      if (now === seen) return;
      view = load();
      seen = now;
    } catch (error) {
      logger.error({ error: describeError(error) }, 'access file cannot be read, the last good one stays in force');
    }
  }, pollMs).unref();

  return { current: () => view, close: () => clearInterval(timer) };
}
