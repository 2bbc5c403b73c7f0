import { pause } from '../../runtime/async/retry.ts';
import type { ReadPlan } from '../jobs/worker-messages.ts';
import type { QueryEngine } from './query-engine.ts';

const watchEveryMs = 200;
/** What the process may take beside DuckDB's buffers before it is ended: the buffer limit does not bind everything. */
const memorySlackBytes = 768 * 1024 * 1024;

/** The request asks for more than the limits allow: shown to the user, and never tried again. */
export class LimitError extends Error {}

export const tooManyBytes = 'Too many bytes in export';

/** What a statement is watched for. */
export interface WatchedJob {
  readonly plan: ReadPlan;
  /** How many bytes it has written of the result. */
  readonly writtenBytes: () => Promise<number>;
}

/** What else may go wrong while it runs; undefined while nothing has. */
type FindFault = () => unknown;

/** Takes the share of the work that is done, 0 to 1. */
export type OnShare = (share: number) => void;

/**
 * Runs a statement while watching its progress, the size of its output, the memory of the process, and for a fault of
 * what is made of its output meanwhile.
 */
export async function watch<T>(
  engine: Pick<QueryEngine, 'progress' | 'interrupt'>,
  { plan, writtenBytes }: WatchedJob,
  onShare: OnShare,
  statement: Promise<T>,
  findFault: FindFault = () => undefined,
): Promise<T> {
  let stopped: unknown;
  const ended = new AbortController();
  const memoryLimit = plan.limits.memoryMb * 1024 * 1024 + memorySlackBytes;
  async function look(): Promise<void> {
    onShare(engine.progress());
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
      await look().catch(() => undefined);
    }
  }
  void lookOn();
  try {
    const result = await statement;
    if (stopped !== undefined) throw stopped;
    return result;
  } catch (error) {
    // The statement may have ended for the fault before anybody looked.
    throw stopped ?? findFault() ?? error;
  } finally {
    ended.abort();
  }
}
