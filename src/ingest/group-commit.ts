import { isAppError, describeError } from '../runtime/errors.ts';
import type { Logger } from '../runtime/logger.ts';
import { pause } from '../runtime/async/retry.ts';
import { maxMessageBytes, type StreamPublisher } from '../stream/stream.ts';
import type { Trouble } from './trouble.ts';

/**
 * What became of an append. `stored`: fsynced in the stream. `refused`: not stored, and will not be. `unknown`: no
 * answer came in time, the events may be stored.
 */
export type AppendOutcome =
  { readonly state: 'stored' } | { readonly state: 'refused' | 'unknown'; readonly detail: string };

export interface GroupCommitOptions {
  /** Most bytes that wait for their group; beyond it an append is refused at once. */
  readonly maxWaitingBytes: number;
  /** Every append is answered within this time. */
  readonly answerWithinMs: number;
}

/** Numbers of one group, told when its PubAck is in. */
export interface GroupFigures {
  readonly appends: number;
  readonly bytes: number;
  readonly tookMs: number;
}

/** Collects the lines of many requests into few messages: one group is on its way, the rest waits for the next. */
export interface GroupCommit {
  /** Adds the lines of one request (NDJSON, at most one message's size); answers when they are durable, or why not. */
  append(lines: Buffer): Promise<AppendOutcome>;
  waitingBytes(): number;
  /** Refuses what comes from now on, and returns when everything taken has its answer. */
  drain(): Promise<void>;
}

export interface GroupCommitDependencies {
  readonly publisher: StreamPublisher;
  readonly logger: Logger;
  readonly onGroup: (figures: GroupFigures) => void;
  /**
   * Says that the stream's disk has come down to its reserve: appends are then refused, while there is still room to
   * work.
   */
  readonly isDiskLow: () => boolean;
  /** Told why appends are refused. */
  readonly trouble: Trouble;
}

interface Entry {
  readonly lines: Buffer;
  /** When its answer is due, on the monotonic clock. */
  readonly dueMs: number;
  readonly settle: (outcome: AppendOutcome) => void;
}

/** A group is not sent when its first member has less time left than this: its answer would hardly come in time. */
const minPublishMs = 250;
const pingTimeoutMs = 500;
/** Pause between attempts while the broker does not take messages. */
const retryPauseMs = 50;

const stored: AppendOutcome = { state: 'stored' };

/**
 * Creates the group commit of one process. A group's message stays below the stream's limit; while it is on its way,
 * whatever arrives waits, which needs no timer and costs a lone client nothing. After a publish without an answer, or
 * with the broker away, nothing is sent until a ping comes back; what waits is refused when its time is over.
 */
