import { isAppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { pause } from '../runtime/async/retry.ts';
import type { ReceiptStatement, Receipt } from '../receipts/receipt.ts';
import type { Span } from '../runtime/tracing/tracing.ts';
import { type PublishAck, type StreamPublisher, maxMessageBytes } from '../stream/stream.ts';
import type { SignReceipts } from './receipts.ts';
import type { UnavailabilityCause, Unavailability } from './unavailability.ts';

/** The result of an append. `refused`: not stored, and never will be. `unknown`: no response in time; may be stored. */
type AppendOutcome =
  | { readonly state: 'stored'; readonly receipt?: Receipt | undefined }
  | { readonly state: 'refused' | 'unknown'; readonly detail: string };

/** The lines of one request, until their group is confirmed. */
interface Append {
  readonly lines: Buffer;
  /** Content of the receipt; absent if the client asks for none. */
  readonly receiptStatement?: ReceiptStatement | undefined;
  /** Span of its request; absent unless the request is traced. */
  readonly span?: Span | undefined;
  /** When the response is due, on the monotonic clock. */
  readonly dueMs: number;
  readonly settle: (outcome: AppendOutcome) => void;
}

/** Time that a group needs before its first member is due, ms: less would hardly suffice. */
const minPublishMs = 250;

type AppendQueue = ReturnType<typeof createAppendQueue>;

/** Creates the queue of appends by due time. Late ones go to `onLate`. The caller bounds its size. */
function createAppendQueue(onLate: (append: Append) => void) {
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

  function rejectExpired(): void {
    const nowMs = performance.now();
    for (const append of takeWhile(({ dueMs }) => dueMs - nowMs < minPublishMs)) onLate(append);
  }

  function armTimer(): void {
    const [first] = waiting;
    if (first === undefined || timer !== undefined) return;
    timer = setTimeout(
      () => {
        timer = undefined;
        rejectExpired();
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
    dequeueGroup(): Append[] {
      let bytes = 0;
      return takeWhile(({ lines }) => (bytes += lines.length) <= maxMessageBytes);
    },
    /** Puts a group that was not stored back to the front. */
    requeue(group: readonly Append[]): void {
      waiting = [...group, ...waiting];
      for (const { lines } of group) waitingBytes += lines.length;
    },
    rejectExpired,
    isEmpty: () => waiting.length === 0,
    bytes: () => waitingBytes,
    close: () => clearTimeout(timer),
  };
}

interface GroupCommitOptions {
  /** Limits the bytes that wait for their group; an append beyond it is refused at once. */
  readonly maxWaitingBytes: number;
  /** Time within which every append gets a response, ms. */
  readonly answerWithinMs: number;
}

/** Figures of one confirmed group. */
export interface CommitGroupStats {
  readonly appends: number;
  /** Size of the lines, bytes. */
  readonly bytes: number;
  /** Size of the message in the stream, bytes: less than `bytes` if it is compressed. */
  readonly storedBytes: number;
  readonly tookMs: number;
}

interface GroupCommitDependencies {
  readonly publisher: StreamPublisher;
  readonly logger: Logger;
  readonly onGroup: (figures: CommitGroupStats) => void;
  /** Reports whether the stream's disk is down to its reserve: appends are refused while there is space to work. */
  readonly isDiskLow: () => boolean;
  /** Signs the receipts of a stored group; absent if none are given. */
  readonly signReceipts?: SignReceipts | undefined;
  readonly unavailability: Unavailability;
}

const pingTimeoutMs = 500;
/** Delay between attempts while the broker takes no messages, ms. */
const retryPauseMs = 50;

const stored: AppendOutcome = { state: 'stored' };

const refused = (why: string): AppendOutcome => ({ state: 'refused', detail: `not stored: ${why}` });

/** The meaning of a failed publish for its group and for the next. */
interface PublishFailure {
  /** The cause to report; absent if the guard of the stream, or the broker ping, reports it. */
  readonly cause?: UnavailabilityCause;
  /** Whether nothing more is sent until the broker answers a ping. */
  readonly stalls: boolean;
  /** Outcome of the appends; absent if they are surely not stored and may be sent again in time. */
  readonly outcome?: AppendOutcome;
}

function judgeFailure(error: unknown): PublishFailure {
  if (isAppError(error, 'stream_full')) return { cause: 'full', stalls: false, outcome: refused('the stream is full') };
  // A retry at once would not help, and a ping would be answered.
  if (isAppError(error, 'broker_refused')) return { stalls: false, outcome: refused('the broker denies it') };
  if (isAppError(error, 'stream_shut')) return { stalls: true };
  if (isAppError(error, 'broker_away')) return { cause: 'away', stalls: true };
  const outcome: AppendOutcome = { state: 'unknown', detail: 'unknown: the broker did not answer in time' };
  return { cause: 'unconfirmed', stalls: true, outcome };
}

const hasStatements = (group: readonly Append[]): boolean =>
  group.some(({ receiptStatement }) => receiptStatement !== undefined);

interface GroupSpans {
  readonly traceparents: readonly string[];
  end(error?: string): void;
}

/** Starts a span of the publish for each traced request of a group; undefined without one. */
function startPublishSpans(group: readonly Append[], bytes: number): GroupSpans | undefined {
  const requests = group.flatMap(({ span }) => span ?? []);
  const spans = requests.map((span) => span.startChild('publish'));
  return {
    traceparents: requests.map(({ traceparent }) => traceparent),
    end(error) {
      for (const span of spans)
        span.end({ 'tributary.group.requests': group.length, 'tributary.group.bytes': bytes }, error);
    },
  };
}

const isTraced = ({ span }: Append): boolean => span !== undefined;

/** Creates the sender of groups, one at a time. */
function createGroupSender(dependencies: GroupCommitDependencies, room: AppendQueue) {
  const { publisher, logger, unavailability, onGroup, signReceipts = () => [] } = dependencies;
  let stalled = false;
  /** Whether the last group was confirmed: the next failure is logged as a warning. */
  let confirmed = true;

  function takeFailure(error: unknown, group: readonly Append[], bytes: number): void {
    const { cause, stalls, outcome } = judgeFailure(error);
    stalled = stalls;
    if (cause !== undefined) unavailability.record(cause);
    const level = confirmed ? 'warn' : 'debug';
    logger[level]({ appends: group.length, bytes, error: describeError(error) }, 'group not confirmed');
    confirmed = false;
    if (outcome === undefined) room.requeue(group);
    else for (const { settle } of group) settle(outcome);
  }

  /** Signs the receipts of a stored group; none after an error, since it is stored all the same. */
  function sign(group: readonly Append[], ack: PublishAck): ReturnType<SignReceipts> {
    try {
      return signReceipts(group, ack);
    } catch (error) {
      logger.error({ appends: group.length, error: describeError(error) }, 'cannot sign receipts of a group');
      return [];
    }
  }

  return {
    /** Reports whether `probe` must succeed before the next group. */
    isStalled: () => stalled,
    /** Publishes a group and settles its appends, or puts them back. */
    async send(group: readonly Append[]): Promise<void> {
      const [first] = group;
      const payload =
        group.length === 1 && first !== undefined ? first.lines : Buffer.concat(group.map(({ lines }) => lines));
      const startedMs = performance.now();
      const spans = group.some(isTraced) ? startPublishSpans(group, payload.length) : undefined;
      let ack: PublishAck;
      try {
        ack = await publisher.publish(payload, (first?.dueMs ?? startedMs) - startedMs, spans?.traceparents);
      } catch (error) {
        spans?.end(describeError(error));
        takeFailure(error, group, payload.length);
        return;
      }
      spans?.end();
      confirmed = true;
      unavailability.stored();
      const receipts = hasStatements(group) ? sign(group, ack) : undefined;
      for (const [index, { settle }] of group.entries())
        settle(receipts === undefined ? stored : { state: 'stored', receipt: receipts[index] });
      onGroup({
        appends: group.length,
        bytes: payload.length,
        storedBytes: ack.compressedBytes ?? payload.length,
        tookMs: performance.now() - startedMs,
      });
    },
    /** Pings the broker; after a response groups may be sent again. */
    async probe(): Promise<void> {
      await pause(retryPauseMs);
      try {
        await publisher.ping(pingTimeoutMs);
        stalled = false;
        unavailability.answered();
      } catch {
        unavailability.record('away');
      }
    },
  };
}

export type GroupCommit = ReturnType<typeof createGroupCommit>;

/**
 * Creates the group commit of a process: while one message is in flight, arriving requests form the next, without a
 * timer. After a publish without a response, nothing is sent until a ping returns; late requests are rejected.
 */
export function createGroupCommit(dependencies: GroupCommitDependencies, options: GroupCommitOptions) {
  const { unavailability, isDiskLow } = dependencies;
  const room = createAppendQueue(({ settle }) => {
    if (!sender.isStalled()) unavailability.record('crowded');
    settle(refused('the broker did not accept it in time'));
  });
  const sender = createGroupSender(dependencies, room);
  const draining = new AbortController();
  let loop: Promise<void> | undefined;

  async function run(): Promise<void> {
    // Requests of the same turn of the event loop belong to the same group.
    await new Promise((resolve) => setImmediate(resolve));
    // While stalled it also probes with nothing to send: the next request must not be the first to notice.
    while (!room.isEmpty() || (sender.isStalled() && !draining.signal.aborted)) {
      if (sender.isStalled()) await sender.probe();
      room.rejectExpired();
      const group = sender.isStalled() ? [] : room.dequeueGroup();
      if (group.length > 0) await sender.send(group);
    }
    loop = undefined;
  }

  function findRefusal(lines: Buffer): AppendOutcome | undefined {
    if (draining.signal.aborted) return refused('the service is stopping');
    if (isDiskLow()) return refused('free space on the disk is below the reserve');
    if (room.bytes() + lines.length > options.maxWaitingBytes) {
      unavailability.record('crowded');
      return refused('too many events wait for the broker');
    }
    return undefined;
  }

  return {
    /** Adds the lines of one request (NDJSON, at most one message); a statement asks for a receipt, a span is traced. */
    append(lines: Buffer, receiptStatement?: ReceiptStatement, span?: Span): Promise<AppendOutcome> {
      const refusal = findRefusal(lines);
      if (refusal !== undefined) return Promise.resolve(refusal);
      return new Promise((settle) => {
        room.add({ lines, receiptStatement, span, dueMs: performance.now() + options.answerWithinMs, settle });
        loop ??= run();
      });
    },
    waitingBytes: (): number => room.bytes(),
    /** Refuses new appends, and waits until all taken ones have a response. */
    async drain(): Promise<void> {
      draining.abort();
      await loop;
      room.close();
    },
  };
}
