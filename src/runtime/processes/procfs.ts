import path from 'node:path';
import { listNamesSync } from '../files/folder-names.ts';
import { getLinkSync, getTextSync } from '../files/open-file.ts';
import { isSystemError } from '../errors.ts';

/** Reads of /proc: nothing for an exited process, little for another user's, nothing on a system without /proc. */

interface OpenFile {
  /** Path below /proc of the file's descriptor. */
  readonly link: string;
  /** The file's path, followed by ` (deleted)` if it is no longer in its folder. */
  readonly target: string;
}

/** Returns the ids of the running processes. Throws on a system without /proc. */
export function listProcesses(): number[] {
  return listNamesSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** Returns the fields behind the process's name (proc(5), stat); undefined for an exited process. */
function findProcessFields(pid: number): readonly string[] | undefined {
  try {
    // The name in brackets may contain spaces and brackets: fields are counted after its end.
    const stat = getTextSync(`/proc/${pid}/stat`);
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

/** Finds a variable of the environment that a process was started with. Throws if it is not readable. */
export function findVariable(pid: number, name: string): string | undefined {
  return getTextSync(`/proc/${pid}/environ`)
    .split('\0')
    .find((entry) => entry.startsWith(`${name}=`))
    ?.slice(name.length + 1);
}

export function getExecutable(pid: number): string {
  return getLinkSync(`/proc/${pid}/exe`);
}

/** Returns the path of the link to a process's working directory. */
export function workFolderLink(pid: number): string {
  return `/proc/${pid}/cwd`;
}

/** Returns the target of a link of `OpenFile`; undefined if the file has been closed. */
export function findTarget(link: string): string | undefined {
  try {
    return getLinkSync(link);
  } catch {
    return undefined;
  }
}

/** Lists the open descriptors of a process. Throws if they are not readable. */
export function listOpenFiles(pid: number): readonly OpenFile[] {
  const descriptors = `/proc/${pid}/fd`;
  return listNamesSync(descriptors).flatMap((name) => {
    const link = path.join(descriptors, name);
    const target = findTarget(link);
    return target === undefined ? [] : [{ link, target }];
  });
}

/** Reports whether a process has this id, of any user. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isSystemError(error, 'EPERM');
  }
}

/** Returns the start time, ticks: with the id it identifies a process. Undefined after its exit and without /proc. */
export function findProcessStart(pid: number): string | undefined {
  const fields = findProcessFields(pid) ?? [];
  return ['Z', 'X'].includes(fields[0] ?? '') ? undefined : fields[19];
}

/** Reports whether a process of this id and start time runs. Without a known start time, the id decides. */
export function isSameProcess(pid: number, processStart: string | undefined): boolean {
  if (!isProcessAlive(pid)) return false;
  return processStart === undefined || processStart === '' || findProcessStart(pid) === processStart;
}

/** Reports whether a process has exited, also if it is a zombie. */
export function hasEnded(pid: number): boolean {
  return !isProcessAlive(pid) || ['Z', 'X'].includes(findProcessFields(pid)?.[0] ?? '');
}
