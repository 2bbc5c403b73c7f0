import { isInProgress, type ReportJob } from '../../reports/reports.ts';
import { addSlot, isMade } from '../../schedules/made-slots.ts';
import type { Progress, Schedule } from '../../schedules/schedules.ts';

/**
 * Takes in that a request was made. Ids grow: a slot that is new under a lower one says that the requests of before are
 * gone, and their ids are given out anew; what is known by those holds no more.
 */
function takeMade(progress: Progress, { id, slot }: ReportJob): Progress {
  if (slot === undefined || (isMade(progress.made, slot.slot) && id <= progress.lastReport)) return progress;
  return {
    ...progress,
    made: addSlot(progress.made, slot.slot),
    lastReport: id,
    endedReport: Math.min(progress.endedReport, id - 1),
  };
}

/**
 * Takes in how a request has ended. A change feed goes on from the place of its last success. It stops when a request
 * cannot be made as it was ordered: no later one could, which would ask for the same rows and more.
 */
function takeEnd(schedule: Schedule, progress: Progress, job: ReportJob): Progress {
  if (isInProgress(job) || job.id <= progress.endedReport) return progress;
  const ended: Progress = { ...progress, endedReport: job.id };
  if (schedule.sinceVersion === undefined) return ended;
  if (job.state === 'success' && job.basis !== undefined) return { ...ended, place: job.basis.nextSinceVersion };
  if (job.state !== 'user_failed') return ended;
  const reason = `export ${job.id} failed: ${job.error ?? ''}`;
  return { ...ended, stopped: { reason, resumes: schedule.resumes } };
}

/**
 * How far a schedule has come, with what its requests say, oldest first; the same object when they say nothing new.
 * A schedule has one request in progress at a time, so that they end in the order in which they were made.
 */
export function settleProgress(schedule: Schedule, progress: Progress, jobs: readonly ReportJob[]): Progress {
  return jobs.reduce((known, job) => takeEnd(schedule, takeMade(known, job), job), progress);
}

/** Whether a progress has all that a request has to say: it may then go. */
export function isSettled({ made, endedReport }: Progress, { id, slot }: ReportJob): boolean {
  return slot === undefined || (isMade(made, slot.slot) && id <= endedReport);
}
