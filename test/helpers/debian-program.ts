import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { fetchWithApt, readAptMirrors } from '../../src/setup/apt-fetch.ts';
import { cacheFolder } from '../../src/setup/ensure-nats-server.ts';

/** What is fetched from this machine's Debian archive: a package whose programs run without others. */
export interface DebianPrograms {
  readonly package: string;
  readonly programs: readonly string[];
}

/**
 * The folder of the programs: where PATH has them, or a package fetched into the cache folder by the first call, of the
 * machine's own release; nothing is installed. Undefined, with a notice, where they cannot be had.
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
