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

/** The JSON files of a folder of the package, relative to the package's root, in the order of their names. */
export function listPackageJson(folder: string): string[] {
  return readdirSync(path.join(packageRoot, folder))
    .filter((name) => name.endsWith('.json'))
    .toSorted()
    .map((name) => `${folder}/${name}`);
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
