import { readdirSync, readlinkSync } from 'node:fs';
import path from 'node:path';

/** What the kernel adds to the name of an open file that is no longer in its folder. */
const gone = ' (deleted)';

/** The message files of the store that a process has open, and that were removed or replaced since. None where there is no /proc. */
function listGoneFiles(pid: number, storeFolder: string): readonly string[] {
  const descriptors = `/proc/${pid}/fd`;
  let names: readonly string[];
  try {
    names = readdirSync(descriptors);
  } catch {
    return [];
  }
  return names.flatMap((name) => {
    try {
      const file = readlinkSync(path.join(descriptors, name));
      return file.startsWith(`${storeFolder}${path.sep}`) && file.endsWith(`.blk${gone}`) ? [`${name} ${file}`] : [];
    } catch {
      return [];
    }
  });
}

/**
 * Looks whether files were removed or replaced under a running nats-server, by a restore over its store, say: it goes on
 * writing to what it has open, and acknowledges what no restart will find. The server itself removes files that it has
 * purged, and may have one open for an instant longer: what is gone at two looks in a row was taken from it.
 */
export function createStoreWatch(storeFolder: string): { isReplaced(pid: number | undefined): boolean } {
  let before: readonly string[] = [];
  return {
    isReplaced(pid) {
      const now = pid === undefined ? [] : listGoneFiles(pid, storeFolder).map((file) => `${pid} ${file}`);
      const lasting = now.some((file) => before.includes(file));
      before = now;
      return lasting;
    },
  };
}
