import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { inParallel } from '../runtime/async/in-parallel.ts';
import type { KeyedSemaphore } from '../runtime/async/semaphore.ts';
import { runAtHalfPace } from '../runtime/async/retry.ts';
import { describeError, isAppError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import type { JobRecords } from './job-records.ts';
import { progressName } from './progress-notes.ts';
import type { ReportIds } from './report-ids.ts';
import { findJob } from './report-records.ts';
import { attemptPrefix, isInProgress, partsFolder, type ReportJob } from './reports.ts';

/** The requests that earlier processes have left: each is read once, when it is asked for or in the background. */
export interface EarlierRequests {
  /**
   * Reads a request, in its turn; does nothing for one that was read. A damaged one is left as it is, for the operator
   * to look at, and keeps no other from being served. Errors: those of the file system; it may be asked for again.
   */
  read(id: number): Promise<void>;
  /** Reads some requests, whatever becomes of each. */
  readAll(ids: readonly number[]): Promise<void>;
  /** Reads the rest, slowly, until the signal aborts; calls `onInProgress` for each that waits or ran. */
  load(signal: AbortSignal, onInProgress?: () => void): Promise<void>;
  /** Requests that could not be read, one sentence each. */
  damaged(): readonly string[];
}

export interface EarlierRequestsDependencies {
  readonly records: JobRecords;
  readonly ids: ReportIds;
  /** Held by whoever changes a request, by its id. */
  readonly mutex: KeyedSemaphore;
  readonly logger: Logger;
}

/** Requests read at a time. */
const width = 4;

function isLeftover(name: string, job: ReportJob): boolean {
  if (name === partsFolder) return job.state !== 'success';
  if (name === progressName) return !isInProgress(job);
  return name.startsWith(attemptPrefix) || name.endsWith('.tmp');
}

/**
 * Reads the request that an earlier process has left in a folder, and removes what a crash may have left beside it:
 * attempts, unpublished parts, temporaries. Undefined when there is no request in it. No attempt of the request may be
 * running. Errors: `report_damaged`.
 */
async function recoverJob(folder: string, id: number): Promise<ReportJob | undefined> {
  const job = await findJob(path.dirname(folder), id);
  if (job === undefined) return undefined;
  for (const name of await readdir(folder)) {
    if (isLeftover(name, job)) await rm(path.join(folder, name), { recursive: true, force: true });
  }
  return job;
}

/** Creates what reads the requests whose ids `records` has as unread. */
export function createEarlierRequests({ records, ids, mutex, logger }: EarlierRequestsDependencies): EarlierRequests {
  const { unread } = records;
  const damages = new Map<number, string>();
  let onFound: (() => void) | undefined;

  async function readNow(id: number): Promise<void> {
    if (!unread.has(id)) return;
    const folder = records.folderOf(id);
    const job = await recoverJob(folder, id);
    if (job === undefined) {
      await ids.retire(id);
      await rm(folder, { recursive: true, force: true });
    } else records.takeIn(job);
    unread.delete(id);
    damages.delete(id);
    if (job !== undefined && isInProgress(job)) onFound?.();
  }

  function takeDamage(id: number, error: unknown): void {
    const damage = describeError(error);
    if (damages.get(id) !== damage) logger.error({ idReport: id, error: damage }, 'export request cannot be read');
    damages.set(id, damage);
    if (!isAppError(error, 'report_damaged')) throw error;
    unread.delete(id);
  }

  const read = (id: number): Promise<void> =>
    mutex.run(id, () => readNow(id).catch((error: unknown) => takeDamage(id, error)));
  const tryRead = (id: number): Promise<void> => read(id).catch(() => undefined);

  return {
    read,
    readAll: (some) => inParallel(some, width, tryRead),
    async load(signal, onInProgress) {
      onFound = onInProgress;
      await runAtHalfPace([...unread], width, tryRead, signal);
    },
    damaged: () => [...damages.values()],
  };
}
