import { execFile, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../src/runtime/files/package-files.ts';

const run = promisify(execFile);

/** Runs commands of a documentation page in a folder, with these variables; returns their output. */
export type Shell = (commands: string, variables: Readonly<Record<string, string>>) => Promise<string>;

/**
 * Returns a shell that has `tributary`, the compiled program, and none of the machine's settings, start-up files
 * included.
 */
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
    (await run('bash', ['--norc', '-euc', commands], { cwd: folder, env: { HOME: folder, ...variables, PATH } }))
      .stdout;
}

/** Finds a program on PATH, or in the folders of Debian's administrator commands. */
export function findProgram(name: string): string | undefined {
  const { stdout } = spawnSync('sh', ['-c', `PATH=$PATH:/usr/sbin:/sbin command -v ${name}`], { encoding: 'utf8' });
  return stdout.trim() || undefined;
}

/** Reason to skip a test of documented commands; false if the machine has curl. */
export const noCurl = findProgram('curl') === undefined && 'no curl on this machine (apt-get install curl)';
