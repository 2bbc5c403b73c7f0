import { readFileSync } from 'node:fs';

/** A line of a process's status, in bytes; 0 when it is gone or there is no /proc. */
function readStatusBytes(pid: number, name: 'VmHWM' | 'VmRSS'): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

/**
 * Reads the most memory a running process has held, bytes; 0 when it is gone or there is no /proc. Not `ru_maxrss`:
 * that begins with the size of the process that started this one.
 */
export const readPeakBytes = (pid: number): number => readStatusBytes(pid, 'VmHWM');

/** Reads what memory a running process holds now, bytes; 0 as above. */
export const readResidentBytes = (pid: number): number => readStatusBytes(pid, 'VmRSS');
