import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { addApp, addAppToken, revokeAppToken } from '../../../src/access/apps.ts';
import { addUser, assertAccount, listUsers } from '../../../src/access/users.ts';
import type { AccessPaths } from '../../../src/access/access-file.ts';
import { noAccount } from '../../../src/access/access.ts';
import { openAccessReader } from '../../../src/access/store.ts';
import { pino } from 'pino';
import { createLogger, type Logger } from '../../../src/runtime/logger.ts';
import { temporaryFolder } from '../../helpers/folder.ts';

const logger = createLogger('silent');
const root = temporaryFolder();
let folders = 0;

function newPaths(): AccessPaths {
  const folder = path.join(root, String((folders += 1)));
  return { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
}

/** A logger that puts the errors it is given into a list. */
function recordErrors(errors: string[]): Logger {
  return pino({ hooks: { logMethod: ([fields]: unknown[]) => void errors.push((fields as { error: string }).error) } });
}

const webApp = { idApp: 7, platform: 'web', idAccount: 1 } as const;

describe('access', () => {
  it('Missing access data is empty and no error', async () => {
    const reader = await openAccessReader(newPaths(), logger);
    expect(reader.current().findApp(7)).toBeUndefined();
    reader.close();
  });

  it('An app is authorized only by its own token', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    const other = await addApp(paths, { ...webApp, idApp: 8 }, 0);
    const reader = await openAccessReader(paths, logger);
    const view = reader.current();
    expect(view.findAppByToken(7, token)).toMatchObject({ idApp: 7, platform: 'web', idAccount: 1 });
    expect(view.findAppByToken(7, other.token)).toBeUndefined();
    expect(view.findAppByToken(9, token)).toBeUndefined();
    expect(view.findAppByToken(7, '')).toBeUndefined();
    reader.close();
  });

  it('Both tokens are valid after a rotation until one is revoked by its prefix', async () => {
    const paths = newPaths();
    const first = await addApp(paths, webApp, 0);
    const second = await addAppToken(paths, 7, 0);
    const reader = await openAccessReader(paths, logger);
    expect(reader.current().findAppByToken(7, first.token)).toBeDefined();
    expect(reader.current().findAppByToken(7, second.token)).toBeDefined();

    await revokeAppToken(paths, 7, first.token.slice(0, 8));
    await vi.waitFor(() => expect(reader.current().findAppByToken(7, first.token)).toBeUndefined(), { timeout: 2000 });
    expect(reader.current().findAppByToken(7, second.token)).toBeDefined();
    reader.close();
  });

  it('A prefix that matches no token is rejected, and the error lists the valid tokens', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    await expect(revokeAppToken(paths, 7, 'nothing!')).rejects.toMatchObject({
      code: 'not_found',
      hint: expect.stringContaining(token.slice(0, 8)),
    });
    await expect(revokeAppToken(paths, 8, token)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('A second app with the same id or SDK key is rejected and changes nothing', async () => {
    const paths = newPaths();
    await addApp(paths, { ...webApp, sdkKey: 'one' }, 0);
    const before = readFileSync(paths.access, 'utf8');
    await expect(addApp(paths, webApp, 0)).rejects.toMatchObject({ code: 'conflict' });
    await expect(addApp(paths, { ...webApp, idApp: 8, sdkKey: 'one' }, 0)).rejects.toMatchObject({ code: 'conflict' });
    expect(readFileSync(paths.access, 'utf8')).toBe(before);
  });

  it('No concurrent change is lost', async () => {
    const paths = newPaths();
    await Promise.all(
      Array.from({ length: 12 }, (_, index) => addUser(paths, { name: `u${index}`, idAccount: 1, canExport: true })),
    );
    const reader = await openAccessReader(paths, logger);
    const names = Array.from({ length: 12 }, (_, index) => reader.current().findUser(String(index + 1))?.name);
    expect(new Set(names).size).toBe(12);
    reader.close();
  });

  it('A user is found with the secret, which is stored encrypted', async () => {
    const paths = newPaths();
    const { idUser, secret } = await addUser(paths, { name: 'ann', idAccount: 3, canExport: false, maxExports: 2 });
    const app = await addApp(paths, webApp, 0);
    const reader = await openAccessReader(paths, logger);
    expect(reader.current().findUser(idUser)).toEqual({
      idUser,
      name: 'ann',
      idAccount: 3,
      secret,
      canExport: false,
      maxExports: 2,
      files: 'auto',
      isOperator: false,
    });
    const atRest = readFileSync(paths.access, 'utf8');
    expect(atRest).not.toContain(secret);
    expect(atRest).not.toContain(app.token);
    expect(statSync(paths.access).mode & 0o777).toBe(0o600);
    expect(statSync(path.join(paths.keys, 'secrets.key')).mode & 0o777).toBe(0o600);
    reader.close();
  });

  it('A flag makes a user an operator, and only an operator may have no account', async () => {
    const paths = newPaths();
    const olga = await addUser(paths, { name: 'olga', idAccount: noAccount, canExport: false, operator: true });
    const otto = await addUser(paths, { name: 'otto', idAccount: 3, canExport: true, operator: true });
    const reader = await openAccessReader(paths, logger);
    const view = reader.current();
    expect(view.findUser(olga.idUser)).toMatchObject({ isOperator: true, idAccount: noAccount, canExport: false });
    expect(view.findUser(otto.idUser)).toMatchObject({ isOperator: true, idAccount: 3, canExport: true });
    expect(view.appsOfAccount(noAccount)).toEqual([]);
    expect(await listUsers(paths)).toEqual([
      { idUser: '1', name: 'olga', canExport: false, files: 'auto', operator: true },
      { idUser: '2', name: 'otto', idAccount: '3', canExport: true, files: 'auto', operator: true },
    ]);
    await expect(
      addUser(paths, { name: 'olga', idAccount: noAccount, canExport: false, operator: true }),
    ).rejects.toMatchObject({ code: 'conflict' });
    await expect(assertAccount(paths, noAccount)).rejects.toThrow('account 0 does not exist');
    reader.close();
    const text = readFileSync(paths.access, 'utf8');
    const { sha256: _, ...rest } = JSON.parse(text) as Record<string, unknown>;
    writeFileSync(
      paths.access,
      JSON.stringify({ ...rest, version: 1 }).replaceAll('"operator":true', '"files":"gzip"'),
    );
    await expect(listUsers(paths)).rejects.toMatchObject({ code: 'access_damaged' });
  });

  it('Only the apps of an account are listed, sorted by id', async () => {
    const paths = newPaths();
    await addApp(paths, { ...webApp, idApp: 20, idAccount: 5 }, 0);
    await addApp(paths, { ...webApp, idApp: 3, idAccount: 5 }, 0);
    await addApp(paths, { ...webApp, idApp: 4, idAccount: 6 }, 0);
    const reader = await openAccessReader(paths, logger);
    expect(
      reader
        .current()
        .appsOfAccount(5)
        .map((app) => app.idApp),
    ).toEqual([3, 20]);
    expect(reader.current().appsOfAccount(9)).toEqual([]);
    reader.close();
  });

  it('The last valid view stays active when the file is removed', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    const errors: string[] = [];
    const reader = await openAccessReader(paths, recordErrors(errors));
    rmSync(paths.access);
    await vi.waitFor(() => expect(errors).toEqual([expect.stringContaining('access.json is missing')]), {
      timeout: 5000,
    });
    expect(reader.current().findAppByToken(7, token)).toBeDefined();
    reader.close();
  });

  it('Apps are authorized without the key of the users, and no second key is created', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    const { idUser } = await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
    rmSync(path.join(paths.keys, 'secrets.key'));
    const errors: string[] = [];
    const reader = await openAccessReader(paths, recordErrors(errors));
    expect(errors).toEqual([expect.stringContaining('secrets.key is missing')]);
    expect(reader.current().findAppByToken(7, token)).toBeDefined();
    expect(reader.current().findUser(idUser)).toBeUndefined();
    await expect(addUser(paths, { name: 'bob', idAccount: 1, canExport: true })).rejects.toMatchObject({
      code: 'access_damaged',
    });
    reader.close();
  });

  it('A damaged secret locks out only its user', async () => {
    const paths = newPaths();
    const ann = await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
    const bob = await addUser(paths, { name: 'bob', idAccount: 1, canExport: true });
    const file = JSON.parse(readFileSync(paths.access, 'utf8')) as { users: { sealedSecret: string }[] };
    if (file.users[0] !== undefined) file.users[0].sealedSecret = file.users[1]?.sealedSecret ?? '';
    writeFileSync(paths.access, JSON.stringify({ ...file, version: 1, sha256: undefined }));
    const reader = await openAccessReader(paths, logger);
    expect(reader.current().findUser(ann.idUser)).toBeUndefined();
    expect(reader.current().findUser(bob.idUser)?.secret).toBe(bob.secret);
    reader.close();
  });

  it('A file edited by hand is rejected, unless it is marked as such', async () => {
    const paths = newPaths();
    await addApp(paths, webApp, 0);
    const written = readFileSync(paths.access, 'utf8');
    const changed = written.replace('"idAccount": 1', '"idAccount": 2');
    expect(changed).not.toBe(written);
    writeFileSync(paths.access, changed);
    const refusing = await openAccessReader(paths, logger);
    expect([refusing.mayMissApps(), refusing.problems()]).toMatchObject([
      true,
      [{ code: 'access_unreadable', message: expect.stringContaining('version to 1') }],
    ]);
    refusing.close();
    writeFileSync(paths.access, JSON.stringify({ ...(JSON.parse(changed) as object), version: 1, sha256: undefined }));
    await addApp(paths, { ...webApp, idApp: 8 }, 0);
    expect(JSON.parse(readFileSync(paths.access, 'utf8'))).toMatchObject({ version: 2, sha256: expect.any(String) });
    const reader = await openAccessReader(paths, logger);
    expect(reader.current().findApp(webApp.idApp)?.idAccount).toBe(2);
    reader.close();
  });

  it('A file that is damaged at the start authorizes no caller until it is restored; while running, the last valid view stays active', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    const reader = await openAccessReader(paths, logger);
    const whole = readFileSync(paths.access);
    writeFileSync(paths.access, '{"version":1');
    const later = await openAccessReader(paths, logger);
    expect(later.current().findAppByToken(7, token)).toBeUndefined();
    expect([later.mayMissApps(), later.mayMissUsers(), later.problems()[0]?.message]).toEqual([
      true,
      true,
      expect.stringContaining('imports and sign-ins are rejected'),
    ]);
    expect(reader.current().findAppByToken(7, token)).toBeDefined();
    reader.close();
    writeFileSync(paths.access, whole);
    await vi.waitFor(() => expect([later.mayMissApps(), later.problems()]).toEqual([false, []]), { timeout: 5000 });
    expect(later.current().findAppByToken(7, token)).toBeDefined();
    later.close();
  });
});
