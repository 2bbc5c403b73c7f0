import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { onTestFinished } from 'vitest';

const entry = path.resolve(import.meta.dirname, '../../dist/main.js');

/** Starts a fixed address in front of a service whose port changes with each start. Returns its URL. */
export async function startFrontAddress(target: () => string): Promise<string> {
  const server = createServer((incoming) => {
    const { hostname, port } = new URL(target());
    const outgoing = connect({ host: hostname, port: Number(port) });
    incoming.on('error', () => outgoing.destroy()).on('close', () => outgoing.destroy());
    outgoing.on('error', () => incoming.destroy()).on('close', () => incoming.destroy());
    incoming.pipe(outgoing).pipe(incoming);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A `tributary import` of one file, which is stopped and restarted. */
export interface ImportProcess {
  /** Starts it unless it runs; returns the number of starts so far. */
  ensureRunning(): number;
  /** Sends a signal and waits until it has exited; does nothing after that. Returns its exit code, null for a kill. */
  end(signal: 'SIGINT' | 'SIGKILL'): Promise<number | null>;
  /** Waits until it has exited; returns its exit code. */
  ended(): Promise<number | null>;
  isRunning(): boolean;
  /** Returns the number of stored events in the state file, up to the first unsettled one. */
  settled(): number;
  /** Returns its messages to the user. */
  notes(): string;
}

/** Prepares the import of a file. The end of the running test ends it. */
export function createImportProcess(
  file: string,
  stateFile: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>>,
): ImportProcess {
  let child: ChildProcess | undefined;
  let exited: Promise<unknown> = Promise.resolve();
  let begun = 0;
  let said = '';
  const isRunning = (): boolean => child !== undefined && child.exitCode === null && child.signalCode === null;
  onTestFinished(() => void child?.kill('SIGKILL'));
  return {
    isRunning,
    ensureRunning() {
      if (isRunning()) return begun;
      begun += 1;
      child = spawn(process.execPath, [entry, 'import', file, '--state', stateFile, ...words], {
        env: { PATH: process.env['PATH'], HOME: path.dirname(file), ...environment },
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      exited = once(child, 'exit');
      child.stderr?.on('data', (bytes: Buffer) => {
        said = `${said}${bytes.toString()}`.slice(-20_000);
      });
      return begun;
    },
    async end(signal) {
      if (isRunning()) child?.kill(signal);
      await exited;
      return child?.exitCode ?? null;
    },
    async ended() {
      await exited;
      return child?.exitCode ?? null;
    },
    settled() {
      if (!existsSync(stateFile)) return 0;
      return (JSON.parse(readFileSync(stateFile, 'utf8')) as { acknowledgedThrough: { stored: number } })
        .acknowledgedThrough.stored;
    },
    notes: () => said,
  };
}
