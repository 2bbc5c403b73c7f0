/**
 * Set-up: what the service needs from outside npm, which is one program, nats-server.
 *
 * In: the environment, and the package sources this machine already trusts.
 * Out: an executable of at least `minimumNatsVersion`, that ran and said so.
 * Invariant: nothing is installed system-wide and nothing is fetched when a good server is there; what is fetched lies
 * in the user's cache folder, so it survives checkouts, and is checked by the same version run as any other.
 * Crash: the cache holds a whole server or none (a file renamed into place); leftovers lie in the temporary folder.
 */
import { access, chmod, constants, copyFile, mkdtemp, rename, rm, readdir } from 'node:fs/promises';
import path from 'node:path';
import type { Environment } from '../config.ts';
import { AppError, describeError, isSystemError } from '../runtime/errors.ts';
import { makeFolder } from '../runtime/files/make-folder.ts';
import { fetchWithApt, readAptMirrors } from './apt-fetch.ts';
import { execFile } from 'node:child_process';
import { homedir, platform } from 'node:os';
import { promisify } from 'node:util';
import { findTextFile } from '../runtime/files/durable-file.ts';

/** What the service will use: a cluster the operator names, or a server on this machine. */
type NatsProvision = { readonly how: 'external' } | LocalNatsServer;

/** A server on this machine, and whether it was there or was fetched just now. */
export type LocalNatsServer = { readonly how: 'found' | 'fetched' } & NatsServer;

interface EnsureOptions {
  /** The machine's configuration folder; only tests name another than `/etc`. */
  readonly etc?: string;
  /** Told once, before anything is fetched. */
  readonly onFetch?: (text: string) => void;
  /** Aborted when the server is not wanted any more: a fetch then ends with `stopping` and leaves nothing. */
  readonly signal?: AbortSignal;
}

/** The suites that follow upstream, whose nats-server is new enough for us and built for libc >= 2.34. */
const rollingSuites = {
  ubuntu: { suite: 'devel', component: 'universe' },
  debian: { suite: 'sid', component: 'main' },
} as const;

/**
 * Sees to it that there is a nats-server: the cluster that `TRIBUTARY_NATS_URL` names, else one on this machine, as
 * `ensureLocalNatsServer` gets it.
 */
export async function ensureNatsServer(environment: Environment, options: EnsureOptions = {}): Promise<NatsProvision> {
  if ((environment['TRIBUTARY_NATS_URL'] ?? '') !== '') return { how: 'external' };
  return ensureLocalNatsServer(environment, options);
}

/**
 * Sees to it that this machine has a nats-server, by the first of these that works: a server on PATH; one in the cache;
 * on Debian and its kin, the package of the rolling suite, unpacked into the cache. Doing it again fetches nothing.
 * Throws `broker_missing` with one sentence that says what to run, `stopping` when the signal was given while it
 * fetched.
 */
