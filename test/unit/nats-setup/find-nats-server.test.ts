import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  cacheFolder,
  compareVersions,
  findNatsServer,
  findVersion,
} from '../../../src/nats-setup/ensure-nats-server.ts';
import { testFolder } from '../../helpers/folder.ts';

/** A program that answers `--version` as nats-server does. */
async function program(folder: string, output: string, exitCode = 0): Promise<string> {
  await mkdir(folder, { recursive: true });
  const file = path.join(folder, 'nats-server');
  await writeFile(file, `#!/bin/sh\necho '${output}'\nexit ${exitCode}\n`);
  await chmod(file, 0o755);
  return file;
}

describe('the search for a nats-server', () => {
  it('The search for a nats-server returns the first on PATH that is new enough', async () => {
    const folder = testFolder();
    await program(path.join(folder, 'old'), 'nats-server: v2.9.10');
    const good = await program(path.join(folder, 'good'), 'nats-server: v2.14.0');
    await program(path.join(folder, 'newer'), 'nats-server: v2.15.1');
    const search = [
      'relative',
      path.join(folder, 'absent'),
      path.join(folder, 'old'),
      path.join(folder, 'good'),
      path.join(folder, 'newer'),
    ].join(':');
    expect(await findNatsServer({ path: search, cacheFolder: path.join(folder, 'cache') })).toEqual({
      binary: good,
      version: '2.14.0',
    });
  });

  it('The search for a nats-server falls back to the newest in the cache that runs', async () => {
    const cache = testFolder();
    await program(path.join(cache, 'nats-server', '2.9.1'), 'nats-server: v2.9.1');
    const good = await program(path.join(cache, 'nats-server', '2.15.2'), 'nats-server: v2.15.2');
    await program(path.join(cache, 'nats-server', '2.100.0'), 'no such library', 127);
    await program(path.join(cache, 'nats-server', '.new-abc'), 'nats-server: v2.16.0');
    expect(await findNatsServer({ path: undefined, cacheFolder: cache })).toEqual({ binary: good, version: '2.15.2' });
  });

  it('The search for a nats-server finds none where there is none', async () => {
    const folder = testFolder();
    expect(await findNatsServer({ path: folder, cacheFolder: folder })).toBeUndefined();
    expect(await findVersion(folder)).toBeUndefined();
  });

  it('The search for a nats-server names a cache that cannot be read, unless PATH has one', async () => {
    const cache = testFolder();
    // A link to itself cannot be read.
    await symlink('nats-server', path.join(cache, 'nats-server'));
    await expect(findNatsServer({ path: '', cacheFolder: cache })).rejects.toMatchObject({
      code: 'broker_missing',
      message: expect.stringContaining(`the cache folder ${path.join(cache, 'nats-server')} cannot be read`) as unknown,
      hint: expect.stringContaining('TRIBUTARY_CACHE_DIR') as unknown,
    });
    const bin = path.join(testFolder(), 'bin');
    const binary = await program(bin, 'nats-server: v2.14.0');
    expect(await findNatsServer({ path: bin, cacheFolder: cache })).toEqual({ binary, version: '2.14.0' });
  });

  it('The search for a nats-server compares versions as numbers', () => {
    expect(['2.9.10', '2.14', '2.100.0', '2.14.1', '2.14.0'].toSorted(compareVersions)).toEqual([
      '2.9.10',
      '2.14',
      '2.14.0',
      '2.14.1',
      '2.100.0',
    ]);
  });

  it('The search for a nats-server keeps the cache where the environment sets it', () => {
    expect(cacheFolder({ HOME: '/home/a' })).toBe('/home/a/.cache/tributary');
    expect(cacheFolder({ HOME: '/home/a', XDG_CACHE_HOME: '/var/cache' })).toBe('/var/cache/tributary');
    expect(cacheFolder({ HOME: '/home/a', XDG_CACHE_HOME: 'relative' })).toBe('/home/a/.cache/tributary');
    expect(cacheFolder({ HOME: '/home/a', XDG_CACHE_HOME: '/var/cache', TRIBUTARY_CACHE_DIR: '/srv/t' })).toBe(
      '/srv/t',
    );
  });
});
