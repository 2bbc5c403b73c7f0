import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isSystemError } from './errors.ts';
import type { KeeperState } from './keeper.ts';

/** What a supervisor knows of the service it runs; renewed about once a second. */
export interface ServiceState {
  readonly pid: number;
  readonly startedAt: string;
  readonly writtenAt: string;
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** The broker's address with its credentials, for the commands of the same operator; the file has mode 0600. */
  readonly natsUrl: string;
  readonly processes: readonly KeeperState[];
  /** The newest facts each process reported. */
  readonly facts: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

const stateFile = (runFolder: string, pid: number): string => path.join(runFolder, `supervisor-${pid}.json`);

/** Writes the state for the commands to read. Not durable on purpose: it means nothing after the process. */
export function writeServiceState(runFolder: string, state: ServiceState): void {
  mkdirSync(runFolder, { recursive: true, mode: 0o700 });
  const file = stateFile(runFolder, state.pid);
  writeFileSync(`${file}.tmp`, JSON.stringify(state), { mode: 0o600 });
  renameSync(`${file}.tmp`, file);
}

/** Removes the state of a supervisor that stops. */
export function removeServiceState(runFolder: string, pid: number): void {
  rmSync(stateFile(runFolder, pid), { force: true });
  rmSync(`${stateFile(runFolder, pid)}.tmp`, { force: true });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isSystemError(error, 'EPERM');
  }
}

/** Reads the states of the supervisors that run on this data folder; those of dead ones are passed over. */
export function readServiceStates(runFolder: string): readonly ServiceState[] {
  let names: string[];
  try {
    names = readdirSync(runFolder);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
  return names
    .filter((name) => /^supervisor-\d+\.json$/.test(name))
    .map((name) => JSON.parse(readFileSync(path.join(runFolder, name), 'utf8')) as ServiceState)
    .filter((state) => isAlive(state.pid));
}
