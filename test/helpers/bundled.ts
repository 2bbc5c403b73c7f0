import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..', '..');
const built = path.join(root, 'dist');

/** Runs the bundler of `make build`. */
function bundle(out: string, ...entries: readonly string[]): void {
  execFileSync(process.execPath, [path.join(root, '.build', 'bundle.mjs'), out, ...entries]);
}

/** Reports whether `make build` has bundled the present sources. */
function isBuilt(): boolean {
  const entry = path.join(built, 'main.js');
  if (!existsSync(entry)) return false;
  const builtMs = statSync(entry).mtimeMs;
  const sources = path.join(root, 'src');
  return readdirSync(sources, { recursive: true, encoding: 'utf8' }).every(
    (name) => statSync(path.join(sources, name)).mtimeMs <= builtMs,
  );
}

/** Links the package's files that the program reads into `folder`, which serves as the package of programs there. */
function linkPackage(folder: string, names: readonly string[]): void {
  mkdirSync(folder, { recursive: true });
  for (const name of names) symlinkSync(path.join(root, name), path.join(folder, name));
}

/**
 * Returns the program's folder, built from the present sources: `dist` if it is current, otherwise `folder`/dist, which
 * it bundles.
 */
export function bundleProgram(folder: string): string {
  if (isBuilt()) return built;
  linkPackage(folder, ['node_modules', 'package.json', 'schemas', 'pipelines']);
  bundle(path.join(folder, 'dist'));
  return path.join(folder, 'dist');
}

/**
 * Bundles a module of test/helpers with its imports into `folder`, and returns the file. For code that a test runs in a
 * separate process, which it can kill. Workers of exports run from `dist`.
 */
export function bundleChild(folder: string, name: string): string {
  linkPackage(folder, ['node_modules', 'package.json', 'schemas', 'pipelines', 'dist']);
  const out = path.join(folder, 'child');
  bundle(out, `test/helpers/${name}.ts`);
  return path.join(out, `${name}.js`);
}
