import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isAlive } from './processes.ts';
import { readTrace, type Step } from './trace.ts';
import { waitFor, within } from './wait.ts';

/** Errors that a process gets from the disk. */
export interface DiskError {
  /** System calls, separated by commas. */
  readonly calls: string;
  readonly error: 'EIO' | 'ENOSPC';
  /** The calls that fail, counted per thread: `3+7` is the third, and every seventh after it. */
  readonly when: string;
}

/** A running injection of errors into a process. */
export interface Injection {
  /** Returns the number of failed calls. */
  injected(): number;
  /** Ends the injection; returns the traced calls. */
  stop(): Promise<Step[]>;
}

const detachMs = 2000;

/** Calls traced besides those that fail: they make a file's bytes durable or visible. */
const publishing = 'fsync,fdatasync,link,linkat,rename,renameat,renameat2';

/** Makes system calls of a running process and its children fail from now on. Writes the trace to `file`. */
export async function injectErrors(pid: number, { calls, error, when }: DiskError, file: string): Promise<Injection> {
  const words = [
    '-f',
    '-y',
    '-s',
    '0',
    '-p',
    String(pid),
    '-e',
    `trace=${publishing},${calls}`,
    '-e',
    'signal=none',
    '-e',
    `inject=${calls}:error=${error}:when=${when}`,
    '-o',
    file,
  ];
  // A process that ends before strace attaches has an empty trace.
  writeFileSync(file, '');
  const tracer = spawn('strace', words, { stdio: ['ignore', 'ignore', 'pipe'] });
  const exited = once(tracer, 'exit');
  let said = '';
  tracer.stderr.setEncoding('utf8').on('data', (text: string) => void (said += text));
  await waitFor('strace has attached', () => said.includes('attached') || tracer.exitCode !== null || !isAlive(pid));
  if (tracer.exitCode !== null && !said.includes('attached')) throw new Error(`strace: ${said}`);
  return {
    injected: () => (readFileSync(file, 'utf8').match(/\(INJECTED\)/g) ?? []).length,
    async stop() {
      tracer.kill('SIGINT');
      // strace may wait indefinitely for an exiting process; after its kill the kernel releases the traced ones.
      const timer = setTimeout(() => tracer.kill('SIGKILL'), detachMs);
      await within('strace has exited', exited);
      clearTimeout(timer);
      return readTrace(file);
    },
  };
}

const isSync = (step: Step): boolean => /^f(data)?sync\(/.test(step.text);
const syncedPath = (step: Step): string => /<([^>]*)>/.exec(step.text)?.[1] ?? '';

/** Returns the files and folders whose newest sync in a trace failed. */
export function findUnsynced(steps: readonly Step[]): string[] {
  const state = new Map(steps.filter(isSync).map((step) => [syncedPath(step), step.result.startsWith('-1')]));
  return [...state].flatMap(([file, failed]) => (failed ? [file] : []));
}

/** Returns files that got their final name by link or rename although their own sync had failed before. */
export function findPublishedUnsynced(steps: readonly Step[]): string[] {
  return steps.flatMap((step, index) => {
    const from = /^(?:link|rename)\w*\((?:[^"]*)"([^"]*)"/.exec(step.text)?.[1];
    if (from === undefined || !step.result.startsWith('0')) return [];
    return findUnsynced(steps.slice(0, index)).includes(path.resolve(from)) ? [from] : [];
  });
}
