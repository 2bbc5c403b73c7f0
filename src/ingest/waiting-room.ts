import type { Receipt, Statement } from '../receipts/receipt.ts';
import { maxMessageBytes } from '../stream/stream.ts';

/**
 * The result of an append. `stored`: fsynced in the stream. `refused`: not stored, and never will be. `unknown`: no
 * answer came in time; the events may be stored.
 */
export type AppendOutcome =
  | { readonly state: 'stored'; readonly receipt?: Receipt | undefined }
  | { readonly state: 'refused' | 'unknown'; readonly detail: string };

/** The lines of one request, until their group is confirmed. */
export interface Append {
  readonly lines: Buffer;
  /** Content of the receipt; absent if the client asks for none. */
  readonly statement?: Statement | undefined;
  /** When the response is due, on the monotonic clock. */
  readonly dueMs: number;
  readonly settle: (outcome: AppendOutcome) => void;
}

/** Time that a group needs before its first member is due, ms: less would hardly bring the response in time. */
const minPublishMs = 250;

export type WaitingRoom = ReturnType<typeof createWaitingRoom>;

/**
 * Creates the queue of appends that wait for their group, in the order of their due times. Appends that can no longer
 * be answered in time go to `onLate`. The caller bounds its size.
 */
export function createWaitingRoom(onLate: (append: Append) => void) {
  let waiting: Append[] = [];
  let waitingBytes = 0;
  let timer: NodeJS.Timeout | undefined;

  function takeWhile(fits: (append: Append) => boolean): Append[] {
    let count = 0;
    for (let append = waiting[0]; append !== undefined && fits(append); append = waiting[count]) {
      waitingBytes -= append.lines.length;
      count += 1;
    }
    return waiting.splice(0, count);
  }

  function refuseLate(): void {
    const nowMs = performance.now();
    for (const append of takeWhile(({ dueMs }) => dueMs - nowMs < minPublishMs)) onLate(append);
  }

  function armTimer(): void {
    const [first] = waiting;
    if (first === undefined || timer !== undefined) return;
    timer = setTimeout(
      () => {
        timer = undefined;
        refuseLate();
        armTimer();
      },
      Math.max(0, first.dueMs - minPublishMs - performance.now()),
    );
  }

  return {
    add(append: Append): void {
      waiting.push(append);
      waitingBytes += append.lines.length;
      armTimer();
    },
    /** Removes and returns the oldest appends, as many as fit into one message. */
    takeGroup(): Append[] {
      let bytes = 0;
      return takeWhile(({ lines }) => (bytes += lines.length) <= maxMessageBytes);
    },
    /** Puts a group that was not stored back to the front. */
    putBack(group: readonly Append[]): void {
      waiting = [...group, ...waiting];
      for (const { lines } of group) waitingBytes += lines.length;
    },
    refuseLate,
    isEmpty: () => waiting.length === 0,
    bytes: () => waitingBytes,
    close: () => clearTimeout(timer),
  };
}
