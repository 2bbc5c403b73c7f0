import { accessSync, constants, readFileSync, statfsSync } from 'node:fs';
import { isWhole } from './in-turn.ts';

const folder = '/dev/shm';
/** Capacity for the folders of all concurrent tests, bytes. */
const neededBytes = 4 * 1024 ** 3;

/** Reports whether the folder is in memory, writable, of a user who may run programs in it, and large enough. */
function isUsable(): boolean {
  try {
    accessSync(folder, constants.W_OK);
    const mounted = readFileSync('/proc/mounts', 'utf8')
      .split('\n')
      .map((line) => line.split(' '))
      .findLast(([, place]) => place === folder);
    const [, , type, options = 'noexec'] = mounted ?? [];
    const { bavail, bsize } = statfsSync(folder);
    const freeBytes = Math.min(bavail * bsize, process.availableMemory());
    return type === 'tmpfs' && !options.split(',').includes('noexec') && freeBytes >= neededBytes;
  } catch {
    return false;
  }
}

/**
 * A folder in memory for the temporary folders of tests, where an fsync costs nothing; most tests would wait for the
 * disk. Undefined in a complete run, which uses the disk, if `TMPDIR` is set, and if the machine has no such folder.
 */
export const memoryFolder = !isWhole && process.env['TMPDIR'] === undefined && isUsable() ? folder : undefined;
