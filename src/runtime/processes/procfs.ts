import { readFileSync, readlinkSync } from 'node:fs';
import path from 'node:path';
import { listNamesSync } from '../files/folder-names.ts';
import { isSystemError } from '../errors.ts';

/**
 * What the kernel shows of processes under /proc: nothing of one that is gone, little of another user's, and nothing at
 * all where the system has no /proc.
 */

/** A file that a process has open. */
interface OpenFile {
  /** Path below /proc that names the file which the descriptor is open on. */
  readonly link: string;
  /** That file, as the kernel names it: followed by ` (deleted)` once it is not in its folder any more. */
  readonly target: string;
}

/** The ids of the processes that run. Throws where the system has no /proc. */
export function listProcesses(): number[] {
  return listNamesSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** The fields of a process's state behind its name (proc(5), stat); undefined when it is gone. */
function findProcessFields(pid: number): readonly string[] | undefined {
  try {
    // The name, in brackets, may hold spaces and brackets: fields are counted after its end.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

/** One variable of the environment that a process was started with. Throws where that cannot be read. */
export function findVariable(pid: number, name: string): string | undefined {
  return readFileSync(`/proc/${pid}/environ`, 'utf8')
    .split('\0')
    .find((entry) => entry.startsWith(`${name}=`))
    ?.slice(name.length + 1);
}

/** The program that a process runs. Throws where that cannot be read. */
export function getExecutable(pid: number): string {
  return readlinkSync(`/proc/${pid}/exe`);
}

/** Path of the link to the folder that a process works in. */
export function workFolderLink(pid: number): string {
  return `/proc/${pid}/cwd`;
}

/** What a link of `OpenFile` leads to now; undefined when the file is not open any more. */
export function findTarget(link: string): string | undefined {
  try {
    return readlinkSync(link);
  } catch {
    return undefined;
  }
}

/** Lists what a process has open: files, and whatever else has a descriptor. Throws where that cannot be read. */
export function listOpenFiles(pid: number): readonly OpenFile[] {
  const descriptors = `/proc/${pid}/fd`;
  return listNamesSync(descriptors).flatMap((name) => {
    const link = path.join(descriptors, name);
    const target = findTarget(link);
    return target === undefined ? [] : [{ link, target }];
  });
}

/** Says whether a process of this id is there, whoever owns it. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isSystemError(error, 'EPERM');
  }
}

/**
 * When a process started, in the kernel's own clock ticks: together with its id it names one process uniquely, while
 * the id alone is used again (in a container even the same one each time). Undefined when it is gone, has ended and only
 * waits to be reaped, or the system has no /proc.
 */
export function findProcessStart(pid: number): string | undefined {
  const fields = findProcessFields(pid) ?? [];
  return ['Z', 'X'].includes(fields[0] ?? '') ? undefined : fields[19];
}

/** Says whether the process that had this id when it started then still runs. Without a known start, its id decides. */
export function isSameProcess(pid: number, processStart: string | undefined): boolean {
  if (!isProcessAlive(pid)) return false;
  return processStart === undefined || processStart === '' || findProcessStart(pid) === processStart;
}

/** Says whether a process has ended, also where nobody has asked yet how it did. */
export function hasEnded(pid: number): boolean {
  return !isProcessAlive(pid) || ['Z', 'X'].includes(findProcessFields(pid)?.[0] ?? '');
}
