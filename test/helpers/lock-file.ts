import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

/** The used part of a package in package-lock.json. */
export interface LockedPackage {
  readonly version: string;
  readonly resolved?: string;
  readonly integrity?: string;
  /** Whether only building and testing need it. */
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly engines?: { readonly node?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

export type LockedPackages = ReadonlyMap<string, LockedPackage>;

/**
 * Reads the packages of a checkout's lock file, by their paths below it (`node_modules/a/node_modules/b`), without the
 * checkout itself.
 */
export function readLockFile(checkout: string): LockedPackages {
  const { packages } = JSON.parse(readFileSync(path.join(checkout, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockedPackage>;
  };
  return new Map(Object.entries(packages).filter(([place]) => place !== ''));
}

/** Resolves a package name for the package at `from` as Node does: in its own folder, then in those above. */
export function resolveLocked(packages: LockedPackages, from: string, name: string): LockedPackage | undefined {
  for (let above = from; ; above = above.slice(0, Math.max(0, above.lastIndexOf('/node_modules/')))) {
    const found = packages.get(above === '' ? `node_modules/${name}` : `${above}/node_modules/${name}`);
    if (found !== undefined || above === '') return found;
  }
}

/** Returns the versions of all packages that are installed below a folder, by path. */
export function readInstalled(folder: string): Map<string, string> {
  const found = new Map<string, string>();
  const look = (place: string): void => {
    const modules = path.posix.join(place, 'node_modules');
    if (!existsSync(path.join(folder, modules))) return;
    const entries = readdirSync(path.join(folder, modules)).filter((name) => !name.startsWith('.'));
    const names = entries.flatMap((name) =>
      name.startsWith('@') ? readdirSync(path.join(folder, modules, name)).map((own) => `${name}/${own}`) : [name],
    );
    for (const name of names) {
      const installed = path.posix.join(modules, name);
      found.set(
        installed,
        (JSON.parse(readFileSync(path.join(folder, installed, 'package.json'), 'utf8')) as { version: string }).version,
      );
      look(installed);
    }
  };
  look('');
  return found;
}
