import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ensureDataFolder, findDataFormat } from '../../../../src/runtime/files/data-format.ts';
import { makeFolder, makeFolderSync } from '../../../../src/runtime/files/make-folder.ts';
import { testFolder } from '../../../helpers/folder.ts';

/** What may be at the path that is to become a folder, or above it, by what is said of it. */
const obstacles: readonly (readonly [string, RegExp, (root: string) => string | Promise<string>])[] = [
  ['a folder of /proc', /its parent does not allow new folders/, () => '/proc/tributary'],
  ['a folder below that', /its parent does not allow new folders/, () => '/proc/tributary/a/b'],
  ['a device', /a part of its path is a file/, () => '/dev/null/data'],
  ['a file', /a file has that name/, (root) => (writeFileSync(path.join(root, 'file'), ''), path.join(root, 'file'))],
  [
    'a file above it',
    /a part of its path is a file/,
    (root) => (writeFileSync(path.join(root, 'file'), ''), path.join(root, 'file', 'data')),
  ],
  [
    'a named pipe',
    /a named pipe has that name/,
    (root) => (execFileSync('mkfifo', [path.join(root, 'pipe')]), path.join(root, 'pipe')),
  ],
  [
    'a link that leads nowhere',
    /a broken symbolic link has that name/,
    (root) => (symlinkSync('nowhere', path.join(root, 'link')), path.join(root, 'link')),
  ],
  [
    'a link above it that leads nowhere',
    /a broken symbolic link has that name|its parent does not allow new folders/,
    (root) => (symlinkSync('nowhere', path.join(root, 'link')), path.join(root, 'link', 'data')),
  ],
  [
    'a circle of links',
    /a broken symbolic link has that name/,
    (root) => (symlinkSync('circle', path.join(root, 'circle')), path.join(root, 'circle')),
  ],
  [
    'a circle of links above it',
    /too many symbolic links in its path/,
    (root) => (symlinkSync('circle', path.join(root, 'circle')), path.join(root, 'circle', 'data')),
  ],
  ['a name that is too long', /the name is too long/, (root) => path.join(root, 'x'.repeat(300))],
  [
    'a path that is too long',
    /the name is too long/,
    (root) => path.join(root, ...Array.from({ length: 30 }, () => 'x'.repeat(200))),
  ],
];

const isReadable = (file: string): boolean => (file.startsWith('/proc') ? existsSync('/proc/self') : true);

describe('a data folder that cannot be made', () => {
  it.each(obstacles)('A data folder blocked by %s is refused at once, in words', async (_what, reason, prepare) => {
    const folder = await prepare(testFolder());
    if (!isReadable(folder)) return;
    expect(() => makeFolderSync(folder)).toThrow(reason);
    await expect(makeFolder(folder)).rejects.toThrow(reason);
    await expect(ensureDataFolder(folder)).rejects.toMatchObject({
      code: 'disk',
      message: `cannot use the data folder ${folder}`,
      hint: expect.stringContaining('--data') as string,
    });
  });

  it('A data folder blocked by a socket is refused', async () => {
    const file = path.join(testFolder(), 'socket');
    const server = createServer().listen(file);
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    await expect(makeFolder(file)).rejects.toThrow(/a socket has that name/);
  });

  it.runIf(process.getuid?.() === 0)(
    'A data folder on a volume of another user is refused with one sentence that names both users',
    async () => {
      const volume = testFolder();
      const folder = path.join(volume, 'data');
      const foreign = `${volume} belongs to user 0, and this process runs as user 10001`;
      process.seteuid?.(10_001);
      try {
        await expect(ensureDataFolder(folder)).rejects.toMatchObject({
          code: 'disk',
          message: `cannot use the data folder ${folder}: ${foreign}`,
          hint: expect.stringMatching(
            /^Make 10001:\d+ the owner of the folder or volume, or pass another folder/,
          ) as string,
        });
        expect(() => findDataFormat(folder)).toThrow(foreign);
      } finally {
        process.seteuid?.(0);
      }
    },
  );

  it.runIf(process.getuid?.() === 0)(
    'A data folder on a read-only file system is refused, also when it exists already',
    async (context) => {
      const folder = path.join(testFolder(), 'read-only');
      mkdirSync(folder);
      try {
        execFileSync('mount', ['-t', 'tmpfs', '-o', 'ro,size=64k', 'tmpfs', folder], { stdio: 'ignore' });
      } catch {
        context.skip();
      }
      onTestFinished(() => void execFileSync('umount', ['--lazy', folder]));
      await expect(makeFolder(path.join(folder, 'data'))).rejects.toThrow(/the file system is read-only/);
      await expect(ensureDataFolder(folder)).rejects.toMatchObject({ code: 'disk' });
    },
  );
});

describe('a data folder', () => {
  it('A data folder is created with its parents, for its owner only, and existing ones stay as they are', async () => {
    const root = testFolder();
    const folder = path.join(root, 'a', 'b');
    await ensureDataFolder(folder, [path.join(folder, 'run')]);
    expect(readdirSync(folder)).toEqual(['run']);
    expect([path.join(root, 'a'), folder].map((made) => statSync(made).mode & 0o777)).toEqual([0o700, 0o700]);
    expect(await makeFolder(folder)).toBeUndefined();
    expect(await makeFolder(path.join(root, 'c', 'd'))).toBe(path.join(root, 'c'));
    expect(makeFolderSync(path.join(root, 'c', 'e', 'f'))).toBe(path.join(root, 'c', 'e'));
  });

  it('A data folder may be a link to a folder', async () => {
    const root = testFolder();
    mkdirSync(path.join(root, 'real'));
    symlinkSync('real', path.join(root, 'link'));
    await ensureDataFolder(path.join(root, 'link'));
    await ensureDataFolder(path.join(root, 'link', 'below'));
    expect(readdirSync(path.join(root, 'real'))).toEqual(['below']);
  });

  it('A data folder is created once by many callers at a time', async () => {
    const root = testFolder();
    const made = await Promise.all(
      Array.from({ length: 20 }, (_, n) => makeFolder(path.join(root, 'a', 'b', String(n % 2)))),
    );
    expect(made.filter((first) => first === path.join(root, 'a'))).toHaveLength(1);
    expect(readdirSync(path.join(root, 'a', 'b')).toSorted()).toEqual(['0', '1']);
  });

  it.each([
    'access.json',
    '.lock',
    'keys/secrets.key',
    'run/supervisor-1.json',
    'lake/identity.json',
    'lake/events/_delta_log/00000000000000000000.json',
    'nats/nats-server.conf',
  ])('A data folder with a named pipe as %s is rejected, since it would block a reader indefinitely', async (name) => {
    const folder = testFolder();
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    execFileSync('mkfifo', [path.join(folder, name)]);
    await expect(ensureDataFolder(folder)).rejects.toMatchObject({
      code: 'disk',
      message: expect.stringContaining(`${path.join(folder, name)} is a named pipe`) as string,
    });
  });
});
