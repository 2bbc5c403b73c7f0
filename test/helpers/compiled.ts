import { spawnSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..', '..');

/**
 * Compiles the sources into `folder`/dist and returns that path: for tests that run code of ours in a process of its
 * own, which they can kill.
 */
export function compileSources(folder: string): string {
  const dist = path.join(folder, 'dist');
  for (const name of ['node_modules', 'schemas', 'pipelines']) symlinkSync(path.join(root, name), path.join(folder, name));
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
  const compiler = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const result = spawnSync(process.execPath, [compiler, '-p', path.join(root, 'tsconfig.json'), '--outDir', dist, '--sourceMap', 'false'], { encoding: 'utf8' });
  if (result.error !== undefined) throw result.error;
  return dist;
}
