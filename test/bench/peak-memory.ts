import { readFileSync } from 'node:fs';

/** Returns a line of a process's status, bytes; 0 if the process has exited or the system has no /proc. */
function readStatusBytes(pid: number, name: 'VmHWM' | 'VmRSS'): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

/**
 * Returns the peak memory of a running process, bytes; 0 if it has exited or the system has no /proc. `ru_maxrss` is
 * not used: it starts at the size of the parent process.
 */
export const readPeakBytes = (pid: number): number => readStatusBytes(pid, 'VmHWM');

/** Returns the present memory of a running process, bytes; 0 as above. */
export const readResidentBytes = (pid: number): number => readStatusBytes(pid, 'VmRSS');
