import { findStamp } from '../../runtime/files/file-stamp.ts';

/** Folders as they were before they were last looked through. */
export interface FolderChanges {
  /** To be called before a folder is looked through, each time. */
  note(folder: string): void;
  /** Says whether something may have come into one of them since, or gone. */
  haveChanged(): boolean;
  /** Forgets the folders that are not among these. */
  keep(folders: ReadonlySet<string>): void;
}

/**
 * A folder's time goes by the ticks of the kernel, some milliseconds each: what changes after a look, but in the same tick
 * as the change before it, cannot be told from that. So a look counts when it came so long after the change.
 */
const surelyLaterMs = 1000;

interface Noted {
  readonly stamp: string | undefined;
  /** When this stamp was first seen, and when the folder was last looked through, by the monotonic clock. */
  readonly firstMs: number;
  readonly lastMs: number;
}

/** Creates it, knowing no folder. */
export function createFolderChanges(monotonicMs: () => number = () => performance.now()): FolderChanges {
  const noted = new Map<string, Noted>();
  return {
    note(folder) {
      const stamp = findStamp(folder);
      const lastMs = monotonicMs();
      const before = noted.get(folder);
      const firstMs = before !== undefined && before.stamp === stamp ? before.firstMs : lastMs;
      noted.set(folder, { stamp, firstMs, lastMs });
    },
    haveChanged: () =>
      [...noted].some(
        ([folder, { stamp, firstMs, lastMs }]) => lastMs - firstMs < surelyLaterMs || findStamp(folder) !== stamp,
      ),
    keep(folders) {
      for (const folder of noted.keys()) if (!folders.has(folder)) noted.delete(folder);
    },
  };
}
