import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';

/** Where a folder lies, to name it to an operator. */
export interface FolderPlace {
  readonly host: string;
  readonly folder: string;
  /**
   * Differs between a folder and a copy of it, on another machine too. A hint only: a cloned machine has the same, and
   * a moved folder another one.
   */
  readonly fingerprint: string;
}

function readMachineId(): string {
  try {
    return readFileSync('/etc/machine-id', 'utf8').trim();
  } catch {
    return '';
  }
}

/** Finds the place of a folder that is there. */
export function findFolderPlace(folder: string): FolderPlace {
  const { dev, ino } = statSync(folder, { bigint: true });
  const fingerprint = createHash('sha256')
    .update([readMachineId(), hostname(), dev, ino].join('\n'))
    .digest('hex')
    .slice(0, 16);
  return { host: hostname(), folder: path.resolve(folder), fingerprint };
}