export function createGroupCommit(dependencies: GroupCommitDependencies, options: GroupCommitOptions): GroupCommit {
  const { publisher, logger, trouble } = dependencies;
  let waiting: Entry[] = [];
  let waitingBytes = 0;
  let stalled = false;
  /** The newest group was confirmed: the first that is not is worth a line in the log. */
  let confirmed = true;
  const draining = new AbortController();
  let loop: Promise<void> | undefined;
  let expiry: NodeJS.Timeout | undefined;

  /** Takes entries off the front while `fits` says so. */
  function takeWhile(fits: (entry: Entry) => boolean): Entry[] {
    let count = 0;
    for (let entry = waiting[0]; entry !== undefined && fits(entry); entry = waiting[count]) {
      waitingBytes -= entry.lines.length;
      count += 1;
    }
    return waiting.splice(0, count);
  }

  /** Refuses what has waited too long to be published still. Entries are in the order of their due times. */
  function refuseLate(): void {
    const nowMs = performance.now();
    for (const entry of takeWhile(({ dueMs }) => dueMs - nowMs < minPublishMs)) {
      if (!stalled) trouble.note('crowded');
      entry.settle({ state: 'refused', detail: 'not stored: the broker did not take it in time' });
    }
  }

  function armExpiry(): void {
    const [first] = waiting;
    if (first === undefined || expiry !== undefined) return;
    expiry = setTimeout(
      () => {
        expiry = undefined;
        refuseLate();
        armExpiry();
      },
      Math.max(0, first.dueMs - minPublishMs - performance.now()),
    );
  }

  function takeGroup(): Entry[] {
    let bytes = 0;
    return takeWhile(({ lines }) => (bytes += lines.length) <= maxMessageBytes);
  }

  function putBack(group: Entry[]): void {
    waiting = [...group, ...waiting];
    for (const entry of group) waitingBytes += entry.lines.length;
  }

  async function publish(group: Entry[]): Promise<void> {
    const payload =
      group.length === 1 && group[0] !== undefined ? group[0].lines : Buffer.concat(group.map((entry) => entry.lines));
    const startedMs = performance.now();
    try {
      await publisher.publish(payload, (group[0]?.dueMs ?? startedMs) - startedMs);
    } catch (error) {
      const full = isAppError(error, 'stream_full');
      // What keeps the stream shut is told by its guard.
      const shut = isAppError(error, 'stream_shut');
      const away = shut || isAppError(error, 'broker_away');
      // What the broker does not allow is told by the pulse of the connection; trying again at once would not help.
      const refused = isAppError(error, 'broker_refused');
      stalled = !full && !refused;
      if (!shut && !refused) trouble.note(full ? 'full' : away ? 'away' : 'unconfirmed');
      logger[confirmed ? 'warn' : 'debug'](
        { appends: group.length, bytes: payload.length, error: describeError(error) },
        'group not confirmed',
      );
      confirmed = false;
      // Surely not stored, so it may be tried again while its time lasts.
      if (away) return putBack(group);
      const outcome: AppendOutcome =
        full || refused
          ? { state: 'refused', detail: full ? 'not stored: the stream is full' : 'not stored: the broker refuses it' }
          : { state: 'unknown', detail: 'unknown: the broker did not answer in time' };
      for (const entry of group) entry.settle(outcome);
      return;
    }
    confirmed = true;
    trouble.stored();
    for (const entry of group) entry.settle(stored);
    dependencies.onGroup({ appends: group.length, bytes: payload.length, tookMs: performance.now() - startedMs });
  }

  async function probe(): Promise<void> {
    await pause(retryPauseMs);
    try {
      await publisher.ping(pingTimeoutMs);
      stalled = false;
      trouble.answered();
    } catch {
      // The next turn tries again.
      trouble.note('away');
    }
  }

  async function run(): Promise<void> {
    // Requests that the same turn of the event loop brings belong into the same group.
    await new Promise((resolve) => setImmediate(resolve));
    // Goes on until the broker is back, also with nothing to send: the next request must not be the one to find out.
    while (waiting.length > 0 || (stalled && !draining.signal.aborted)) {
      if (stalled) await probe();
      refuseLate();
      const group = stalled ? [] : takeGroup();
      if (group.length > 0) await publish(group);
    }
    loop = undefined;
  }

  return {
    append(lines) {
      if (draining.signal.aborted)
        return Promise.resolve({ state: 'refused', detail: 'not stored: the service is stopping' });
      if (dependencies.isDiskLow())
        return Promise.resolve({ state: 'refused', detail: 'not stored: the disk has come down to its reserve' });
      if (waitingBytes + lines.length > options.maxWaitingBytes) {
        trouble.note('crowded');
        return Promise.resolve({ state: 'refused', detail: 'not stored: too many events wait for the broker' });
      }
      return new Promise((settle) => {
        waiting.push({ lines, dueMs: performance.now() + options.answerWithinMs, settle });
        waitingBytes += lines.length;
        armExpiry();
        loop ??= run();
      });
    },
    waitingBytes: () => waitingBytes,
    async drain() {
      draining.abort();
      await loop;
      clearTimeout(expiry);
    },
  };
}
