import type { Batch } from './pull-batch.ts';

/**
 * How many bytes of event lines are flushed at once: as many as were asked for, fewer while the engine has no memory
 * for them.
 */
export interface BatchBound {
  readonly maxBytes: number;
  /** One message alone was too much: the next flush looks for the events of it that are. */
  readonly isolate: boolean;
  /** A batch went into the lake. */
  passed(): void;
  /** The engine ran out of memory over a batch: the next has half as many bytes, down to one message. */
  ranOut(batch: Batch): void;
}

/** Creates the bound at its most, bytes. */
export function createBatchBound(mostBytes: number): BatchBound {
  let [maxBytes, isolate] = [mostBytes, false];
  return {
    get maxBytes() {
      return maxBytes;
    },
    get isolate() {
      return isolate;
    },
    passed() {
      maxBytes = Math.min(mostBytes, maxBytes * 2);
      isolate = false;
    },
    ranOut({ bytes, messages }) {
      maxBytes = Math.max(1, Math.floor(bytes / 2));
      isolate = messages === 1;
    },
  };
}
