import path from 'node:path';
import { findFolderId } from '../files/folder-id.ts';
import { findNamesSync } from '../files/folder-names.ts';
import { findWithId, removeFileSync, writeWithId } from '../files/open-file.ts';
import type { ProcessState } from './supervisor.ts';
import { makeFolderSync } from '../files/make-folder.ts';
import { isSameProcess } from './procfs.ts';

/** The state of a service in its supervisor's file; written on each change, and every three seconds. */
export interface ServiceState {
  readonly pid: number;
  /** Start time of the supervisor (`findProcessStart`); undefined on a system without /proc. */
  readonly processStart: string | undefined;
  /** Id of the data folder: a copy of the folder has another id. Absent before 0.3. */
  readonly folder?: string;
  /** Ids of the folders that the service holds, by path. Absent before 0.3. */
  readonly folders?: Readonly<Record<string, string>>;
  readonly startedAt: string;
  readonly writtenAt: string;
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /** Broker's address with credentials, for the operator's commands (file mode 0600). Absent without a broker. */
  readonly natsUrl?: string | undefined;
  /** Absent in the state of an earlier version. */
  readonly streamName?: string;
  readonly processes: readonly ProcessState[];
  /** Problems, warnings and figures that each process reports, by its name. */
  readonly facts: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** When each problem and warning was first observed, ISO 8601, by `problemKey`. Absent before 0.3. */
  readonly since?: Readonly<Record<string, string>>;
  /** Time since the last report of each process, ms. */
  readonly silentMs: Readonly<Record<string, number>>;
}

interface StoredState extends ServiceState {
  /** Device and inode of the file when it was written, which differ for a copy. Absent before 0.3. */
  readonly file?: string;
}

const stateFile = (runFolder: string, pid: number): string => path.join(runFolder, `supervisor-${pid}.json`);

/** Writes the state for commands. Not durable: it has no meaning after the process. */
export function writeServiceState(runFolder: string, state: ServiceState): void {
  makeFolderSync(runFolder);
  writeWithId(stateFile(runFolder, state.pid), (file) => JSON.stringify({ ...state, file } satisfies StoredState));
}

export function removeServiceState(runFolder: string, pid: number): void {
  removeFileSync(stateFile(runFolder, pid));
  removeFileSync(`${stateFile(runFolder, pid)}.tmp`);
}

/** Reads a state; undefined if it was removed, is truncated, or was copied with a folder. */
function findState(file: string): ServiceState | undefined {
  const found = findWithId(file);
  if (found === undefined) return undefined;
  try {
    const { file: writtenTo, ...state } = JSON.parse(found.text) as StoredState;
    return writtenTo === undefined || writtenTo === found.id ? state : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function isOfRunningProcess(state: ServiceState): boolean {
  return isSameProcess(state.pid, state.processStart);
}

/** Reports whether a state belongs to this data folder and was not copied with another. */
function isOfFolder(runFolder: string, { folder }: ServiceState): boolean {
  return folder === undefined || folder === findFolderId(path.dirname(runFolder));
}

function listStateFiles(runFolder: string): readonly string[] {
  return (findNamesSync(runFolder) ?? [])
    .filter((name) => /^supervisor-\d+\.json$/.test(name))
    .map((name) => path.join(runFolder, name));
}

function readStates(runFolder: string, files = listStateFiles(runFolder)): readonly ServiceState[] {
  return files
    .map(findState)
    .filter((state) => state !== undefined)
    .filter((state) => isOfFolder(runFolder, state));
}

/** Reads the states of the supervisors that run on this data folder. */
export function readServiceStates(runFolder: string): readonly ServiceState[] {
  return readStates(runFolder).filter(isOfRunningProcess);
}

/** Lists the states of killed supervisors, which the next start removes. States before 0.3 are omitted. */
export function listCrashedServices(runFolder: string): readonly ServiceState[] {
  return readStates(runFolder).filter((state) => state.folder !== undefined && !isOfRunningProcess(state));
}

/** Processes that a data folder has only once, in all its services. */
const singleProcesses = ['nats-server', 'compact', 'export'];

/** Finds another service that runs one of these processes on the data folder; returns its description. */
export function findCompetingService(runFolder: string, processes: readonly string[]): string | undefined {
  const own = processes.filter((name) => singleProcesses.includes(name));
  // Called twice per second, usually without another file.
  const others = listStateFiles(runFolder).filter((file) => file !== stateFile(runFolder, process.pid));
  const rival = readStates(runFolder, others)
    .filter(isOfRunningProcess)
    .find((state) => state.processes.some(({ name }) => own.includes(name)));
  return rival === undefined ? undefined : `the tributary service (pid ${rival.pid})`;
}

/** Removes states of killed supervisors, which contain credentials of a broker. */
export function sweepServiceStates(runFolder: string): void {
  for (const file of listStateFiles(runFolder)) {
    const state = findState(file);
    if (state === undefined || !isOfFolder(runFolder, state) || !isOfRunningProcess(state)) removeFileSync(file);
  }
}
