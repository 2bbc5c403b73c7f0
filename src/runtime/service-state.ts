import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isSystemError } from './errors.ts';
import type { KeeperState } from './keeper.ts';
import { findProcessStart, isProcessAlive } from './process-identity.ts';

/** What a supervisor knows of the service it runs; renewed about once a second. */
export interface ServiceState {
  readonly pid: number;
  /** What `findProcessStart` says of the supervisor, where the system tells. */
  readonly processStart: string | undefined;
  readonly startedAt: string;
  readonly writtenAt: string;
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** The broker's address with its credentials, for the commands of the same operator; the file has mode 0600. */
  readonly natsUrl: string;
  /** Absent in the state of an earlier version. */
  readonly streamName?: string;
  readonly processes: readonly KeeperState[];
  /** The newest facts each process reported. */
  readonly facts: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** How long each process that reports has been silent, milliseconds. */
  readonly silentMs: Readonly<Record<string, number>>;
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

/** Reads one state; undefined when it went in the meantime, or a power cut left half of it. */
function findState(file: string): ServiceState | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as ServiceState;
  } catch (error) {
    if (error instanceof SyntaxError || isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}

function isOfRunningProcess(state: ServiceState): boolean {
  return isProcessAlive(state.pid) && findProcessStart(state.pid) === state.processStart;
}

function listStateFiles(runFolder: string): readonly string[] {
  try {
    return readdirSync(runFolder).filter((name) => /^supervisor-\d+\.json$/.test(name)).map((name) => path.join(runFolder, name));
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

function readStates(runFolder: string): readonly ServiceState[] {
  return listStateFiles(runFolder).map(findState).filter((state) => state !== undefined);
}

/** Reads the states of the supervisors that run on this data folder; those of dead ones are passed over. */
export function readServiceStates(runFolder: string): readonly ServiceState[] {
  return readStates(runFolder).filter(isOfRunningProcess);
}

/** The last states of supervisors that are gone and did not stop: killed, or lost with the machine. The next start forgets them. */
export function listLostServices(runFolder: string): readonly ServiceState[] {
  return readStates(runFolder).filter((state) => !isOfRunningProcess(state));
}

/** Removes what supervisors that were killed left: their states hold the credentials of a broker that is gone. */
export function sweepServiceStates(runFolder: string): void {
  for (const file of listStateFiles(runFolder)) {
    const state = findState(file);
    if (state === undefined || !isOfRunningProcess(state)) rmSync(file, { force: true });
  }
}
