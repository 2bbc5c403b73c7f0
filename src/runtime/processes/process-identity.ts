import { isSystemError } from '../errors.ts';
import { findProcessFields } from './procfs.ts';

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
