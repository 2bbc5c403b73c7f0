import { isInProgress, type ReportJob } from './reports.ts';

/**
 * The requests of a store as they are known now: those that were read or made by this process, and the ids of those
 * still to be read.
 */
export interface JobTable {
  /** Takes a request as it is now. */
  keep(job: ReportJob): void;
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

/** Creates the table with the ids that the folder has. */
export function createJobTable(ids: readonly number[]): JobTable {
  const jobs = new Map<number, ReportJob>();
  /** A few among many: asked for at each creation and each end of a request. */
  const open = new Map<number, ReportJob>();
  const unread = new Set(ids);
  return {
    keep(job) {
      jobs.set(job.id, job);
      if (isInProgress(job)) open.set(job.id, job);
      else open.delete(job.id);
    },
    drop(id) {
      jobs.delete(id);
      open.delete(id);
    },
    find: (id) => jobs.get(id),
    list: () => [...jobs.values()],
    inProgress: () => [...open.values()].toSorted((a, b) => a.id - b.id),
    count: () => jobs.size + unread.size,
    unread,
  };
}
