import type { Batch, BatchLimits } from './pull-batch.ts';

/**
 * How much is taken in at once, and how long it may wait for more.
 *
 * Bytes: as many as were asked for, fewer while the engine has no memory for them. Age: counts from the oldest message, and
 * what the flush itself takes counts as well, since an event is to be in the lake when the flush age is over.
 */
export interface FlushLimits {
  /** The limits of the next batch. */
  next(): BatchLimits;
  /** One message alone was too much: the next flush looks for the events of it that are. */
  isolate(): boolean;
  /** Told when a pull has ended. `isAll`: it has brought everything there was, so what comes next is newer. */
  pulled(isAll: boolean): void;
  /** The engine ran out of memory over a batch: the next has half as many bytes, down to one message. */
  ranOut(batch: Pick<Batch, 'bytes' | 'messages'>): void;
  /** A batch went into the lake. `durationMs`: from the end of its pull on. */
  flushed(durationMs: number): void;
}

/** A pull needs a moment to bring what waits in the stream already. */
const leastMs = 500;

/**
 * Creates the limits. The oldest message is no older than the end of the pull that has left nothing behind: times of the
 * broker's clock are not needed, which need not be that of this machine. What waits at the start may be of any age, and is
 * taken in at once.
 */
export function createFlushLimits(
  most: { readonly bytes: number; readonly rows: number; readonly ageMs: number },
  monotonicMs: () => number = () => performance.now(),
): FlushLimits {
  let [maxBytes, isIsolating] = [most.bytes, false];
  let [emptyAtMs, flushMs] = [-Infinity, 0];
  return {
    next() {
      // A flush that takes longer than half of its age is better off with more events in it.
      const ageMs = most.ageMs - Math.min(flushMs, most.ageMs / 2);
      const leftMs = Math.min(most.ageMs, Math.max(leastMs, emptyAtMs + ageMs - monotonicMs()));
      return { maxBytes, maxRows: most.rows, maxAgeMs: leftMs };
    },
    isolate: () => isIsolating,
    pulled(isAll) {
      if (isAll) emptyAtMs = monotonicMs();
    },
    ranOut({ bytes, messages }) {
      maxBytes = Math.max(1, Math.floor(bytes / 2));
      isIsolating = messages === 1;
    },
    flushed(durationMs) {
      maxBytes = Math.min(most.bytes, maxBytes * 2);
      isIsolating = false;
      flushMs = durationMs;
    },
  };
}
