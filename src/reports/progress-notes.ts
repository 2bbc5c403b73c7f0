import path from 'node:path';
import { describeError, isSystemError } from '../runtime/errors.ts';
import { getTextSync, removeFileSync, writeTextSync } from '../runtime/files/open-file.ts';
import type { Logger } from '../runtime/logger.ts';

/** File in a request's folder; it holds the percent as digits. */
export const progressName = 'progress';

/**
 * Creates the notes of a reports folder: the highest progress of each request that a client was shown, percent, so that
 * a crash does not decrease it. Notes of an earlier process are read on demand.
 */
export function createProgressNotes(reportsDir: string, logger: Logger) {
  const percents = new Map<number, number>();
  const fileOf = (id: number): string => path.join(reportsDir, String(id), progressName);

  function read(id: number): number {
    try {
      const text = getTextSync(fileOf(id));
      return /^\d{1,2}$/.test(text) ? Number(text) : 0;
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return 0;
      throw error;
    }
  }

  function told(id: number): number {
    const percent = percents.get(id) ?? read(id);
    percents.set(id, percent);
    return percent;
  }

  return {
    told,
    /** Keeps a progress. Not fsynced: a power cut may lose it. */
    note(id: number, percent: number): void {
      if (percent <= told(id)) return;
      percents.set(id, percent);
      try {
        writeTextSync(fileOf(id), String(percent));
      } catch (error) {
        // A full disk must not turn a response about progress into an error.
        logger.warn({ idReport: id, error: describeError(error) }, 'progress of an export cannot be written');
      }
    },
    drop(id: number): void {
      percents.delete(id);
      removeFileSync(fileOf(id));
    },
  };
}
