import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

/** One package of package-lock.json, as far as the tests read it. */
export interface LockedPackage {
  readonly version: string;
  readonly resolved?: string;
  readonly integrity?: string;
  /** Only building and testing need it. */
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly engines?: { readonly node?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

export type LockedPackages = ReadonlyMap<string, LockedPackage>;

/**
 * Reads the packages of a checkout's lock file, by their paths below it (`node_modules/a/node_modules/b`); the checkout
 * itself is left out.
 */
export function readLockFile(checkout: string): LockedPackages {
  const { packages } = JSON.parse(readFileSync(path.join(checkout, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockedPackage>;
  };
  return new Map(Object.entries(packages).filter(([place]) => place !== ''));
}

/**
 * Finds the package that `name` means to the one at `from`, as Node looks for it: in its own folder, then in those
 * above.
 */
export function resolveLocked(packages: LockedPackages, from: string, name: string): LockedPackage | undefined {
  for (let above = from; ; above = above.slice(0, Math.max(0, above.lastIndexOf('/node_modules/')))) {
    const found = packages.get(above === '' ? `node_modules/${name}` : `${above}/node_modules/${name}`);
    if (found !== undefined || above === '') return found;
  }
}

/** The versions of all packages that are installed below a folder, by their paths below it. */
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
