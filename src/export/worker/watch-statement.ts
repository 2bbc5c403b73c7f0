import { pause } from '../../runtime/async/retry.ts';
import type { ReadPlan } from '../jobs/worker-messages.ts';
import type { QueryEngine } from './query-engine.ts';

const watchEveryMs = 200;
/** Memory of the process in addition to DuckDB's limit, which does not cover everything. */
const memorySlackBytes = 768 * 1024 * 1024;

/** The request exceeds a limit: shown to its user, never retried. */
export class LimitError extends Error {}

export const tooManyBytes = 'Too many bytes in export';

export interface WatchedJob {
  readonly plan: ReadPlan;
  /** Counts the bytes of the result that were written. */
  readonly writtenBytes: () => Promise<number>;
}

type FindFault = () => unknown;

export type OnProgress = (share: number) => void;

/** Runs a statement and watches its progress, output size, process memory, and faults of the result's files. */
export async function runWatched<T>(
  engine: Pick<QueryEngine, 'progress' | 'interrupt'>,
  { plan, writtenBytes }: WatchedJob,
  onProgress: OnProgress,
  statement: Promise<T>,
  findFault: FindFault = () => undefined,
): Promise<T> {
  let stopped: unknown;
  const ended = new AbortController();
  const memoryLimit = plan.limits.memoryMb * 1024 * 1024 + memorySlackBytes;
  async function check(): Promise<void> {
    onProgress(engine.progress());
    stopped ??= findFault();
    if ((await writtenBytes()) > plan.limits.maxBytes) stopped ??= new LimitError(tooManyBytes);
    if (process.memoryUsage.rss() > memoryLimit)
      stopped ??= new Error(`the export needs more than ${memoryLimit} bytes of memory`);
    if (stopped !== undefined) engine.interrupt();
  }
  async function lookOn(): Promise<void> {
    for (;;) {
      await pause(watchEveryMs, ended.signal);
      if (ended.signal.aborted) return;
      await check().catch(() => undefined);
    }
  }
  void lookOn();
  try {
    const result = await statement;
    if (stopped !== undefined) throw stopped;
    return result;
  } catch (error) {
    // The statement may have failed by a fault that no check has seen.
    throw stopped ?? findFault() ?? error;
  } finally {
    ended.abort();
  }
}
