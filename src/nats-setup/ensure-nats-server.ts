/**
 * Set-up of nats-server, the only program that the service needs from outside npm.
 *
 * In: the environment and the package sources that this machine trusts.
 * Out: an executable that ran and reported a version of at least `minimumNatsVersion`.
 * Invariant: nothing is installed system-wide; nothing is fetched if there is a suitable server. A fetched server is in
 * the user's cache folder, which all checkouts share.
 * Crash: the cache has a complete server or none (rename); temporary files stay in the temporary folder.
 */
import path from 'node:path';
import type { Environment } from '../config.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { assertExecutable, assertWritableFolder, copyNew } from '../runtime/files/file-checks.ts';
import { listNames } from '../runtime/files/folder-names.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { makeTemporaryFolder, removeTree, setMode } from '../runtime/files/work-files.ts';
import { fetchWithApt, readAptMirrors } from './apt-fetch.ts';
import { execFile } from 'node:child_process';
import { homedir, platform } from 'node:os';
import { promisify } from 'node:util';
import { findTextFile, moveFile } from '../runtime/files/durable-file.ts';

/** A server on this machine. */
export type LocalNatsServer = { readonly how: 'found' | 'fetched' } & FoundNatsServer;

interface EnsureOptions {
  /** The machine's configuration folder [/etc]. */
  readonly etc?: string;
  /** Called once before a fetch. */
  readonly onFetch?: (text: string) => void;
  /** Aborts a fetch, which then throws `stopping`. */
  readonly signal?: AbortSignal;
}

/** The suites that follow upstream closely. Their nats-server needs libc 2.34 or newer. */
const rollingSuites = {
  ubuntu: { suite: 'devel', component: 'universe' },
  debian: { suite: 'sid', component: 'main' },
} as const;

/** Returns the cluster of `TRIBUTARY_NATS_URL`, or a server on this machine (`ensureLocalNatsServer`). */
export async function ensureNatsServer(environment: Environment, options: EnsureOptions = {}) {
  const isExternal = (environment['TRIBUTARY_NATS_URL'] ?? '') !== '';
  return isExternal ? { how: 'external' as const } : await ensureLocalNatsServer(environment, options);
}

/**
 * Finds nats-server on PATH or in the cache; on Debian and derivatives, downloads it into the cache if there is none.
 * Errors: `broker_missing` with the command to run, `stopping`.
 */
export async function ensureLocalNatsServer(
  environment: Environment,
  options: EnsureOptions = {},
): Promise<LocalNatsServer> {
  const cache = cacheFolder(environment);
  const searchPaths = { path: environment['PATH'], cacheFolder: cache };
  const found = await findNatsServer(searchPaths);
  if (found !== undefined) return { how: 'found', ...found };

  const etc = options.etc ?? '/etc';
  const system = await readSystem(etc);
  const rolling = (['ubuntu', 'debian'] as const).find((name) => system.family.includes(name));
  if (rolling === undefined) throw missing(system, `no nats-server of version ${minimumNatsVersion} or newer on PATH`);

  await ensureCache(cache);
  options.onFetch?.(
    `no nats-server of version ${minimumNatsVersion} or newer here: fetching one with apt into ${cache}`,
  );
  try {
    const mirrors = await readAptMirrors(path.join(etc, 'apt'));
    const source = { package: 'nats-server', ...rollingSuites[rolling], mirrors };
    const server = await fetchWithApt(source, (tree) => keepInCache(tree, cache), options.signal);
    return { how: 'fetched', ...server };
  } catch (error) {
    if (options.signal?.aborted === true)
      throw new AppError('stopping', 'the set-up was stopped while it fetched nats-server', { cause: error });
    throw missing(
      system,
      `no nats-server of version ${minimumNatsVersion} or newer on PATH, and fetching one failed: ${describeError(error)}`,
      error,
    );
  }
}

/** Creates the cache's folder before a fetch: a service's account often has no writable home. */
async function ensureCache(cache: string): Promise<void> {
  try {
    await makeFolder(cachedServersFolder(cache));
    await assertWritableFolder(cachedServersFolder(cache));
  } catch (error) {
    throw new AppError(
      'broker_missing',
      `no nats-server of version ${minimumNatsVersion} or newer on PATH, and the folder to fetch one into cannot be written: ${describeError(error)}`,
      { cause: error, hint: 'Set TRIBUTARY_CACHE_DIR to a folder that this user may write to.' },
    );
  }
}

/** Copies the server of an unpacked package into the cache after a test run. */
async function keepInCache(tree: string, cache: string): Promise<FoundNatsServer> {
  const servers = cachedServersFolder(cache);
  const staging = await makeTemporaryFolder('.new-', servers);
  try {
    const staged = path.join(staging, 'nats-server');
    await copyFromPackage(tree, staged);
    await setMode(staged, 0o755);
    const version = await findVersion(staged);
    if (version === undefined)
      throw new AppError(
        'broker_missing',
        'the nats-server of the package does not run on this system (it needs libc 2.34 or newer)',
      );
    if (compareVersions(version, minimumNatsVersion) < 0)
      throw new AppError('broker_missing', `the package has nats-server ${version}, which is too old`);

    // Replaces a broken server, or the same one of a concurrent set-up.
    const binary = path.join(servers, version, 'nats-server');
    await makeFolder(path.dirname(binary));
    await moveFile(staged, binary);
    return { binary, version };
  } finally {
    await removeTree(staging);
  }
}

