import { readFileSync } from 'node:fs';
import path from 'node:path';

/** The folder that holds package.json, schemas and pipelines: three levels up from here, in `src` as in `dist`. */
export const packageRoot = path.resolve(import.meta.dirname, '..', '..', '..');

/** Reads a JSON file of the package, by its path below the package's root. Not for user data. */
export function readPackageJson(relativePath: string): unknown {
  return JSON.parse(readFileSync(path.join(packageRoot, relativePath), 'utf8'));
}