export async function ensureLocalNatsServer(
  environment: Environment,
  options: EnsureOptions = {},
): Promise<LocalNatsServer> {
  const cache = cacheFolder(environment);
  const places = { path: environment['PATH'], cacheFolder: cache };
  const found = await findNatsServer(places);
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

/** Makes the cache's folder before anything is fetched: a service's account often has no home to write to. */
async function ensureCache(cache: string): Promise<void> {
  try {
    await makeFolder(cachedServersFolder(cache));
    await access(cachedServersFolder(cache), constants.W_OK);
  } catch (error) {
    throw new AppError(
      'broker_missing',
      `no nats-server of version ${minimumNatsVersion} or newer on PATH, and the folder to fetch one into cannot be written: ${describeError(error)}`,
      { cause: error, hint: 'Set TRIBUTARY_CACHE_DIR to a folder that this user may write to.' },
    );
  }
}

/** Copies the server out of an unpacked package into the cache, after running it from there. */
async function keepInCache(tree: string, cache: string): Promise<NatsServer> {
  const servers = cachedServersFolder(cache);
  const staging = await mkdtemp(path.join(servers, '.new-'));
  try {
    const staged = path.join(staging, 'nats-server');
    await copyFromPackage(tree, staged);
    await chmod(staged, 0o755);
    const version = await findVersion(staged);
    if (version === undefined)
      throw new AppError(
        'broker_missing',
        'the nats-server of the package does not run on this system (it needs libc 2.34 or newer)',
      );
    if (compareVersions(version, minimumNatsVersion) < 0)
      throw new AppError('broker_missing', `the package has nats-server ${version}, which is too old`);

    // the rename replaces a broken server of this name, and does no harm when another set-up was faster
    const binary = path.join(servers, version, 'nats-server');
    await makeFolder(path.dirname(binary));
    await rename(staged, binary);
    return { binary, version };
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

async function copyFromPackage(tree: string, target: string): Promise<void> {
  for (const folder of ['usr/sbin', 'usr/bin']) {
    try {
      return await copyFile(path.join(tree, folder, 'nats-server'), target);
    } catch (error) {
      if (folder === 'usr/bin')
        throw new AppError('broker_missing', 'the package holds no nats-server', { cause: error });
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

/** The oldest nats-server that keeps its promises: before 2.14 a hard kill during a purge could empty a stream. */
const minimumNatsVersion = '2.14';

/** A nats-server that ran and named its version. */
export interface NatsServer {
  /** Absolute path of the executable. */
  readonly binary: string;
  /** Three numbers, as `2.15.1`. */
  readonly version: string;
}

/**
 * The folder for what the set-up fetches, shared by every checkout of this user: `TRIBUTARY_CACHE_DIR`, else
 * `tributary` in `XDG_CACHE_HOME`, else in `~/.cache`. Relative values of XDG_CACHE_HOME are ignored, as its rules say.
 */
export function cacheFolder(environment: Environment): string {
  const own = environment['TRIBUTARY_CACHE_DIR'];
  if (own !== undefined && own !== '') return path.resolve(own);
  const shared = environment['XDG_CACHE_HOME'];
  const base =
    shared !== undefined && path.isAbsolute(shared) ? shared : path.join(environment['HOME'] ?? homedir(), '.cache');
  return path.join(base, 'tributary');
}

/** The folder that holds one folder a version, below the cache folder. */
function cachedServersFolder(cache: string): string {
  return path.join(cache, 'nats-server');
}

/**
 * Finds a nats-server of at least `minimumNatsVersion`: on PATH, else the newest in the cache. Each candidate is run.
 * Error: `broker_missing` if the cache is needed and cannot be read.
 */
export async function findNatsServer(places: {
  readonly path: string | undefined;
  readonly cacheFolder: string;
}): Promise<NatsServer | undefined> {
  return (await findUsable(onPath(places.path))) ?? (await findUsable(await inCache(places.cacheFolder)));
}

async function findUsable(binaries: readonly string[]): Promise<NatsServer | undefined> {
  for (const binary of binaries) {
    const version = await findVersion(binary);
    if (version !== undefined && compareVersions(version, minimumNatsVersion) >= 0) return { binary, version };
  }
  return undefined;
}

/**
 * Runs `<binary> --version`; undefined when there is no such executable, or it does not run here or names no version.
 */
export async function findVersion(binary: string): Promise<string | undefined> {
  try {
    await access(binary, constants.X_OK);
    const { stdout, stderr } = await run(binary, ['--version'], { timeout: 20_000 });
    return /\bv?(\d+\.\d+\.\d+)/.exec(`${stdout}\n${stderr}`)?.[1];
  } catch {
    return undefined;
  }
}

const versions = new Intl.Collator('en', { numeric: true });

/** Compares dotted numbers part by part: negative, zero or positive, as for sort. */
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
    return (await readdir(folder))
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

/** Which system this is, as far as getting a package matters. */
interface System {
  /** `linux`, `darwin`, ... as Node names it. */
  readonly platform: string;
  /**
   * The distribution and those it is built on, nearest first, as os-release names them: `['ubuntu', 'debian']`. Empty
   * elsewhere.
   */
  readonly family: readonly string[];
}

/** Reads which system this is; on Linux from `etc`'s os-release. */
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

/** The command that gets a nats-server on a system, ready to stand in a sentence after "run". */
export function installCommand(system: System): string {
  const name = [system.platform, ...system.family].find((candidate) => Object.hasOwn(commands, candidate));
  return name === undefined ? withGo : (commands[name] ?? withGo);
}
