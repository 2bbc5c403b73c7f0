import { getPriority, setPriority } from 'node:os';
import { answerQuestion } from './data/answer-question.ts';
import { runExport } from './run-export.ts';
import { isDataPlan, type DataOutcome, type DataPlan } from '../jobs/data-messages.ts';
import { isLookPlan, type LookOutcome, type LookPlan } from '../jobs/look-messages.ts';
import { runLook } from './looks/run-look.ts';
import type { WorkerMessage, WorkerPlan } from '../jobs/worker-messages.ts';

/**
 * The export worker's entry: one process, one attempt of one request, one look at an export before it is ordered, or one question after data. It gets its plan as its first message, answers
 * with progress and one outcome, and ends when its parent has let go of the channel. When the parent dies the worker
 * dies with it, at once: the next parent starts the attempt anew, in another folder.
 *
 * In: the plan (jobs/worker-messages.ts, jobs/look-messages.ts, jobs/data-messages.ts); one snapshot of the lake. Out: the result's files in the
 * attempt's folder; of a look or a question nothing but its answer.
 * Invariant: the engine reads the table's folder and writes the attempt's, and nothing else; what the files hold is
 * counted against the query's rows; `done` is sent when they are durable.
 * Crash: the folder of the attempt, for the parent to remove.
 */

/** Exports give way to import: by so much more niceness than the service has, which ends at 19. */
const niceness = 5;
const mostNiceness = 19;

function send(message: WorkerMessage | LookOutcome | DataOutcome): void {
  process.send?.(message, undefined, undefined, () => undefined);
}

function work(plan: LookPlan | WorkerPlan | DataPlan): Promise<WorkerMessage | LookOutcome | DataOutcome> {
  if (isDataPlan(plan)) return answerQuestion(plan);
  return isLookPlan(plan) ? runLook(plan) : runExport(plan, (percent) => send({ kind: 'progress', percent }));
}

// Upwards only: an ordinary user may not take niceness back.
setPriority(Math.min(mostNiceness, getPriority() + niceness));
// DuckDB's threads may be busy in the middle of a query: only SIGKILL ends them without waiting.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
process.once('message', (message) => {
  const plan = message as LookPlan | WorkerPlan | DataPlan;
  void work(plan).then(send);
});
