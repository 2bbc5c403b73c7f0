import { isAppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { pause } from '../runtime/async/retry.ts';
import type { Statement } from '../receipts/receipt.ts';
import type { PublishAck, StreamPublisher } from '../stream/stream.ts';
import type { SignReceipts } from './receipts.ts';
import type { Cause, Trouble } from './trouble.ts';
import { createWaitingRoom, type Append, type AppendOutcome, type WaitingRoom } from './waiting-room.ts';

interface GroupCommitOptions {
  /** Most bytes that wait for their group; beyond it an append is refused at once. */
  readonly maxWaitingBytes: number;
  /** Every append is answered within this time. */
  readonly answerWithinMs: number;
}

/** Numbers of one group, reported when its PubAck is in. */
export interface GroupFigures {
  readonly appends: number;
  readonly bytes: number;
  readonly tookMs: number;
}

/** Collects the lines of many requests into few messages: one group is on its way, the rest waits for the next. */
export interface GroupCommit {
  /**
   * Adds the lines of one request (NDJSON, at most one message's size); answers when they are durable, or why not. With
   * a statement the answer has a receipt, where one can be signed.
   */
  append(lines: Buffer, statement?: Statement): Promise<AppendOutcome>;
  waitingBytes(): number;
  /** Refuses what comes from now on, and returns when everything taken has its answer. */
  drain(): Promise<void>;
}

interface GroupCommitDependencies {
  readonly publisher: StreamPublisher;
  readonly logger: Logger;
  readonly onGroup: (figures: GroupFigures) => void;
  /**
   * Says that the stream's disk has come down to its reserve: appends are then refused, while there is still room to
   * work.
   */
  readonly isDiskLow: () => boolean;
  /** Signs the receipts of a group that is stored; absent: none is given. */
  readonly signReceipts?: SignReceipts | undefined;
  /** Gets each cause for which appends are refused. */
  readonly trouble: Trouble;
}

const pingTimeoutMs = 500;
/** Pause between attempts while the broker does not take messages. */
const retryPauseMs = 50;

const stored: AppendOutcome = { state: 'stored' };

const refused = (why: string): AppendOutcome => ({ state: 'refused', detail: `not stored: ${why}` });

/** What a publish that failed means for its group and for the next. */
interface PublishFailure {
  /** The cause to report; absent where the guard of the stream, or the broker ping, reports it. */
  readonly cause?: Cause;
  /** Nothing more is sent until the broker answers a ping. */
  readonly stalls: boolean;
  /** What the appends are answered; absent: surely not stored, they may be sent again while their time lasts. */
  readonly outcome?: AppendOutcome;
}

function judgeFailure(error: unknown): PublishFailure {
  if (isAppError(error, 'stream_full')) return { cause: 'full', stalls: false, outcome: refused('the stream is full') };
  // Sending again at once would not help, and a ping would be answered.
  if (isAppError(error, 'broker_refused')) return { stalls: false, outcome: refused('the broker refuses it') };
  if (isAppError(error, 'stream_shut')) return { stalls: true };
  if (isAppError(error, 'broker_away')) return { cause: 'away', stalls: true };
  const outcome: AppendOutcome = { state: 'unknown', detail: 'unknown: the broker did not answer in time' };
  return { cause: 'unconfirmed', stalls: true, outcome };
}

const hasStatements = (group: readonly Append[]): boolean => group.some(({ statement }) => statement !== undefined);

/** Sends groups, one at a time, and knows whether the broker takes any. */
interface GroupSender {
  /** After a publish without an answer, or with the broker away: `probe` comes before the next group. */
  isStalled(): boolean;
  /** Publishes a group and settles its appends, or puts them back. */
  send(group: readonly Append[]): Promise<void>;
  /** Asks the broker for an answer; with one, groups may be sent again. */
  probe(): Promise<void>;
}

function createGroupSender(dependencies: GroupCommitDependencies, room: WaitingRoom): GroupSender {
  const { publisher, logger, trouble, onGroup, signReceipts = () => [] } = dependencies;
  let stalled = false;
  /** The newest group was confirmed: the first that is not is worth a line in the log. */
  let confirmed = true;

  function takeFailure(error: unknown, group: readonly Append[], bytes: number): void {
    const { cause, stalls, outcome } = judgeFailure(error);
    stalled = stalls;
    if (cause !== undefined) trouble.note(cause);
    const level = confirmed ? 'warn' : 'debug';
    logger[level]({ appends: group.length, bytes, error: describeError(error) }, 'group not confirmed');
    confirmed = false;
    if (outcome === undefined) room.putBack(group);
    else for (const { settle } of group) settle(outcome);
  }

  /** What is stored is answered so, with a receipt or without. */
  function sign(group: readonly Append[], ack: PublishAck): ReturnType<SignReceipts> {
    try {
      return signReceipts(group, ack);
    } catch (error) {
      logger.error({ appends: group.length, error: describeError(error) }, 'receipts of a group not signed');
      return [];
    }
  }

  return {
    isStalled: () => stalled,
    async send(group) {
      const [first] = group;
      const payload =
        group.length === 1 && first !== undefined ? first.lines : Buffer.concat(group.map(({ lines }) => lines));
      const startedMs = performance.now();
      let ack: PublishAck;
      try {
        ack = await publisher.publish(payload, (first?.dueMs ?? startedMs) - startedMs);
      } catch (error) {
        takeFailure(error, group, payload.length);
        return;
      }
      confirmed = true;
      trouble.stored();
      const receipts = hasStatements(group) ? sign(group, ack) : undefined;
      for (const [index, { settle }] of group.entries())
        settle(receipts === undefined ? stored : { state: 'stored', receipt: receipts[index] });
      onGroup({ appends: group.length, bytes: payload.length, tookMs: performance.now() - startedMs });
    },
    async probe() {
      await pause(retryPauseMs);
      try {
        await publisher.ping(pingTimeoutMs);
        stalled = false;
        trouble.answered();
      } catch {
        // The next turn tries again.
        trouble.note('away');
      }
    },
  };
}

/**
 * Creates the group commit of one process. A group's message stays below the stream's limit; while it is on its way,
 * whatever arrives waits, which needs no timer and costs a lone client nothing. After a publish without an answer, or
 * with the broker away, nothing is sent until a ping comes back; what waits is refused when its time is over.
 */
export function createGroupCommit(dependencies: GroupCommitDependencies, options: GroupCommitOptions): GroupCommit {
  const { trouble, isDiskLow } = dependencies;
  const room = createWaitingRoom(({ settle }) => {
    if (!sender.isStalled()) trouble.note('crowded');
    settle(refused('the broker did not take it in time'));
  });
  const sender = createGroupSender(dependencies, room);
  const draining = new AbortController();
  let loop: Promise<void> | undefined;

  async function run(): Promise<void> {
    // Requests that the same turn of the event loop brings belong into the same group.
    await new Promise((resolve) => setImmediate(resolve));
    // Goes on until the broker is back, also with nothing to send: the next request must not be the one to find out.
    while (!room.isEmpty() || (sender.isStalled() && !draining.signal.aborted)) {
      if (sender.isStalled()) await sender.probe();
      room.refuseLate();
      const group = sender.isStalled() ? [] : room.takeGroup();
      if (group.length > 0) await sender.send(group);
    }
    loop = undefined;
  }

  function findRefusal(lines: Buffer): AppendOutcome | undefined {
    if (draining.signal.aborted) return refused('the service is stopping');
    if (isDiskLow()) return refused('the disk has come down to its reserve');
    if (room.bytes() + lines.length > options.maxWaitingBytes) {
      trouble.note('crowded');
      return refused('too many events wait for the broker');
    }
    return undefined;
  }

  return {
    append(lines, statement) {
      const refusal = findRefusal(lines);
      if (refusal !== undefined) return Promise.resolve(refusal);
      return new Promise((settle) => {
        room.add({ lines, statement, dueMs: performance.now() + options.answerWithinMs, settle });
        loop ??= run();
      });
    },
    waitingBytes: () => room.bytes(),
    async drain() {
      draining.abort();
      await loop;
      room.close();
    },
  };
}
