import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';
import { membersOf } from './checksummed-json.ts';

/** Finds the nearest parent with pipelines: the bundles in `dist` are not as deep as the sources. */
function findPackageRoot(folder: string): string {
  if (existsSync(path.join(folder, 'pipelines'))) return folder;
  const above = path.dirname(folder);
  if (above === folder) throw new Error('the package is incomplete, its folder `pipelines` is missing; reinstall it');
  return findPackageRoot(above);
}

export const packageRoot = findPackageRoot(import.meta.dirname);

let defaultDatasetsFolder: string | undefined;

/** Sets the folder of the operator's datasets, unless the environment does. No effect once datasets are loaded. */
export function useDatasetsFolder(folder: string): void {
  defaultDatasetsFolder = folder;
}

/** Returns the setting of the operator's datasets, for child processes; empty if there is no such folder. */
export function datasetsEnvironment(): { readonly TRIBUTARY_DATASETS_DIR?: string } {
  const named = process.env['TRIBUTARY_DATASETS_DIR'] ?? '';
  if (named !== '') return { TRIBUTARY_DATASETS_DIR: path.resolve(named) };
  const folder = defaultDatasetsFolder;
  return folder === undefined || !existsSync(folder) ? {} : { TRIBUTARY_DATASETS_DIR: path.resolve(folder) };
}

/** Lists the absolute paths of the operator's pipelines, by name. Throws for a missing folder or unexpected entries. */
export function listDatasetFiles(): string[] {
  const { TRIBUTARY_DATASETS_DIR: folder } = datasetsEnvironment();
  if (folder === undefined) return [];
  if (!existsSync(folder)) throw new Error(`TRIBUTARY_DATASETS_DIR names ${folder}, which does not exist`);
  const names = readdirSync(folder).filter((name) => !name.startsWith('.'));
  const other = names.find((name) => name !== 'pipelines' && name !== 'schemas');
  if (other !== undefined) throw new Error(`${path.join(folder, other)} must be in pipelines or schemas/rows`);
  return names.includes('pipelines') ? listPackageJson(path.join(folder, 'pipelines')) : [];
}

/** Reads a JSON file by its path below the package root, or by absolute path. Throws an error that names it. */
export function readPackageJson(file: string): unknown {
  const text = readFileSync(path.resolve(packageRoot, file), 'utf8');
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${file} is not JSON`, { cause: error });
  }
}

export interface Build {
  readonly version: string;
  /** Abbreviated; `-dirty` if files had changes; undefined without a repository. */
  readonly commit: string | undefined;
}

export function findBuild(): Build {
  const { version } = membersOf(readPackageJson('package.json'));
  const isBuilt = existsSync(path.join(packageRoot, 'dist/package.json'));
  const { commit } = membersOf(isBuilt ? readPackageJson('dist/package.json') : undefined);
  return { version: String(version), commit: typeof commit === 'string' ? commit : undefined };
}

/** Lists the JSON files of a folder as `readPackageJson` takes them, by name. */
export function listPackageJson(folder: string): string[] {
  return readdirSync(path.resolve(packageRoot, folder))
    .filter((name) => name.endsWith('.json'))
    .toSorted()
    .map((name) => `${folder}/${name}`);
}

/** Reads the files of a folder of the package, by relative path with `/`; undefined without the folder. */
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

/** Returns the path of a file of an installed package; undefined if there is none. */
export function findPackagedFile(name: string): string | undefined {
  try {
    return require.resolve(name);
  } catch {
    return undefined;
  }
}
