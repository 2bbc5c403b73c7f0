import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import { writeHighestId } from './highest-id.ts';

/** Gives out the ids of export requests: each once, whatever is deleted and whatever crashes. */
export interface ReportIds {
  /** Hands out the next id with an empty folder of that name; both are durable. */
  allocate(): Promise<number>;
  /** Makes durable that no id up to this one is given out again. To be called before the folder of an id goes. */
  retire(id: number): Promise<void>;
}

/**
 * Creates the ids of a reports folder. `retired`: the highest id that may have been deleted (highest-id.ts); `newest`:
 * the highest that has a folder, 0 for none.
 */
export function createReportIds(reportsDir: string, retired: number, newest: number): ReportIds {
  let highestRetired = retired;
  let last = Math.max(retired, newest);
  return {
    async allocate() {
      // Exclusive mkdir hands each id out once, even to two callers at the same time.
      for (;;) {
        last += 1;
        const id = last;
        try {
          await mkdir(path.join(reportsDir, String(id)), { mode: 0o700 });
          await syncFolder(reportsDir);
          return id;
        } catch (error) {
          if (!isSystemError(error, 'EEXIST')) throw error;
        }
      }
    },
    async retire(id) {
      if (highestRetired >= id) return;
      await writeHighestId(reportsDir, last);
      highestRetired = last;
    },
  };
}
