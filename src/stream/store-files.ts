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

/** A message file that nats-server has open. A server keeps writing to removed files, which no restart finds. */
interface BlockFile {
  readonly link: string;
  readonly file: string;
  readonly number: number;
  readonly gone: boolean;
}

const blockName = /^(.*\/msgs\/(\d+)\.blk)( \(deleted\))?$/;

/** Returns the result of reading the system; undefined if it hides it. */
function tryLook<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch {
    return undefined;
  }
}

/** Lists the message files that a process has open below a folder; undefined if the system does not show it. */
const findBlockFiles = (pid: number, folder: string): readonly BlockFile[] | undefined =>
  tryLook(() =>
    listOpenFiles(pid).flatMap(({ link, target }) => {
      const [, file, number, deleted] = blockName.exec(target) ?? [];
      if (file?.startsWith(`${folder}${path.sep}`) !== true) return [];
      return [{ link, file, number: Number(number), gone: deleted !== undefined }];
    }),
  );

/** Watches for files taken from a running server: missing at two checks, since a purged file may be open briefly. */
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

/** Finds the server of a folder: it writes its port into a file named after its process id. */
function findServerPid(folder: string): number | undefined {
  return listNamesSync(folder)
    .flatMap((name) => /_(\d+)\.ports$/.exec(name)?.[1] ?? [])
    .map(Number)
    .find(isProcessAlive);
}

const stampOf = (file: string): string | undefined => tryLook(() => findStamp(file));

/** Number of checks before a missing file counts as taken from the server. */
const looks = 4;
const betweenLooksMs = 25;
/** Time for which a store is not trusted after a file was taken from it, ms: two checks of the supervisor. */
const distrustMs = 5000;

/** Creates the check of whether acknowledged messages are in the server's folder. Usually two system calls. */
export function createStoreCheck(folder: string, distrustedMs = distrustMs) {
  let trustedAtMs = Number.NEGATIVE_INFINITY;
  let pid = findServerPid(folder);
  let written: { readonly link: string; readonly file: string; stamp: string | undefined } | undefined;

  function isWrittenAgain(): boolean {
    if (written === undefined || findTarget(written.link) !== written.file) return false;
    const stamp = stampOf(written.file);
    const changed = stamp !== undefined && stamp !== written.stamp;
    written.stamp = stamp;
    return changed;
  }

  function areAllKept(): boolean {
    // A restore may have removed the file that names the process.
    pid = findServerPid(folder) ?? pid;
    const files = pid === undefined ? undefined : findBlockFiles(pid, path.join(folder, 'store'));
    if (files?.some(({ gone }) => gone) === true) return false;
    const newest = files?.toSorted((a, b) => b.number - a.number)[0];
    written = newest === undefined ? undefined : { ...newest, stamp: stampOf(newest.file) };
    return true;
  }

  return {
    /** Reports whether the message of the last ack is kept. True also if the system does not show open files. */
    async isKept(): Promise<boolean> {
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

/** Variable by which a server and its watcher name their supervisor: parents change when they die. */
export const supervisorVariable = 'TRIBUTARY_SUPERVISOR';

/** Returns the value of that variable for the servers of this process. */
export function describeSupervisor(): string {
  return `${process.pid} ${findProcessStart(process.pid) ?? ''}`;
}

const goneMs = 5000;
const pollIntervalMs = 20;

/** Reports whether a process is a nats-server in a folder whose supervisor has exited. Throws if unreadable. */
function isLeftOver(pid: number, folderId: string): boolean {
  if (findFolderId(workFolderLink(pid)) !== folderId || path.basename(getExecutable(pid)) !== 'nats-server')
    return false;
  const [, supervisor, processStart] = /^(\d+) (\d*)$/.exec(findVariable(pid, supervisorVariable) ?? '') ?? [];
  return supervisor !== undefined && processStart !== undefined && !isSameProcess(Number(supervisor), processStart);
}

/** Kills nats-servers of a folder that outlived their supervisor and watcher: they hold its locks. */
export async function killOrphanedServers(folder: string, logger: Logger): Promise<void> {
  const folderId = findFolderId(folder);
  if (folderId === undefined) return;
  const processes = tryLook(listProcesses) ?? [];
  for (const pid of processes.filter((one) => tryLook(() => isLeftOver(one, folderId)) === true)) {
    logger.warn({ pid, folder }, 'killing orphaned nats-server');
    process.kill(pid, 'SIGKILL');
    for (const begunMs = performance.now(); isProcessAlive(pid) && performance.now() - begunMs < goneMs;)
      await pause(pollIntervalMs);
  }
}
