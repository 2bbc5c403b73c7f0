import path from 'node:path';
import { findStamp } from '../runtime/files/file-checks.ts';
import { listNamesSync } from '../runtime/files/folder-names.ts';
import {
  isProcessAlive,
  findTarget,
  listOpenFiles,
  findProcessStart,
  isSameProcess,
  findVariable,
  getExecutable,
  listProcesses,
  workFolderLink,
} from '../runtime/processes/procfs.ts';
import { pause } from '../runtime/async/retry.ts';
import process from 'node:process';
import { findFolderId } from '../runtime/files/folder-id.ts';
import type { Logger } from '../runtime/logger.ts';

/**
 * The message files of an embedded nats-server, as the kernel sees them. A server whose files were removed or replaced,
 * by a restore over its store, say, goes on writing to what it has open, and acknowledges what no restart will find.
 */
interface BlockFile {
  /** Path below /proc that names the file which the descriptor is open on. */
  readonly link: string;
  /** Its path in the store. */
  readonly file: string;
  /** It is not in its folder any more. */
  readonly gone: boolean;
}

const blockName = /^(.*\/msgs\/(\d+)\.blk)( \(deleted\))?$/;

/** Lists the message files that a process has open below a folder; undefined where that cannot be seen. */
function findBlockFiles(pid: number, folder: string): readonly BlockFile[] | undefined {
  try {
    return listOpenFiles(pid).flatMap(({ link, target }) => {
      const [, file, , deleted] = blockName.exec(target) ?? [];
      return file?.startsWith(`${folder}${path.sep}`) === true ? [{ link, file, gone: deleted !== undefined }] : [];
    });
  } catch {
    return undefined;
  }
}

function numberOf({ file }: BlockFile): number {
  return Number(blockName.exec(file)?.[2]);
}

/**
 * Watches for files that were taken from a running server. The server itself removes files that it has purged, and may
 * have one open for an instant longer: what is gone at two looks in a row was taken from it.
 */
export function createStoreWatch(folder: string): { isReplaced(pid: number | undefined): boolean } {
  let before: readonly string[] = [];
  return {
    isReplaced(pid) {
      const files = pid === undefined ? [] : (findBlockFiles(pid, folder) ?? []);
      const now = files.filter(({ gone }) => gone).map(({ link, file }) => `${link} ${file}`);
      const lasting = now.some((file) => before.includes(file));
      before = now;
      return lasting;
    },
  };
}

/** The server writes the port it took into a file that is named after its process id. */
function findServerPid(folder: string): number | undefined {
  return listNamesSync(folder)
    .flatMap((name) => /_(\d+)\.ports$/.exec(name)?.[1] ?? [])
    .map(Number)
    .find(isProcessAlive);
}

/** The stamp of a file of the store; undefined when it is gone, or the disk does not say. */
function findBlockStamp(file: string): string | undefined {
  try {
    return findStamp(file);
  } catch {
    return undefined;
  }
}

/** Looks before a file that is gone counts as taken from the server. */
const looks = 4;
const betweenLooksMs = 25;
/**
 * For so long a store from which a file was taken is not trusted again, milliseconds. The server soon begins another
 * file, in its place at last, behind messages that no restart will find; until then the supervisor, who looks every
 * second, has looked twice.
 */
const distrustMs = 5000;

/** Says of acknowledgements whether what they confirm is in the server's folder. */
interface StoreCheck {
  /** Asked right after an acknowledgement. True as well where the system does not show what a process has open. */
  isKept(): Promise<boolean>;
}

/**
 * Creates the check of the server that runs in a folder. Two calls of the system, mostly: the file written last has
 * changed again.
 */
export function createStoreCheck(folder: string, distrustedMs = distrustMs): StoreCheck {
  let trustedAtMs = Number.NEGATIVE_INFINITY;
  let pid = findServerPid(folder);
  let written: { readonly link: string; readonly file: string; stamp: string | undefined } | undefined;

  function isWrittenAgain(): boolean {
    if (written === undefined || findTarget(written.link) !== written.file) return false;
    const stamp = findBlockStamp(written.file);
    const changed = stamp !== undefined && stamp !== written.stamp;
    written.stamp = stamp;
    return changed;
  }

  function areAllKept(): boolean {
    // A restore may have taken the file that names the process.
    pid = findServerPid(folder) ?? pid;
    const files = pid === undefined ? undefined : findBlockFiles(pid, path.join(folder, 'store'));
    if (files?.some(({ gone }) => gone) === true) return false;
    const newest = files?.toSorted((a, b) => numberOf(b) - numberOf(a))[0];
    written =
      newest === undefined ? undefined : { link: newest.link, file: newest.file, stamp: findBlockStamp(newest.file) };
    return true;
  }

  return {
    async isKept() {
      if (performance.now() < trustedAtMs) return false;
      if (isWrittenAgain()) return true;
      for (let look = 0; look < looks; look += 1) {
        if (areAllKept()) return true;
        await pause(betweenLooksMs);
      }
      trustedAtMs = performance.now() + distrustedMs;
      return false;
    },
  };
}

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
