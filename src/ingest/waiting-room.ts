import type { Receipt, Statement } from '../receipts/receipt.ts';
import { maxMessageBytes } from '../stream/stream.ts';

/**
 * What became of an append. `stored`: fsynced in the stream. `refused`: not stored, and will not be. `unknown`: no
 * answer came in time, the events may be stored.
 */
export type AppendOutcome =
  | { readonly state: 'stored'; readonly receipt?: Receipt | undefined }
  | { readonly state: 'refused' | 'unknown'; readonly detail: string };

/** The lines of one request, while they wait for their group and while it is on its way. */
export interface Append {
  readonly lines: Buffer;
  /** What its receipt is to say; absent: nobody asks for one. */
  readonly statement?: Statement | undefined;
  /** When its answer is due, on the monotonic clock. */
  readonly dueMs: number;
  readonly settle: (outcome: AppendOutcome) => void;
}

/** The appends that wait for their group, in the order of their due times. */
export interface WaitingRoom {
  add(append: Append): void;
  /** Takes the oldest appends, as many as fit into one message. */
  takeGroup(): Append[];
  /** Takes a group back that was not stored and may be sent again: it comes first. */
  putBack(group: readonly Append[]): void;
  /** Hands those that can no longer be answered in time to `onLate`; a timer does so too. */
  refuseLate(): void;
  isEmpty(): boolean;
  bytes(): number;
  /** Stops the timer. */
  close(): void;
}

/** A group is not sent when its first member has less time left than this: its answer would hardly come in time. */
const minPublishMs = 250;

/** Creates an empty waiting room. Its bound is the caller's to hold. */
export function createWaitingRoom(onLate: (append: Append) => void): WaitingRoom {
  let waiting: Append[] = [];
  let waitingBytes = 0;
  let timer: NodeJS.Timeout | undefined;

  /** Takes appends off the front while `fits` says so. */
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
    add(append) {
      waiting.push(append);
      waitingBytes += append.lines.length;
      armTimer();
    },
    takeGroup() {
      let bytes = 0;
      return takeWhile(({ lines }) => (bytes += lines.length) <= maxMessageBytes);
    },
    putBack(group) {
      waiting = [...group, ...waiting];
      for (const { lines } of group) waitingBytes += lines.length;
    },
    refuseLate,
    isEmpty: () => waiting.length === 0,
    bytes: () => waitingBytes,
    close: () => clearTimeout(timer),
  };
}
