import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { platform } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ensureNatsServer } from '../../src/nats-setup/ensure-nats-server.ts';
import { aptStanza, hasApt, makeDebianArchive, makeEtc } from '../helpers/debian-archive.ts';
import { testFolder } from '../helpers/folder.ts';

if (!hasApt) process.stderr.write('setup.test.ts: no apt-get here; what fetches with apt is not tested\n');

/** Signs the index of an archive with a new key; returns the file of the key. */
function sign(folder: string, suite: string): string {
  const home = path.join(folder, 'gpg');
  const key = path.join(folder, 'key.gpg');
  const release = path.join(folder, 'archive/dists', suite, 'Release');
  const gpg = (...words: readonly string[]): unknown =>
    execFileSync(
      'gpg',
      ['--homedir', home, '--batch', '--quiet', '--passphrase', '', '--pinentry-mode', 'loopback', ...words],
      { stdio: 'ignore' },
    );
  mkdirSync(home, { mode: 0o700 });
  // gpg starts an agent, which would stay
  onTestFinished(() => void spawnSync('gpgconf', ['--homedir', home, '--kill', 'all']));
  gpg('--quick-gen-key', 'test@example.com', 'ed25519', 'sign', 'never');
  gpg('--output', key, '--export');
  gpg('--output', path.join(path.dirname(release), 'InRelease'), '--clearsign', release);
  return key;
}

/** Folders of the system's programs, without any nats-server. */
const emptyPath = (folder: string): { PATH: string; HOME: string; TRIBUTARY_CACHE_DIR: string } => ({
  PATH: path.join(folder, 'bin'),
  HOME: folder,
  TRIBUTARY_CACHE_DIR: path.join(folder, 'cache'),
});

describe.runIf(hasApt)('setting up nats-server on Debian', () => {
  it('Set-up on Debian fetches the package of the rolling suite into the cache once, and finds it there afterwards', async () => {
    const folder = testFolder();
    const uri = await makeDebianArchive(folder, 'sid', 'echo nats-server: v2.15.1');
    const etc = await makeEtc(folder, `${aptStanza(`file:${folder}/absent`)}\n${aptStanza(uri)}`);
    const notes: string[] = [];
    const onFetch = (text: string): void => void notes.push(text);

    const first = await ensureNatsServer(emptyPath(folder), { etc, onFetch });
    const binary = path.join(folder, 'cache/nats-server/2.15.1/nats-server');
    expect(first).toEqual({ how: 'fetched', binary, version: '2.15.1' });
    expect(notes).toHaveLength(1);
    expect(await ensureNatsServer(emptyPath(folder), { etc, onFetch })).toEqual({
      how: 'found',
      binary,
      version: '2.15.1',
    });
    expect(notes).toHaveLength(1);
    expect(await readdir(path.join(folder, 'cache/nats-server'))).toEqual(['2.15.1']);
  });

  it('Set-up on Debian replaces a broken server in the cache', async () => {
    const folder = testFolder();
    const uri = await makeDebianArchive(folder, 'sid', 'echo nats-server: v2.15.1');
    const broken = path.join(folder, 'cache/nats-server/2.15.1');
    await mkdir(broken, { recursive: true });
    await writeFile(path.join(broken, 'nats-server'), 'half a file', { mode: 0o755 });
    expect(await ensureNatsServer(emptyPath(folder), { etc: await makeEtc(folder, aptStanza(uri)) })).toMatchObject({
      how: 'fetched',
      version: '2.15.1',
    });
  });

  it('Several set-ups at once on Debian end with one working server', async () => {
    const folder = testFolder();
    const etc = await makeEtc(folder, aptStanza(await makeDebianArchive(folder, 'sid', 'echo nats-server: v2.15.1')));
    const results = await Promise.all([1, 2, 3].map(() => ensureNatsServer(emptyPath(folder), { etc })));
    expect(results.map((result) => (result.how === 'external' ? '' : result.version))).toEqual([
      '2.15.1',
      '2.15.1',
      '2.15.1',
    ]);
    expect(await readdir(path.join(folder, 'cache/nats-server'))).toEqual(['2.15.1']);
  });

  it('Set-up on Debian refuses a package whose server does not run or is too old, keeps nothing, and names the command to run', async () => {
    for (const [output, reason] of [
      ['exit 1', 'does not run'],
      ['echo nats-server: v2.10.4', 'too old'],
    ] as const) {
      const folder = testFolder();
      const etc = await makeEtc(folder, aptStanza(await makeDebianArchive(folder, 'sid', output)));
      await expect(ensureNatsServer(emptyPath(folder), { etc })).rejects.toMatchObject({
        code: 'broker_missing',
        message: expect.stringContaining(reason) as string,
        hint: expect.stringContaining('go install') as string,
      });
      expect(await readdir(path.join(folder, 'cache/nats-server'))).toEqual([]);
    }
  });

  it('Set-up on Debian accepts the package of a mirror whose index is weeks old, and none of an index that is months old', async (context) => {
    // apt looks at the age of a signed index only
    if (spawnSync('gpg', ['--version']).status !== 0) context.skip('it needs gpg, to sign an archive');
    // a machine's apt may be configured to accept an index of any age
    const settings = path.join(testFolder(), 'apt.conf');
    await writeFile(settings, `Dir::Etc::Parts "${testFolder()}";\n`);
    vi.stubEnv('APT_CONFIG', settings);
    onTestFinished(() => void vi.unstubAllEnvs());
    for (const [ageDays, outcome] of [
      [30, '2.15.1'],
      [120, 'Release file .* is expired'],
    ] as const) {
      const folder = testFolder();
      const uri = await makeDebianArchive(folder, 'sid', 'echo nats-server: v2.15.1', ageDays);
      const etc = await makeEtc(folder, aptStanza(uri).replace('Trusted: yes', `Signed-By: ${sign(folder, 'sid')}`));
      const done = await ensureNatsServer(emptyPath(folder), { etc }).then(
        (result) => (result.how === 'external' ? '' : result.version),
        String,
      );
      expect(done).toMatch(new RegExp(outcome));
    }
  });

  it.each([
    ['an open', 0o022],
    ['a strict', 0o077],
  ])('Set-up on Debian reports the words of apt when no source has the package, under %s umask', async (_, umask) => {
    const folder = testFolder();
    const etc = await makeEtc(
      folder,
      aptStanza(await makeDebianArchive(folder, 'bookworm', 'echo nats-server: v2.9.10')),
    );
    const before = process.umask(umask);
    onTestFinished(() => void process.umask(before));
    await expect(ensureNatsServer(emptyPath(folder), { etc })).rejects.toThrow(
      /fetching one failed: apt did not download nats-server: (?!.*unsandboxed).*dists.sid/,
    );
  });
});

describe('setting up nats-server elsewhere', () => {
  it('Set-up needs no nats-server when the operator names a cluster', async () => {
    const folder = testFolder();
    expect(await ensureNatsServer({ ...emptyPath(folder), TRIBUTARY_NATS_URL: 'nats://nats.test:4222' })).toEqual({
      how: 'external',
    });
  });

  it('Set-up names the command that installs nats-server in one sentence where apt cannot', async () => {
    const folder = testFolder();
    const etc = await makeEtc(folder, '', 'ID=alpine\n');
    await expect(ensureNatsServer(emptyPath(folder), { etc })).rejects.toMatchObject({
      code: 'broker_missing',
      hint: expect.stringMatching(platform() === 'linux' ? /apk add nats-server/ : /install/) as string,
    });
  });
});
