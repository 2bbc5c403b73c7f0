import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { fetchWithApt, readAptMirrors } from '../../src/nats-setup/apt-fetch.ts';
import { cacheFolder } from '../../src/nats-setup/ensure-nats-server.ts';

/** A package of this machine's Debian archive whose programs run without other packages. */
export interface DebianPrograms {
  readonly package: string;
  readonly programs: readonly string[];
}

/**
 * Returns the folder of the programs: from PATH, or from a package of the machine's release that the first call fetches
 * into the cache folder without installing it. Undefined, with a notice, if they are not available.
 */
export async function findDebianPrograms({ package: name, programs }: DebianPrograms): Promise<string | undefined> {
  const onPath = spawnSync('sh', ['-c', `command -v ${programs[0] ?? ''}`], { encoding: 'utf8' }).stdout.trim();
  const isThere = (folder: string): boolean => programs.every((program) => existsSync(path.join(folder, program)));
  if (onPath !== '' && isThere(path.dirname(onPath))) return path.dirname(onPath);
  const kept = path.join(cacheFolder(process.env), 'test-debian', name);
  if (isThere(kept)) return kept;
  try {
    const release = readFileSync('/etc/os-release', 'utf8');
    const [, suite = 'stable'] = /^VERSION_CODENAME=(\w+)$/m.exec(release) ?? [];
    const mirrors = await readAptMirrors('/etc/apt');
    await fetchWithApt({ package: name, suite, component: 'main', mirrors }, async (tree) => {
      const made = `${kept}.${process.pid}`;
      await mkdir(made, { recursive: true });
      for (const program of programs) await cp(path.join(tree, 'usr/bin', program), path.join(made, program));
      await rm(kept, { recursive: true, force: true });
      await rename(made, kept);
    });
    return kept;
  } catch (error) {
    process.stderr.write(`skipped: ${programs.join(' and ')} cannot be had here (${String(error).split('\n')[0]})\n`);
    return undefined;
  }
}
