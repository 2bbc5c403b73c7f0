/**
 * The export worker: a process for one attempt, estimate, preview or data query. Its first message is its plan.
 * It responds with progress and one outcome, and exits when its parent closes the channel or dies. The
 * next parent restarts the attempt in another folder.
 *
 * In: the plan (jobs/worker-messages.ts); one snapshot of the lake. Out: the files of an attempt in its folder; of other
 * plans only the outcome.
 * Invariant: the engine reads the table's folder and writes the attempt's; the rows of the files are compared with the
 * query's; `done` is sent after they are durable.
 * Crash: the attempt's folder is left, which the parent removes.
 */
import { getPriority, setPriority } from 'node:os';
import type { DataPlan, DryRunPlan, WorkerPlan } from '../jobs/worker-messages.ts';
import { runDataQuery } from './data/run-data-query.ts';
import { runDryRunJob } from './dry-run/run-dry-run.ts';
import { runExport } from './run-export.ts';
import type { S3FoldersOptions } from '../../runtime/store/s3-folders.ts';

/** Exports yield to import: niceness above the service's, which ends at 19. */
const niceness = 5;
const maxNiceness = 19;

function send(message: object): void {
  process.send?.(message, undefined, undefined, () => undefined);
}

type Plan = (DryRunPlan | WorkerPlan | DataPlan) & {
  /** The connection of the data folder to buckets, as JSON. */
  readonly connection?: string;
};

async function work(plan: Plan): Promise<object> {
  const { connection } = plan;
  if (connection !== undefined)
    await (
      await import('../../runtime/store/s3-folders.ts')
    ).connectS3Folders(JSON.parse(connection) as S3FoldersOptions);
  if ('question' in plan) return runDataQuery(plan);
  if ('look' in plan) return runDryRunJob(plan);
  return runExport(
    plan,
    (percent) => send({ kind: 'progress', percent }),
    (phase) => send({ kind: 'phase', phase }),
  );
}

// Upwards only: an ordinary user cannot lower niceness again.
setPriority(Math.min(maxNiceness, getPriority() + niceness));
// DuckDB's threads may be in the middle of a query: only SIGKILL ends them without waiting.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
process.once('message', (message) => void work(message as Plan).then(send));
