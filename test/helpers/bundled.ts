import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..', '..');
const built = path.join(root, 'dist');

/** Runs the bundler of `make build`. */
function bundle(out: string, ...entries: readonly string[]): void {
  execFileSync(process.execPath, [path.join(root, '.build', 'bundle.mjs'), out, ...entries]);
}

/** Says whether `make build` has bundled the sources as they are now. */
function isBuilt(): boolean {
  const entry = path.join(built, 'main.js');
  if (!existsSync(entry)) return false;
  const builtMs = statSync(entry).mtimeMs;
  const sources = path.join(root, 'src');
  return readdirSync(sources, { recursive: true, encoding: 'utf8' }).every(
    (name) => statSync(path.join(sources, name)).mtimeMs <= builtMs,
  );
}

/** Links what the program reads of its package into `folder`, which then is a package to what runs from it. */
function linkPackage(folder: string, names: readonly string[]): void {
  mkdirSync(folder, { recursive: true });
  for (const name of names) symlinkSync(path.join(root, name), path.join(folder, name));
}

/**
 * Returns the folder of the program, of the sources as they are: `dist` when it is, as it is under make, else
 * `folder`/dist, into which they are bundled.
 */
export function bundleProgram(folder: string): string {
  if (isBuilt()) return built;
  linkPackage(folder, ['node_modules', 'package.json', 'schemas', 'pipelines']);
  bundle(path.join(folder, 'dist'));
  return path.join(folder, 'dist');
}

/**
 * Bundles a module of test/helpers with what it imports of the sources into `folder`, and returns the file: for code of
 * ours that a test runs in a process of its own, which it can kill. Workers of exports run from `dist`.
 */
export function bundleChild(folder: string, name: string): string {
  linkPackage(folder, ['node_modules', 'package.json', 'schemas', 'pipelines', 'dist']);
  const out = path.join(folder, 'child');
  bundle(out, `test/helpers/${name}.ts`);
  return path.join(out, `${name}.js`);
}
