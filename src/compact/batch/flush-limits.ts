import type { Batch, BatchLimits } from './pull-batch.ts';

/** Time that a pull needs for messages that are already in the stream, ms. */
const minMs = 500;

/**
 * Creates the limits. The oldest message is at most as old as the end of the last pull that emptied the stream: the
 * broker's clock is not needed. Messages from before the start are flushed at once.
 */
export function createFlushLimits(
  limits: { readonly bytes: number; readonly rows: number; readonly ageMs: number },
  monotonicMs: () => number = () => performance.now(),
) {
  let [maxBytes, isIsolating] = [limits.bytes, false];
  let [emptyAtMs, flushMs] = [-Infinity, 0];
  return {
    next(): BatchLimits {
      // If flushes are slow, half of the age remains to collect events.
      const ageMs = limits.ageMs - Math.min(flushMs, limits.ageMs / 2);
      const leftMs = Math.min(limits.ageMs, Math.max(minMs, emptyAtMs + ageMs - monotonicMs()));
      return { maxBytes, maxRows: limits.rows, maxAgeMs: leftMs };
    },
    /** One message exceeded the memory: the next flush searches it for oversized events. */
    isolate: () => isIsolating,
    /** Records the end of a pull. `isAll`: it emptied the stream, so that following messages are newer. */
    pulled(isAll: boolean) {
      if (isAll) emptyAtMs = monotonicMs();
    },
    /** Records that a batch exceeded the memory: the next has half its bytes, at least one message. */
    ranOut({ bytes, messages }: Pick<Batch, 'bytes' | 'messages'>) {
      maxBytes = Math.max(1, Math.floor(bytes / 2));
      isIsolating = messages === 1;
    },
    /** Records a commit. `durationMs`: since the end of the pull. */
    flushed(durationMs: number) {
      maxBytes = Math.min(limits.bytes, maxBytes * 2);
      isIsolating = false;
      flushMs = durationMs;
    },
  };
}

export type FlushLimits = ReturnType<typeof createFlushLimits>;
