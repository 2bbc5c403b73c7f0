import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';

/** Reports whether this machine has the programs to build and fetch a Debian package. */
export const hasApt = ['apt-get', 'dpkg-deb'].every((program) => spawnSync(program, ['--version']).status === 0);

const sha256 = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex');

const dayMs = 86_400_000;

/**
 * Creates a Debian archive in a folder, with one suite and one package: a nats-server that is a shell script. Its index
 * is valid for a week from its date, `ageDays` ago. Returns the archive's URI.
 */
export async function makeDebianArchive(folder: string, suite: string, script: string, ageDays = 0): Promise<string> {
  const architecture = execFileSync('dpkg', ['--print-architecture'], { encoding: 'utf8' }).trim();
  const tree = path.join(folder, 'tree');
  const index = path.join(folder, 'archive', 'dists', suite, 'main', `binary-${architecture}`);
  for (const needed of [path.join(tree, 'DEBIAN'), path.join(tree, 'usr/sbin'), index])
    await mkdir(needed, { recursive: true });
  const control = `Package: nats-server\nVersion: 2.15.1-1\nArchitecture: ${architecture}\nMaintainer: A Test <test@example.com>\nDescription: a server\n`;
  await writeFile(path.join(tree, 'DEBIAN/control'), control);
  await writeFile(path.join(tree, 'usr/sbin/nats-server'), `#!/bin/sh\n${script}\n`);
  await chmod(path.join(tree, 'usr/sbin/nats-server'), 0o755);
  execFileSync('dpkg-deb', ['--build', tree, path.join(folder, 'archive/nats-server.deb')], { stdio: 'ignore' });

  const madeMs = Date.now() - ageDays * dayMs;
  const deb = await readFile(path.join(folder, 'archive/nats-server.deb'));
  const packages = Buffer.from(`${control}Filename: nats-server.deb\nSize: ${deb.length}\nSHA256: ${sha256(deb)}\n`);
  await writeFile(path.join(index, 'Packages'), packages);
  await writeFile(
    path.join(folder, 'archive/dists', suite, 'Release'),
    `Suite: ${suite}\nCodename: ${suite}\nArchitectures: ${architecture}\nComponents: main\nDate: ${new Date(madeMs).toUTCString()}\nValid-Until: ${new Date(madeMs + 7 * dayMs).toUTCString()}\nSHA256:\n ${sha256(packages)} ${packages.length} main/binary-${architecture}/Packages\n`,
  );
  // apt reads it as the user _apt
  await chmod(folder, 0o755);
  return `file:${path.join(folder, 'archive')}`;
}

/** Creates an `/etc` of a Debian machine with the given package sources. */
export async function makeEtc(folder: string, sources: string, osRelease = 'ID=debian\n'): Promise<string> {
  const etc = path.join(folder, 'etc');
  await mkdir(path.join(etc, 'apt/sources.list.d'), { recursive: true });
  await writeFile(path.join(etc, 'os-release'), osRelease);
  await writeFile(path.join(etc, 'apt/sources.list.d/debian.sources'), sources);
  return etc;
}

/** Returns an entry of a machine's package sources, for a trusted archive. */
export const aptStanza = (uri: string): string =>
  `Types: deb\nURIs: ${uri}\nSuites: bookworm\nComponents: main\nTrusted: yes\n`;
