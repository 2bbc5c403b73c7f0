import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import { writeJob } from './report-records.ts';
import { isInProgress, type ReportJob } from './reports.ts';

/** The requests of a store: those that this process has read or made, and the ids of those still to be read. */
export interface JobRecords {
  /** A request's own folder, absolute. */
  folderOf(id: number): string;
  /** Writes a request; it is durable, and known, when this returns. */
  save(job: ReportJob): Promise<ReportJob>;
  /** Takes in a request as an earlier process has written it, which may not be durable. */
  takeIn(job: ReportJob): void;
  /** Makes what was taken in of a request durable, once. */
  settle(job: ReportJob): Promise<void>;
  drop(id: number): void;
  find(id: number): ReportJob | undefined;
  /** The known requests, in no order. */
  list(): readonly ReportJob[];
  /** Those of them that wait or run, oldest first. */
  inProgress(): readonly ReportJob[];
  /** How many requests there are, known or not. */
  count(): number;
  /** Ids of requests that an earlier process has left and that are not read yet. */
  readonly unread: Set<number>;
}

/** Creates the records of a reports folder with the ids that it has; none is read yet. */
export function createJobRecords(reportsDir: string, ids: readonly number[]): JobRecords {
  const jobs = new Map<number, ReportJob>();
  /** A few among many: asked for at each creation and each end of a request. */
  const open = new Map<number, ReportJob>();
  const unread = new Set(ids);
  /** Requests taken in, whose folder has not been synced since. */
  const unsynced = new Set<number>();
  const folderOf = (id: number): string => path.join(reportsDir, String(id));

  function keep(job: ReportJob): ReportJob {
    jobs.set(job.id, job);
    if (isInProgress(job)) open.set(job.id, job);
    else open.delete(job.id);
    return job;
  }

  return {
    folderOf,
    async save(job) {
      await writeJob(reportsDir, job);
      unsynced.delete(job.id);
      return keep(job);
    },
    async settle({ id }) {
      if (!unsynced.has(id)) return;
      await syncFolder(folderOf(id)).catch((error: unknown) => {
        if (!isSystemError(error, 'ENOENT') || jobs.has(id)) throw error;
      });
      unsynced.delete(id);
    },
    takeIn(job) {
      unsynced.add(job.id);
      keep(job);
    },
    drop(id) {
      jobs.delete(id);
      open.delete(id);
      unsynced.delete(id);
    },
    find: (id) => jobs.get(id),
    list: () => [...jobs.values()],
    inProgress: () => [...open.values()].toSorted((a, b) => a.id - b.id),
    count: () => jobs.size + unread.size,
    unread,
  };
}
