import { copyFileSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { keepAccessRevision, revisionPath, type AccessPaths } from '../../../src/access/access-file.ts';
import type { AccessReader } from '../../../src/access/access.ts';
import { addApp, revokeAppToken } from '../../../src/access/apps.ts';
import { addUser } from '../../../src/access/users.ts';
import { openAccessReader } from '../../../src/access/store.ts';
import { holdsEvents } from '../../../src/lake/files/data-file.ts';
import { renderChecksummed } from '../../../src/runtime/files/checksummed-json.ts';
import { areSameFolders, findFolderId } from '../../../src/runtime/files/folder-id.ts';
import { createLogger } from '../../../src/runtime/logger.ts';
import { testFolder } from '../../helpers/folder.ts';

const logger = createLogger('silent');
const webApp = { idApp: 7, platform: 'web', idAccount: 1 } as const;

function newPaths(): AccessPaths {
  const folder = testFolder();
  return { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
}

/** The state of a complete reader. */
function judge(reader: AccessReader) {
  return { apps: !reader.mayMissApps(), users: !reader.mayMissUsers(), problems: reader.problems().length };
}

const whole = { apps: true, users: true, problems: 0 };

describe('missing access data', () => {
  it('Missing access data is valid in a new folder', async () => {
    const reader = await openAccessReader(newPaths(), logger, { isExpected: () => holdsEvents('/nonexistent') });
    expect(judge(reader)).toEqual(whole);
    reader.close();
  });

  it('Access data that is missing at the start is a problem until it is restored', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    renameSync(paths.access, `${paths.access}.away`);
    const reader = await openAccessReader(paths, logger);
    expect(judge(reader)).toEqual({ apps: false, users: false, problems: 1 });
    expect(reader.problems()[0]?.message).toContain(`${paths.access} is missing`);
    renameSync(`${paths.access}.away`, paths.access);
    await vi.waitFor(() => expect(judge(reader)).toEqual(whole), { timeout: 5000 });
    expect(reader.current().findAppByToken(7, token)).toBeDefined();
    reader.close();
  });

  it.each(['_young', 'fresh', 'kind=login'])(
    'Missing access data is a problem if the lake has events (%s), also without the keys',
    async (name) => {
      const paths = newPaths();
      const lake = path.join(path.dirname(paths.access), 'lake');
      mkdirSync(path.join(lake, 'events', name), { recursive: true });
      writeFileSync(path.join(lake, 'events', name, 'a.parquet'), '');
      const reader = await openAccessReader(paths, logger, { isExpected: () => holdsEvents(lake) });
      expect(judge(reader)).toEqual({ apps: false, users: false, problems: 1 });
      reader.close();
    },
  );

  it('Access data that is lost while the service runs is a problem, and the last valid view stays active', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    const reader = await openAccessReader(paths, logger);
    expect(judge(reader)).toEqual(whole);
    rmSync(paths.access);
    await vi.waitFor(() => expect(judge(reader)).toEqual({ apps: false, users: false, problems: 1 }), {
      timeout: 5000,
    });
    expect(reader.current().findAppByToken(7, token)).toBeDefined();
    reader.close();
  });

  it('Access data of another folder at the same path is rejected, and no known caller becomes unknown', async () => {
    const paths = newPaths();
    const folder = path.dirname(paths.access);
    const { token } = await addApp(paths, webApp, 0);
    const own = { [folder]: findFolderId(folder) ?? '' };
    const isOwn = (): boolean => areSameFolders(own);
    const reader = await openAccessReader(paths, logger, { isOwn });
    expect(judge(reader)).toEqual(whole);
    renameSync(folder, `${folder}-away`);
    mkdirSync(folder);
    expect(judge(reader)).toMatchObject({ apps: false, users: false });
    const { token: theirs } = await addApp(paths, webApp, 0);
    await vi.waitFor(() => expect(reader.problems()).toHaveLength(1), { timeout: 5000 });
    expect(reader.current().findAppByToken(7, token)).toBeDefined();
    expect(reader.current().findAppByToken(7, theirs)).toBeUndefined();
    await expect(openAccessReader(paths, logger, { isOwn })).rejects.toThrow(
      'is not in the folder that the service was started',
    );
    rmSync(folder, { recursive: true });
    renameSync(`${folder}-away`, folder);
    await vi.waitFor(() => expect(judge(reader)).toEqual(whole), { timeout: 5000 });
    expect(reader.current().findAppByToken(7, token)).toBeDefined();
    reader.close();
  });

  it('A command does not create missing access data, which would lock out all users', async () => {
    const paths = newPaths();
    await addApp(paths, webApp, 0);
    rmSync(paths.access);
    await expect(addApp(paths, { ...webApp, idApp: 8 }, 0)).rejects.toMatchObject({
      code: 'access_damaged',
      hint: expect.stringContaining(revisionPath(paths.keys)),
    });
    rmSync(revisionPath(paths.keys));
    await addApp(paths, { ...webApp, idApp: 8 }, 0);
  });

  it('Access data that an earlier version wrote is known to have existed', async () => {
    const paths = newPaths();
    await addApp(paths, webApp, 0);
    rmSync(revisionPath(paths.keys));
    const {
      revision: _,
      sha256: __,
      ...early
    } = JSON.parse(readFileSync(paths.access, 'utf8')) as Record<string, unknown>;
    writeFileSync(paths.access, renderChecksummed(early, 2));
    await keepAccessRevision(paths);
    rmSync(paths.access);
    const reader = await openAccessReader(paths, logger);
    expect(judge(reader).apps).toBe(false);
    reader.close();
  });
});

