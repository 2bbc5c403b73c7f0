import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, renameSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { waitFor } from './wait.ts';

const run = promisify(execFile);

/**
 * A disk of its own whose power can be cut: an ext4 file system in an image file, on a loop device.
 *
 * What a process has written and not fsynced is in the kernel's memory and not in the image. A copy of the image, taken
 * while nothing writes to it, is what a machine would find after it lost power at that moment: the journal is replayed,
 * and everything that had not reached the disk is gone.
 */
export interface Disk {
  /** Where it is mounted; the same after a cut. */
  readonly folder: string;
  /** Copies the image as it is at one moment; everybody who writes must be stopped. */
  takeImage(): Promise<void>;
  /** Takes the disk away, repairs the copy and mounts it in the disk's place. Nobody may have a file open. */
  restoreImage(): Promise<void>;
  /** Unmounts and removes it. */
  close(): Promise<void>;
}

const megabyte = 1024 * 1024;
const mostCopies = 50;
/** e2fsck: 0 nothing wrong, 1 repaired; anything else is a file system that could not be. */
const repaired = [0, 1];

/** Says what this machine lacks for a disk whose power can be cut; undefined when it lacks nothing. */
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

/** Number of writes a block device has done, and of those on their way. */
function readWrites(device: string): { done: number; underWay: number } {
  const figures = readFileSync(`/sys/block/${path.basename(device)}/stat`, 'utf8')
    .trim()
    .split(/\s+/)
    .map(Number);
  return { done: figures[4] ?? 0, underWay: figures[8] ?? 0 };
}

/** Makes a disk in a folder, and mounts it. */
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
    // a process that was just killed may still be putting its files away
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
