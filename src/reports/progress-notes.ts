import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describeError, isSystemError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';

/** The progress of each request that its clients were shown, so that it does not go back over a crash. */
export interface ProgressNotes {
  /** The highest progress shown, percent. */
  told(id: number): number;
  /** Remembers what is being shown. In the kernel's hands, not fsynced: a power cut may forget it. */
  note(id: number, percent: number): void;
  /** Forgets a request that has ended. */
  drop(id: number): void;
}

/** Name of the file in a request's folder: a bare number of percent. */
export const progressName = 'progress';

/** Creates the notes of a reports folder; what an earlier process noted is read when it is first asked for. */
export function createProgressNotes(reportsDir: string, logger: Logger): ProgressNotes {
  const percents = new Map<number, number>();
  const fileOf = (id: number): string => path.join(reportsDir, String(id), progressName);

  function read(id: number): number {
    try {
      const text = readFileSync(fileOf(id), 'utf8');
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
    note(id, percent) {
      if (percent <= told(id)) return;
      percents.set(id, percent);
      try {
        writeFileSync(fileOf(id), String(percent), { mode: 0o600 });
      } catch (error) {
        // A full disk must not turn an answer about progress into an error.
        logger.warn({ idReport: id, error: describeError(error) }, 'progress of an export cannot be written');
      }
    },
    drop(id) {
      percents.delete(id);
      rmSync(fileOf(id), { force: true });
    },
  };
}