async function copyFromPackage(tree: string, target: string): Promise<void> {
  for (const folder of ['usr/sbin', 'usr/bin']) {
    try {
      return await copyNew(path.join(tree, folder, 'nats-server'), target);
    } catch (error) {
      if (folder === 'usr/bin')
        throw new AppError('broker_missing', 'the package has no nats-server', { cause: error });
    }
  }
}

function missing(system: System, why: string, cause?: unknown): AppError {
  return new AppError('broker_missing', why, {
    cause,
    hint: `Run ${installCommand(system)}, or set TRIBUTARY_NATS_URL to the address of a NATS server that has JetStream.`,
  });
}

const run = promisify(execFile);

/** The oldest supported version: before 2.14 a kill during a purge could empty a stream. */
const minimumNatsVersion = '2.14';

export interface FoundNatsServer {
  /** Absolute path of the executable. */
  readonly binary: string;
  /** Three numbers, as `2.15.1`. */
  readonly version: string;
}

/** Returns the cache folder: `TRIBUTARY_CACHE_DIR`, else `tributary` in `XDG_CACHE_HOME` or `~/.cache`. */
export function cacheFolder(environment: Environment): string {
  const own = environment['TRIBUTARY_CACHE_DIR'];
  if (own !== undefined && own !== '') return path.resolve(own);
  const shared = environment['XDG_CACHE_HOME'];
  const base =
    shared !== undefined && path.isAbsolute(shared) ? shared : path.join(environment['HOME'] ?? homedir(), '.cache');
  return path.join(base, 'tributary');
}

/** Returns the folder with a subfolder per version. */
function cachedServersFolder(cache: string): string {
  return path.join(cache, 'nats-server');
}

/** Finds nats-server on PATH, or the newest in the cache, from `minimumNatsVersion` on. Error: `broker_missing`. */
export async function findNatsServer(searchPaths: {
  readonly path: string | undefined;
  readonly cacheFolder: string;
}): Promise<FoundNatsServer | undefined> {
  return (await findUsable(onPath(searchPaths.path))) ?? (await findUsable(await inCache(searchPaths.cacheFolder)));
}

async function findUsable(binaries: readonly string[]): Promise<FoundNatsServer | undefined> {
  for (const binary of binaries) {
    const version = await findVersion(binary);
    if (version !== undefined && compareVersions(version, minimumNatsVersion) >= 0) return { binary, version };
  }
  return undefined;
}

/** Runs `<binary> --version`; undefined if it is not executable, fails, or reports no version. */
export async function findVersion(binary: string): Promise<string | undefined> {
  try {
    await assertExecutable(binary);
    const { stdout, stderr } = await run(binary, ['--version'], { timeout: 20_000 });
    return /\bv?(\d+\.\d+\.\d+)/.exec(`${stdout}\n${stderr}`)?.[1];
  } catch {
    return undefined;
  }
}

const versions = new Intl.Collator('en', { numeric: true });

/** Compares dotted numbers for sorting. */
export function compareVersions(left: string, right: string): number {
  return versions.compare(left, right);
}

function onPath(searchPath: string | undefined): string[] {
  const folders = (searchPath ?? '').split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  return [...new Set(folders)].map((folder) => path.join(folder, 'nats-server'));
}

async function inCache(cache: string): Promise<string[]> {
  const folder = cachedServersFolder(cache);
  try {
    return (await listNames(folder))
      .filter((name) => /^\d+\.\d+\.\d+$/.test(name))
      .toSorted((a, b) => compareVersions(b, a))
      .map((version) => path.join(folder, version, 'nats-server'));
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return [];
    throw new AppError(
      'broker_missing',
      `no nats-server of version ${minimumNatsVersion} or newer on PATH, and the cache folder ${folder} cannot be read`,
      { cause: error, hint: 'Set TRIBUTARY_CACHE_DIR to a folder that this user may read and write.' },
    );
  }
}

interface System {
  /** Node's name, such as `linux`. */
  readonly platform: string;
  /** The distribution and those that it derives from (os-release), such as `['ubuntu', 'debian']`; empty elsewhere. */
  readonly family: readonly string[];
}

/** Returns this system; on Linux from os-release in `etc`. */
export async function readSystem(etc: string): Promise<System> {
  const text = platform() === 'linux' ? ((await findTextFile(`${etc}/os-release`)) ?? '') : '';
  const value = (name: string): string => new RegExp(`^${name}=["']?([^"'\n]*)`, 'm').exec(text)?.[1] ?? '';
  return {
    platform: platform(),
    family: `${value('ID')} ${value('ID_LIKE')}`.split(' ').filter((name) => name !== ''),
  };
}

const withGo = 'go install github.com/nats-io/nats-server/v2@latest (and put its folder, ~/go/bin, on PATH)';
const commands: Readonly<Record<string, string>> = {
  darwin: 'brew install nats-server',
  alpine: 'apk add nats-server',
  arch: 'pacman -S nats-server',
  nixos: 'nix profile install nixpkgs#nats-server',
  fedora: `dnf install golang, then ${withGo}`,
  rhel: `dnf install golang, then ${withGo}`,
  suse: `zypper install go, then ${withGo}`,
};

/** Returns the command that installs nats-server on a system. */
export function installCommand(system: System): string {
  const name = [system.platform, ...system.family].find((candidate) => Object.hasOwn(commands, candidate));
  return commands[name ?? ''] ?? withGo;
}
