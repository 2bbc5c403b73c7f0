import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { AccessPaths } from '../../../src/access/access-file.ts';
import type { AccessReader } from '../../../src/access/access.ts';
import { addApp, addAppToken, listApps, removeApp, restoreApp, revokeAppToken } from '../../../src/access/apps.ts';
import { addUser, listUsers, removeUser, rotateUserSecret } from '../../../src/access/users.ts';
import { openAccessReader } from '../../../src/access/store.ts';
import { renderChecksummed } from '../../../src/runtime/files/checksummed-json.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { testFolder } from '../../helpers/folder.ts';

const webApp = { idApp: 7, platform: 'web', idAccount: 1 } as const;
const ann = { name: 'ann', idAccount: 1, canExport: true } as const;

function newPaths(): AccessPaths {
  const folder = testFolder();
  return { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
}

async function open(paths: AccessPaths): Promise<AccessReader> {
  const reader = await openAccessReader(paths, createLogger('silent'));
  onTestFinished(() => reader.close());
  return reader;
}

describe('an app that is removed', () => {
  it('A removed app is authorized by none of its tokens and listed as removed, until it is restored with a new token', async () => {
    const paths = newPaths();
    const given = { ...webApp, title: 'Game', sdkKey: 'k', idProject: 5 };
    const tokens = [(await addApp(paths, given, 0)).token, (await addAppToken(paths, 7, 1)).token];
    const reader = await open(paths);
    const [live] = await listApps(paths);
    expect(live).toEqual({
      idApp: '7',
      platform: 'web',
      title: 'Game',
      idAccount: '1',
      idProject: '5',
      sdkKey: 'k',
      tokens: tokens.map((token, index) => ({ prefix: token.slice(0, 8), createdAt: new Date(index).toISOString() })),
    });

    expect(await removeApp(paths, 7, 1000)).toEqual({
      idApp: '7',
      removedAt: '1970-01-01T00:00:01.000Z',
      revoked: tokens.map((token) => token.slice(0, 8)),
    });
    await vi.waitFor(() => expect(reader.current().findApp(7)).toBeUndefined(), { timeout: 2000 });
    expect([
      reader.current().appsOfAccount(1),
      tokens.map((token) => reader.current().findAppByToken(7, token)),
    ]).toEqual([[], [undefined, undefined]]);
    expect([await listApps(paths), await listApps(paths, true)]).toEqual([
      [],
      [{ ...live, tokens: [], removedAt: '1970-01-01T00:00:01.000Z' }],
    ]);

    const restored = await restoreApp(paths, 7, 2000);
    await vi.waitFor(() => expect(reader.current().findAppByToken(7, restored.token)).toMatchObject({ ...given }), {
      timeout: 2000,
    });
    expect(tokens.map((token) => reader.current().findAppByToken(7, token))).toEqual([undefined, undefined]);
    expect([(await listApps(paths)).map(({ idApp }) => idApp), await listApps(paths, true)]).toEqual([['7'], []]);
  });

  it('A removed app keeps its id and its SDK key from every other app, since it still owns its rows', async () => {
    const paths = newPaths();
    await addApp(paths, { ...webApp, sdkKey: 'k' }, 0);
    await removeApp(paths, 7, 1000);
    const before = readFileSync(paths.access, 'utf8');
    await expect(addApp(paths, { ...webApp, idAccount: 2 }, 0)).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('app 7 was removed at 1970-01-01T00:00:01.000Z'),
      hint: expect.stringContaining('app restore 7'),
    });
    await expect(addApp(paths, { ...webApp, idApp: 8, sdkKey: 'k' }, 0)).rejects.toMatchObject({
      code: 'conflict',
      hint: expect.stringContaining('app restore 7'),
    });
    expect(readFileSync(paths.access, 'utf8')).toBe(before);
  });

  it('A second removal of an app, concurrent or later, is rejected and changes nothing', async () => {
    const paths = newPaths();
    await addApp(paths, webApp, 0);
    const both = await Promise.allSettled([removeApp(paths, 7, 1000), removeApp(paths, 7, 1000)]);
    expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    for (const again of [
      () => removeApp(paths, 7, 0),
      () => addAppToken(paths, 7, 0),
      () => revokeAppToken(paths, 7, 'abcd'),
    ]) {
      await expect(again()).rejects.toMatchObject({
        code: 'not_found',
        message: expect.stringContaining('was removed at'),
        hint: expect.stringContaining('app restore 7'),
      });
    }
    await restoreApp(paths, 7, 0);
    await expect(restoreApp(paths, 7, 0)).rejects.toMatchObject({ code: 'conflict' });
    await expect(restoreApp(paths, 70, 0)).rejects.toMatchObject({
      code: 'not_found',
      message: 'app 70 does not exist',
    });
  });

  it('The removal of an unknown app creates no file in a folder without access data', async () => {
    const paths = newPaths();
    for (const attempt of [
      () => removeApp(paths, 7, 0),
      () => removeUser(paths, 1),
      () => rotateUserSecret(paths, 1),
      () => addAppToken(paths, 7, 0),
    ])
      await expect(attempt()).rejects.toMatchObject({ code: 'not_found' });
    expect([existsSync(paths.keys), existsSync(paths.access)]).toEqual([false, false]);
  });
});

