import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, renameSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { waitFor } from './wait.ts';

const run = promisify(execFile);

/**
 * A separate disk whose power can be cut: an ext4 file system in an image file, on a loop device.
 *
 * Bytes that a process has written and not fsynced are in the kernel's memory, not in the image. A copy of the image,
 * taken while nothing writes to it, is the state after a power cut at that moment. The journal is replayed, and
 * everything that had not reached the disk is lost.
 */
export interface Disk {
  /** Path at which it is mounted; the same after a cut. */
  readonly folder: string;
  /** Copies the image as it is at one moment; every writer must be stopped. */
  takeImage(): Promise<void>;
  /** Unmounts the disk, repairs the copy and mounts it instead. No process may have a file open. */
  restoreImage(): Promise<void>;
  close(): Promise<void>;
}

const megabyte = 1024 * 1024;
const mostCopies = 50;
/** e2fsck: 0 no errors, 1 repaired; any other code means that the file system is lost. */
const repaired = [0, 1];

/** Returns the requirements that this machine lacks for power cuts; undefined if it has all. */
export function missingForPowerCuts(): string | undefined {
  if (process.getuid?.() !== 0) return 'it needs root, to mount';
  const missing = ['losetup', 'mkfs.ext4', 'e2fsck', 'mount', 'umount', 'cp'].filter((tool) => {
    try {
      execFileSync('sh', ['-c', `command -v ${tool}`]);
      return false;
    } catch {
      return true;
    }
  });
  if (missing.length > 0) return `it needs ${missing.join(', ')}`;
  try {
    execFileSync('losetup', ['--find'], { stdio: 'pipe' });
    return undefined;
  } catch {
    return 'it needs a loop device';
  }
}

/** Returns the number of completed writes of a block device, and of those in flight. */
function readWrites(device: string): { done: number; underWay: number } {
  const figures = readFileSync(`/sys/block/${path.basename(device)}/stat`, 'utf8')
    .trim()
    .split(/\s+/)
    .map(Number);
  return { done: figures[4] ?? 0, underWay: figures[8] ?? 0 };
}

/** Creates a disk in a folder, and mounts it. */
export async function openDisk(folder: string, sizeMb: number): Promise<Disk> {
  const image = path.join(folder, 'disk.img');
  const copy = path.join(folder, 'copy.img');
  const mountPoint = path.join(folder, 'disk');
  mkdirSync(mountPoint);
  writeFileSync(image, '');
  truncateSync(image, sizeMb * megabyte);
  await run('mkfs.ext4', ['-q', '-F', image]);

  let device: string | undefined;
  const attach = async (): Promise<void> => {
    device = (await run('losetup', ['--find', '--show', image])).stdout.trim();
    await run('mount', [device, mountPoint]);
  };
  const detach = async (): Promise<void> => {
    if (device === undefined) return;
    // a killed process may still be closing its files
    await waitFor('the disk can be unmounted', () =>
      run('umount', [mountPoint]).then(
        () => true,
        () => false,
      ),
    );
    await run('losetup', ['--detach', device]);
    device = undefined;
  };

  await attach();
  return {
    folder: mountPoint,
    async takeImage() {
      for (let copies = 0; copies < mostCopies; copies += 1) {
        const before = readWrites(device ?? '');
        await run('cp', ['--sparse=always', image, copy]);
        const after = readWrites(device ?? '');
        if (before.underWay === 0 && after.underWay === 0 && before.done === after.done) return;
      }
      throw new Error(`the disk was written to during each of ${mostCopies} copies`);
    },
    async restoreImage() {
      await detach();
      renameSync(copy, image);
      await run('e2fsck', ['-f', '-y', image]).catch((error: { readonly code?: number }) => {
        if (!repaired.includes(error.code ?? -1)) throw error;
      });
      await attach();
    },
    close: detach,
  };
}
