import { readFileSync } from 'node:fs';

/**
 * Reads the most memory a running process has held, bytes; 0 when it is gone or there is no /proc. Not `ru_maxrss`:
 * that begins with the size of the process that started this one.
 */
export function readPeakBytes(pid: number): number {
  try {
    return Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