describe('a user', () => {
  it('A removed user is found by no process, and its id is never reused', async () => {
    const paths = newPaths();
    const first = await addUser(paths, ann);
    const reader = await open(paths);
    expect(await listUsers(paths)).toEqual([
      { idUser: '1', name: 'ann', idAccount: '1', canExport: true, files: 'auto' },
    ]);
    expect(await removeUser(paths, 1)).toEqual({ idUser: '1', name: 'ann' });
    await vi.waitFor(() => expect(reader.current().findUser(first.idUser)).toBeUndefined(), { timeout: 2000 });
    expect(reader.mayMissUsers()).toBe(false);
    await expect(removeUser(paths, 1)).rejects.toMatchObject({ code: 'not_found', message: 'user 1 was removed' });
    await expect(removeUser(paths, 2)).rejects.toMatchObject({ code: 'not_found', message: 'user 2 does not exist' });
    expect((await addUser(paths, ann)).idUser).toBe('2');
  });

  it('The name of a user is unique in an account, and the error names the existing user', async () => {
    const paths = newPaths();
    await addUser(paths, ann);
    await expect(addUser(paths, { ...ann, canExport: false })).rejects.toMatchObject({
      code: 'conflict',
      message: 'user ann already exists in account 1: 1',
      hint: expect.stringContaining('user rotate-secret 1'),
    });
    expect((await addUser(paths, { ...ann, idAccount: 2 })).idUser).toBe('2');
    const both = await Promise.allSettled([
      addUser(paths, { ...ann, name: 'bob' }),
      addUser(paths, { ...ann, name: 'bob' }),
    ]);
    expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
  });

  it('After a rotation only the new secret signs in, even if the old one was damaged', async () => {
    const paths = newPaths();
    const [first, other] = [await addUser(paths, ann), await addUser(paths, { ...ann, name: 'bob' })];
    const { sha256: _, ...file } = JSON.parse(readFileSync(paths.access, 'utf8')) as {
      sha256: string;
      users: { sealedSecret: string }[];
    };
    if (file.users[0] !== undefined) file.users[0].sealedSecret = 'damaged';
    writeFileSync(paths.access, renderChecksummed({ ...file }));
    const reader = await open(paths);
    expect([reader.current().findUser('1'), reader.mayMissUsers()]).toEqual([undefined, true]);
    const renewed = await rotateUserSecret(paths, 1);
    expect(renewed.secret).not.toBe(first.secret);
    await vi.waitFor(() => expect(reader.current().findUser('1')?.secret).toBe(renewed.secret), { timeout: 2000 });
    expect([reader.current().findUser('2')?.secret, reader.mayMissUsers()]).toEqual([other.secret, false]);
    await expect(rotateUserSecret(paths, 3)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('A secret is not rotated under a key that differs from the one of other users', async () => {
    const paths = newPaths();
    await addUser(paths, ann);
    await addUser(paths, { ...ann, name: 'bob' });
    const key = path.join(paths.keys, 'secrets.key');
    writeFileSync(key, `${'ab'.repeat(32)}\n`);
    await expect(rotateUserSecret(paths, 1)).rejects.toMatchObject({ code: 'access_damaged' });
    rmSync(key);
    await expect(rotateUserSecret(paths, 1)).rejects.toMatchObject({ code: 'access_damaged' });
    // Without a backup, the other users are removed first: a new key then locks out no user.
    await removeUser(paths, 2);
    const { secret } = await rotateUserSecret(paths, 1);
    expect((await open(paths)).current().findUser('1')?.secret).toBe(secret);
  });
});

describe('removal of access', () => {
  it('Removals work while the key of the users is missing, and affect no other user', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    const [first, other] = [await addUser(paths, ann), await addUser(paths, { ...ann, name: 'bob' })];
    const reader = await open(paths);
    const key = path.join(paths.keys, 'secrets.key');
    renameSync(key, `${key}.away`);
    await removeApp(paths, 7, 0);
    await removeUser(paths, Number(first.idUser));
    await vi.waitFor(
      () =>
        expect([reader.current().findAppByToken(7, token), reader.current().findUser('1')]).toEqual([
          undefined,
          undefined,
        ]),
      { timeout: 2000 },
    );
    expect(reader.current().findUser('2')?.secret).toBe(other.secret);
    expect(reader.problems().map(({ message }) => message)).toEqual([
      expect.stringContaining('cannot sign in after the next start'),
    ]);
  });

  it('The last token of an app can be revoked, and the result lists no remaining token', async () => {
    const paths = newPaths();
    const [first, second] = [
      (await addApp(paths, webApp, 0)).token.slice(0, 8),
      (await addAppToken(paths, 7, 0)).token.slice(0, 8),
    ];
    expect(await revokeAppToken(paths, 7, first)).toEqual({ idApp: '7', revoked: first, tokens: [second] });
    expect(await revokeAppToken(paths, 7, second)).toEqual({ idApp: '7', revoked: second, tokens: [] });
    expect((await listApps(paths))[0]?.tokens).toEqual([]);
  });
});

describe('an SDK key', () => {
  it.each(['a,b', ',', '', 'x'.repeat(256)])('An SDK key that no filter can name is rejected: %j', async (sdkKey) => {
    const paths = newPaths();
    await expect(addApp(paths, { ...webApp, sdkKey }, 0)).rejects.toMatchObject({
      code: 'usage',
      hint: expect.stringContaining('1 to 255 characters without a comma'),
    });
    expect(existsSync(paths.access)).toBe(false);
  });

  it('An SDK key of an earlier version is read unchanged', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, { ...webApp, sdkKey: '\u{1f600}'.repeat(255) }, 0);
    const { sha256: _, ...file } = JSON.parse(readFileSync(paths.access, 'utf8')) as {
      sha256: string;
      apps: { sdkKey: string }[];
    };
    if (file.apps[0] !== undefined) file.apps[0].sdkKey = 'a,b';
    writeFileSync(paths.access, renderChecksummed({ ...file }));
    expect((await open(paths)).current().findAppByToken(7, token)?.sdkKey).toBe('a,b');
    await addApp(paths, { ...webApp, idApp: 8 }, 0);
    expect((await listApps(paths)).map(({ sdkKey }) => sdkKey)).toContain('a,b');
  });
});
