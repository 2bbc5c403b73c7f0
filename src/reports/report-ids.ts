import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import { readHighestId, writeHighestId } from './report-records.ts';

/** Gives out the ids of export requests: each once, whatever is deleted and whatever crashes. */
export interface ReportIds {
  /**
   * Reads the highest id that may have been deleted; the others do so too until it could be read. Error:
   * `report_damaged`.
   */
  load(): Promise<void>;
  /** Hands out the next id with an empty folder of that name; both are durable. */
  allocate(): Promise<number>;
  /** Makes durable that no id up to this one is given out again. To be called before the folder of an id goes. */
  retire(id: number): Promise<void>;
}

/** Creates the ids of a reports folder. `newest`: the highest that has a folder, 0 for none. */
export function createReportIds(reportsDir: string, newest: number): ReportIds {
  /** The highest id that may have been deleted (report-records.ts); undefined until it was read. */
  let highestRetired: number | undefined;
  let last = newest;

  async function load(): Promise<void> {
    if (highestRetired !== undefined) return;
    const retired = await readHighestId(reportsDir);
    highestRetired = Math.max(highestRetired ?? 0, retired);
    last = Math.max(last, highestRetired);
  }

  return {
    load,
    async allocate() {
      await load();
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
      await load();
      if ((highestRetired ?? 0) >= id) return;
      await writeHighestId(reportsDir, last);
      highestRetired = last;
    },
  };
}
