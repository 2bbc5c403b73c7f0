import path from 'node:path';
import { isSystemError } from '../runtime/errors.ts';
import { syncFolder } from '../runtime/files/durable-file.ts';
import { writeJobFile } from './job-file.ts';
import { createJobTable, type JobTable } from './job-table.ts';
import type { ReportJob } from './reports.ts';

/** The requests of a store: in memory (job-table.ts), and each in the job.json of its folder. */
export interface JobRecords extends Omit<JobTable, 'keep'> {
  /** A request's own folder, absolute. */
  folderOf(id: number): string;
  /** Writes a request's job.json; it is durable, and known, when this returns. */
  save(job: ReportJob): Promise<ReportJob>;
  /** Takes in a request as an earlier process has written it, which may not be durable. */
  takeIn(job: ReportJob): void;
  /** Makes what was taken in of a request durable, once. */
  settle(job: ReportJob): Promise<void>;
}

/** Creates the records of a reports folder with the ids that it has; none is read yet. */
export function createJobRecords(reportsDir: string, ids: readonly number[]): JobRecords {
  const jobs = createJobTable(ids);
  /** Requests taken in, whose folder has not been synced since. */
  const unsynced = new Set<number>();
  const folderOf = (id: number): string => path.join(reportsDir, String(id));

  async function save(job: ReportJob): Promise<ReportJob> {
    await writeJobFile(folderOf(job.id), job);
    jobs.keep(job);
    unsynced.delete(job.id);
    return job;
  }

  async function settle({ id }: ReportJob): Promise<void> {
    if (!unsynced.has(id)) return;
    await syncFolder(folderOf(id)).catch((error: unknown) => {
      if (!isSystemError(error, 'ENOENT') || jobs.find(id) !== undefined) throw error;
    });
    unsynced.delete(id);
  }

  return {
    ...jobs,
    folderOf,
    save,
    settle,
    takeIn(job) {
      unsynced.add(job.id);
      jobs.keep(job);
    },
    drop(id) {
      jobs.drop(id);
      unsynced.delete(id);
    },
  };
}
