import { runExport } from '../../src/export/worker/run-export.ts';
import type { WorkerPlan } from '../../src/export/jobs/worker-messages.ts';
import type { AttemptOutcome, WorkerOptions } from '../../src/export/jobs/worker-process.ts';

/**
 * Runs an attempt as `runInWorker` does, in this process: the same query on the same engine into the same files. For
 * tests of hundreds of requests, which would spend most time on process starts. Other tests cover the process itself
 * (limits, kills, leftovers). An attempt cannot be aborted here, and has no time limit.
 */
export async function runHere(plan: WorkerPlan, options: WorkerOptions): Promise<AttemptOutcome> {
  return await runExport(plan, options.onPercent);
}
