import { getPriority, setPriority } from 'node:os';
import { runExport } from './run-export.ts';
import type { WorkerMessage, WorkerPlan } from '../jobs/worker-messages.ts';

/**
 * The export worker's entry: one process, one attempt of one request. It gets its plan as its first message, answers
 * with progress and one outcome, and ends when its parent has let go of the channel. When the parent dies the worker
 * dies with it, at once: the next parent starts the attempt anew, in another folder.
 *
 * In: the plan (jobs/worker-messages.ts); one snapshot of the lake. Out: the result's files in the attempt's folder.
 * Invariant: the engine reads the table's folder and writes the attempt's, and nothing else; what the files hold is
 * counted against the query's rows; `done` is sent when they are durable.
 * Crash: the folder of the attempt, for the parent to remove.
 */

/** Exports give way to import: by so much more niceness than the service has, which ends at 19. */
const niceness = 5;
const mostNiceness = 19;

function send(message: WorkerMessage): void {
  process.send?.(message, undefined, undefined, () => undefined);
}

// Upwards only: an ordinary user may not take niceness back.
setPriority(Math.min(mostNiceness, getPriority() + niceness));
// DuckDB's threads may be busy in the middle of a query: only SIGKILL ends them without waiting.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
process.once('message', (plan) => {
  void runExport(plan as WorkerPlan, (percent) => send({ kind: 'progress', percent })).then(send);
});
