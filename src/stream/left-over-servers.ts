import path from 'node:path';
import process from 'node:process';
import { findFolderId } from '../runtime/files/folder-id.ts';
import type { Logger } from '../runtime/logger.ts';
import { findProcessStart, isProcessAlive, isSameProcess } from '../runtime/processes/process-identity.ts';
import { findVariable, getExecutable, listProcesses, workFolderLink } from '../runtime/processes/procfs.ts';
import { pause } from '../runtime/async/retry.ts';

/**
 * A nats-server that outlives its service: its supervisor and the watcher that would have ended it were killed both. It
 * holds the locks of the data folder, and nobody has its password. What it has acknowledged is on the disk.
 */

/** The variable by which a server, and its watcher, know their supervisor: parents change when they die. */
export const supervisorVariable = 'TRIBUTARY_SUPERVISOR';

/** What that variable says in the servers of this process. */
export function describeSupervisor(): string {
  return `${process.pid} ${findProcessStart(process.pid) ?? ''}`;
}

const goneMs = 5000;
const lookEveryMs = 20;

/**
 * The supervisor that started a process, by its environment; undefined where it was started by none, or is another
 * user's.
 */
function findSupervisor(pid: number): { readonly pid: number; readonly processStart: string } | undefined {
  const [, supervisor, processStart] = /^(\d+) (\d*)$/.exec(findVariable(pid, supervisorVariable) ?? '') ?? [];
  return supervisor === undefined || processStart === undefined ? undefined : { pid: Number(supervisor), processStart };
}

function isLeftOver(pid: number, folderId: string): boolean {
  try {
    if (findFolderId(workFolderLink(pid)) !== folderId || path.basename(getExecutable(pid)) !== 'nats-server')
      return false;
    const supervisor = findSupervisor(pid);
    return supervisor !== undefined && !isSameProcess(supervisor.pid, supervisor.processStart);
  } catch {
    // Gone, or another user's.
    return false;
  }
}

/** The servers that run in a folder and whose supervisors are gone; none where the system has no /proc. */
function listLeftOver(folder: string): number[] {
  const folderId = findFolderId(folder);
  if (folderId === undefined) return [];
  try {
    return listProcesses().filter((pid) => isLeftOver(pid, folderId));
  } catch {
    return [];
  }
}

/** Ends the servers that an earlier service has left running in the folder, and waits until they are gone. */
export async function endLeftOverServers(folder: string, logger: Logger): Promise<void> {
  for (const pid of listLeftOver(folder)) {
    logger.warn({ pid, folder }, 'a nats-server of a service that is gone still runs on the data folder: it is ended');
    process.kill(pid, 'SIGKILL');
    for (const begunMs = performance.now(); isProcessAlive(pid) && performance.now() - begunMs < goneMs;)
      await pause(lookEveryMs);
  }
}
