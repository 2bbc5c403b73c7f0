import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..', '..');

/** Says whether `make build` has compiled the sources as they are now. */
function isBuilt(dist: string): boolean {
  const entry = path.join(dist, 'main.js');
  if (!existsSync(entry)) return false;
  const builtMs = statSync(entry).mtimeMs;
  const sources = path.join(root, 'src');
  return readdirSync(sources, { recursive: true, encoding: 'utf8' }).every(
    (name) => statSync(path.join(sources, name)).mtimeMs <= builtMs,
  );
}

/**
 * Returns the folder of the compiled sources, for tests that run code of ours in a process of its own, which they can
 * kill: `dist` when it is of these sources, as it is under make, else `folder`/dist, into which they are compiled.
 */
export function compileSources(folder: string): string {
  const built = path.join(root, 'dist');
  if (isBuilt(built)) return built;
  const dist = path.join(folder, 'dist');
  for (const name of ['node_modules', 'schemas', 'pipelines'])
    symlinkSync(path.join(root, name), path.join(folder, name));
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
  const compiler = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const result = spawnSync(
    process.execPath,
    [compiler, '-p', path.join(root, 'tsconfig.json'), '--outDir', dist, '--sourceMap', 'false'],
    { encoding: 'utf8' },
  );
  if (result.error !== undefined) throw result.error;
  return dist;
}
