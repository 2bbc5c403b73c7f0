import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../src/runtime/files/package-files.ts';

const run = promisify(execFile);

/** Runs commands as a page of the documents has them, in a folder, with these variables; returns what they have written. */
export type Shell = (commands: string, variables: Readonly<Record<string, string>>) => Promise<string>;

/** Makes a shell that knows `tributary`, the compiled program, and none of the machine's settings. */
export function makeShell(folder: string): Shell {
  const bin = path.join(folder, 'bin');
  mkdirSync(bin);
  writeFileSync(
    path.join(bin, 'tributary'),
    `#!/bin/sh\nexec '${process.execPath}' '${path.join(packageRoot, 'dist/main.js')}' "$@"\n`,
  );
  chmodSync(path.join(bin, 'tributary'), 0o755);
  const PATH = `${bin}:${process.env['PATH'] ?? ''}`;
  return async (commands, variables) =>
    (await run('bash', ['-euc', commands], { cwd: folder, env: { HOME: folder, ...variables, PATH } })).stdout;
}
