import { closeSync, fstatSync, openSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isSystemError } from '../errors.ts';
import { findFolderId, folderIdOf } from '../files/folder-id.ts';
import type { ProcessState } from './supervisor.ts';
import { makeFolderSync } from '../files/make-folder.ts';
import { isSameProcess } from './procfs.ts';

/** What a supervisor knows of the service it runs; renewed when it changes, and every three seconds. */
export interface ServiceState {
  readonly pid: number;
  /** What `findProcessStart` gives for the supervisor; undefined where the system has no /proc. */
  readonly processStart: string | undefined;
  /**
   * The id of the data folder that it runs on: in a copy of the folder the state is not that of the copy. Absent before
   * 0.3.
   */
  readonly folder?: string;
  /** The ids of the folders that it holds, by path. Absent before 0.3. */
  readonly folders?: Readonly<Record<string, string>>;
  readonly startedAt: string;
  readonly writtenAt: string;
  readonly s2s: string | undefined;
  readonly api: string | undefined;
  /**
   * The broker's address with its credentials, for the commands of the same operator; the file has mode 0600. Absent
   * where no role needs a broker.
   */
  readonly natsUrl?: string | undefined;
  /** Absent in the state of an earlier version. */
  readonly streamName?: string;
  readonly processes: readonly ProcessState[];
  /** The newest facts each process reported. */
  readonly facts: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** When each problem and notice that holds was first found, ISO 8601, by its key (problem.ts). Absent before 0.3. */
  readonly since?: Readonly<Record<string, string>>;
  /** How long each process that reports has been silent, milliseconds. */
  readonly silentMs: Readonly<Record<string, number>>;
}

/** A state at rest. */
interface StoredState extends ServiceState {
  /**
   * Device and number of the file that it was written to: one that was copied, whatever over, says another. Absent
   * before 0.3.
   */
  readonly file?: string;
}

const stateFile = (runFolder: string, pid: number): string => path.join(runFolder, `supervisor-${pid}.json`);

/** Writes the state for the commands to read. Not durable on purpose: it means nothing after the process. */
export function writeServiceState(runFolder: string, state: ServiceState): void {
  makeFolderSync(runFolder);
  const file = stateFile(runFolder, state.pid);
  const fd = openSync(`${file}.tmp`, 'w', 0o600);
  try {
    // The number stays that of the file when it gets its name.
    const stored: StoredState = { ...state, file: folderIdOf(fstatSync(fd)) };
    writeFileSync(fd, JSON.stringify(stored));
  } finally {
    closeSync(fd);
  }
  renameSync(`${file}.tmp`, file);
}

/** Removes the state of a supervisor that stops. */
export function removeServiceState(runFolder: string, pid: number): void {
  rmSync(stateFile(runFolder, pid), { force: true });
  rmSync(`${stateFile(runFolder, pid)}.tmp`, { force: true });
}

/**
 * Reads one state; undefined when it went in the meantime, a power cut left half of it, or the file is a copy of the
 * one that was written: the state is then that of another folder, or of this one before it was restored.
 */
function findState(file: string): ServiceState | undefined {
  let fd: number | undefined;
  try {
    fd = openSync(file, 'r');
    const { file: writtenTo, ...state } = JSON.parse(readFileSync(fd, 'utf8')) as StoredState;
    return writtenTo === undefined || writtenTo === folderIdOf(fstatSync(fd)) ? state : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

function isOfRunningProcess(state: ServiceState): boolean {
  return isSameProcess(state.pid, state.processStart);
}

/** Says whether a state is that of this data folder, and did not come with a copy of another. */
function isOfFolder(runFolder: string, { folder }: ServiceState): boolean {
  return folder === undefined || folder === findFolderId(path.dirname(runFolder));
}

function listStateFiles(runFolder: string): readonly string[] {
  try {
    return readdirSync(runFolder)
      .filter((name) => /^supervisor-\d+\.json$/.test(name))
      .map((name) => path.join(runFolder, name));
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return [];
    throw error;
  }
}

function readStates(runFolder: string, files = listStateFiles(runFolder)): readonly ServiceState[] {
  return files
    .map(findState)
    .filter((state) => state !== undefined)
    .filter((state) => isOfFolder(runFolder, state));
}

/** Reads the states of the supervisors that run on this data folder; those of dead ones are left out. */
export function readServiceStates(runFolder: string): readonly ServiceState[] {
  return readStates(runFolder).filter(isOfRunningProcess);
}

/**
 * The last states of supervisors that are gone and were not stopped: killed, or lost with the machine. The next start
 * removes them. One of an earlier version does not name its folder, and may have come with a copy: it is left out.
 */
export function listLostServices(runFolder: string): readonly ServiceState[] {
  return readStates(runFolder).filter((state) => state.folder !== undefined && !isOfRunningProcess(state));
}

/** The processes of which one data folder has one, whoever runs it. */
const singleProcesses = ['nats-server', 'compact', 'export'];

/**
 * Names the other service that runs one of these processes on the data folder, as `locked` errors name a holder;
 * undefined when there is none. Services of other roles may run on the same folder beside an external broker.
 */
export function findRival(runFolder: string, processes: readonly string[]): string | undefined {
  const own = processes.filter((name) => singleProcesses.includes(name));
  // Asked twice a second: nearly always there is no other than the own.
  const others = listStateFiles(runFolder).filter((file) => file !== stateFile(runFolder, process.pid));
  const rival = readStates(runFolder, others)
    .filter(isOfRunningProcess)
    .find((state) => state.processes.some(({ name }) => own.includes(name)));
  return rival === undefined ? undefined : `the tributary service (pid ${rival.pid})`;
}

/** Removes what supervisors that were killed left: their states hold the credentials of a broker that is gone. */
export function sweepServiceStates(runFolder: string): void {
  for (const file of listStateFiles(runFolder)) {
    const state = findState(file);
    if (state === undefined || !isOfFolder(runFolder, state) || !isOfRunningProcess(state))
      rmSync(file, { force: true });
  }
}
