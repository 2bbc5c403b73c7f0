import { cpSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/runtime/files/package-files.ts';
import { bundleProgram } from './bundled.ts';

/** Builds the program in a separate package, whose pipelines and schemas can be changed; `home` must not exist. */
export function buildPackageCopy(home: string): void {
  mkdirSync(home);
  const dist = bundleProgram(home);
  if (path.dirname(dist) !== home) cpSync(dist, path.join(home, 'dist'), { recursive: true });
  for (const name of ['node_modules', 'package.json', 'pipelines', 'schemas']) {
    const copy = path.join(home, name);
    rmSync(copy, { force: true });
    if (name === 'node_modules') symlinkSync(path.join(packageRoot, name), copy);
    else cpSync(path.join(packageRoot, name), copy, { recursive: true });
  }
}
