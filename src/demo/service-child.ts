import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync, closeSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import type { Environment } from '../config.ts';
import { AppError } from '../runtime/errors.ts';

const run = promisify(execFile);

/** A short-lived service that runs as a child, as an operator would start it. */
export interface ServiceChild {
  readonly s2s: string;
  readonly api: string;
  /** Drains the service; throws when it does not end with exit code 0. Stopping twice is the same as stopping once. */
  stop(): Promise<void>;
}

export interface ServiceChildOptions {
  /** The program's entry file. */
  readonly entry: string;
  readonly dataDir: string;
  /** Everything the child gets; nothing else of this process's environment. */
  readonly environment: Environment;
}

/** Runs a command of the program on a data folder, as an operator would, and returns its JSON answer. */
export async function runCommand(
  { entry, dataDir, environment }: ServiceChildOptions,
  ...words: readonly string[]
): Promise<Readonly<Record<string, unknown>>> {
  const { stdout } = await run(process.execPath, [entry, ...words, '--data', dataDir], { env: environment });
  return JSON.parse(stdout) as Readonly<Record<string, unknown>>;
}

/**
 * Starts the service on free ports and waits until it is ready. Its log goes to `service.log` in the data folder.
 * Throws `start_failed` with the log's last lines.
 */
export async function startServiceChild({ entry, dataDir, environment }: ServiceChildOptions): Promise<ServiceChild> {
  const logFile = path.join(dataDir, 'service.log');
  const log = openSync(logFile, 'a', 0o600);
  const child = spawn(process.execPath, [entry, 'start', '--data', dataDir, '--s2s-port', '0', '--api-port', '0'], {
    env: environment,
    stdio: ['ignore', 'pipe', log],
  });
  closeSync(log);
  const exited = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  const firstLine = once(createInterface({ input: child.stdout as Readable }), 'line') as Promise<[string]>;

  const ended = async (what: string): Promise<AppError> => {
    const lines = (await readFile(logFile, 'utf8')).trim().split('\n').slice(-5);
    return new AppError('start_failed', `the service ${what}; the end of its log:\n${lines.join('\n')}`);
  };
  const started = await Promise.race([firstLine, exited.then(() => undefined)]);
  if (started === undefined) throw await ended('did not start');
  const ready = JSON.parse(started[0]) as { s2s: string; api: string };

  let stopping: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    const [code, signal] = await exited;
    if (code !== 0) throw await ended(`ended with ${signal ?? `exit code ${code}`}`);
  };
  return {
    s2s: ready.s2s,
    api: ready.api,
    stop: () => (stopping ??= stop()),
  };
}
