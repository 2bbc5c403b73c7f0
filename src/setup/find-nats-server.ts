import { execFile } from 'node:child_process';
import { access, constants, readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Environment } from '../config.ts';
import { AppError, isSystemError } from '../runtime/errors.ts';

const run = promisify(execFile);

/** The oldest nats-server that keeps its promises: before 2.14 a hard kill during a purge could empty a stream. */
export const minimumNatsVersion = '2.14';

/** A nats-server that ran and named its version. */
export interface NatsServer {
  /** Absolute path of the executable. */
  readonly binary: string;
  /** Three numbers, as `2.15.1`. */
  readonly version: string;
}

export interface NatsServerPlaces {
  /** Folders to search in order, as PATH holds them. */
  readonly path: string | undefined;
  /** The folder `cacheFolder` names; servers lie below it as `nats-server/<version>/nats-server`. */
  readonly cacheFolder: string;
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
export function cachedServersFolder(cache: string): string {
  return path.join(cache, 'nats-server');
}

/**
 * Finds a nats-server of at least `minimumNatsVersion`: on PATH, else the newest in the cache. Each candidate is run.
 * Error: `broker_missing` if the cache is needed and cannot be read.
 */
export async function findNatsServer(places: NatsServerPlaces): Promise<NatsServer | undefined> {
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

/** Compares dotted numbers part by part: negative, zero or positive, as for sort. Missing parts count as zero. */
export function compareVersions(left: string, right: string): number {
  const [a, b] = [left.split('.').map(Number), right.split('.').map(Number)];
  for (let index = 0; index < Math.max(a.length, b.length); index += 1) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function onPath(searchPath: string | undefined): string[] {
  const folders = (searchPath ?? '').split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  return [...new Set(folders)].map((folder) => path.join(folder, 'nats-server'));
}

async function inCache(cache: string): Promise<string[]> {
  const folder = cachedServersFolder(cache);
  try {
    const versions = (await readdir(folder)).filter((name) => /^\d+\.\d+\.\d+$/.test(name));
    return versions
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
