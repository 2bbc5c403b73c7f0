import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

/** The nearest folder above `folder` that holds pipelines: the bundles of `dist` are not as deep as the sources. */
function findPackageRoot(folder: string): string {
  if (existsSync(path.join(folder, 'pipelines'))) return folder;
  const above = path.dirname(folder);
  if (above === folder)
    throw new Error('the package is not whole, its folder `pipelines` is missing: install it again');
  return findPackageRoot(above);
}

/** The folder that holds package.json, schemas and pipelines. */
export const packageRoot = findPackageRoot(import.meta.dirname);

/**
 * Reads a JSON file of the package, by its path below the package's root. Throws an error that names it. Not for user
 * data.
 */
export function readPackageJson(relativePath: string): unknown {
  const text = readFileSync(path.join(packageRoot, relativePath), 'utf8');
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${relativePath} is no JSON`, { cause: error });
  }
}

/** What was built. */
export interface Build {
  readonly version: string;
  /** Abbreviated, with `-dirty` where files were changed since; undefined where no repository was at hand. */
  readonly commit: string | undefined;
}

/** Reads what the program was built of, as the build has noted it beside the program. */
export function findBuild(): Build {
  const { version } = readPackageJson('package.json') as { version: string };
  const { commit } = (
    existsSync(path.join(packageRoot, 'dist/package.json')) ? readPackageJson('dist/package.json') : {}
  ) as Partial<Build>;
  return { version, commit };
}

/** The JSON files of a folder of the package, relative to the package's root, in the order of their names. */
export function listPackageJson(folder: string): string[] {
  return readdirSync(path.join(packageRoot, folder))
    .filter((name) => name.endsWith('.json'))
    .toSorted()
    .map((name) => `${folder}/${name}`);
}

/**
 * The files of a folder of the package, by their paths below it with forward slashes; undefined where there is no such
 * folder.
 */
export function readPackageFolder(folder: string): ReadonlyMap<string, Buffer> | undefined {
  const root = path.join(packageRoot, folder);
  if (!existsSync(root)) return undefined;
  const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(
    files.map(({ parentPath, name }) => {
      const file = path.join(parentPath, name);
      return [path.relative(root, file).split(path.sep).join('/'), readFileSync(file)];
    }),
  );
}

const require = createRequire(import.meta.url);

/** Path of a file of an installed package, by the package's name and the path below it; undefined without one. */
export function findPackagedFile(name: string): string | undefined {
  try {
    return require.resolve(name);
  } catch {
    return undefined;
  }
}