describe('an older copy of the access data', () => {
  it('An older copy of the access data, in which revoked tokens are valid, is rejected at the start and by commands, and ignored while running', async () => {
    const paths = newPaths();
    const { token } = await addApp(paths, webApp, 0);
    copyFileSync(paths.access, `${paths.access}.old`);
    await revokeAppToken(paths, 7, token.slice(0, 8));
    const reader = await openAccessReader(paths, logger);
    copyFileSync(`${paths.access}.old`, paths.access);
    await vi.waitFor(() => expect(reader.problems()[0]?.message).toContain('older copy'), { timeout: 5000 });
    expect(reader.current().findAppByToken(7, token)).toBeUndefined();
    reader.close();
    const later = await openAccessReader(paths, logger);
    expect(later.current().findAppByToken(7, token)).toBeUndefined();
    expect([later.mayMissApps(), later.problems()[0]?.message]).toEqual([true, expect.stringContaining('older copy')]);
    later.close();
    await expect(addApp(paths, { ...webApp, idApp: 8 }, 0)).rejects.toMatchObject({ code: 'access_damaged' });

    // The operator accepts the older copy.
    rmSync(revisionPath(paths.keys));
    const meant = await openAccessReader(paths, logger);
    expect(meant.current().findAppByToken(7, token)).toBeDefined();
    meant.close();
  });
});

describe('the key of the users', () => {
  it('A missing key of the users is a problem for users only, until it is restored', async () => {
    const paths = newPaths();
    await addApp(paths, webApp, 0);
    const { idUser, secret } = await addUser(paths, { name: 'ann', idAccount: 1, canExport: true });
    const key = path.join(paths.keys, 'secrets.key');
    renameSync(key, `${key}.away`);
    const reader = await openAccessReader(paths, logger);
    expect(judge(reader)).toEqual({ apps: true, users: false, problems: 1 });
    renameSync(`${key}.away`, key);
    await vi.waitFor(() => expect(judge(reader)).toEqual(whole), { timeout: 5000 });
    expect(reader.current().findUser(idUser)?.secret).toBe(secret);

    // Users who could sign in still can.
    renameSync(key, `${key}.away`);
    await vi.waitFor(() => expect(judge(reader).problems).toBe(1), { timeout: 5000 });
    expect(reader.current().findUser(idUser)?.secret).toBe(secret);
    reader.close();
  });
});
