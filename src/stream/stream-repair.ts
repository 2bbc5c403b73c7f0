import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import type { Problem } from '../runtime/conditions/problem.ts';
import { settleStream, type OwnerOptions } from './claim-stream.ts';
import type { Claim } from './lease.ts';

/** Puts the stream right while the service runs, and keeps what was done for the operator to look at. */
export interface StreamRepair {
  /** Takes the stream as it is when nothing is wrong with it: one that is made anew gets its operator's settings. */
  keep(info: StreamInfo): void;
  /**
   * Puts the stream right, or makes it anew where there is none. Does nothing when that was just tried, or when the
   * look at `seenMs` (`performance.now()`) is too old: an update replaces all settings at once. `what`: the notice.
   */
  mend(info: StreamInfo | undefined, claim: Claim, seenMs: number, what: string): Promise<void>;
  /** What was put right, newest last; only the last few. */
  notices(): readonly Problem[];
}

/** Between tries to put the stream right, when that did not help, milliseconds. */
const mendEveryMs = 1000;
/** An update that is sent later than this after the look it rests on could undo what another did meanwhile. */
const freshMs = 1000;
const newestNotices = 5;
const noticeTodo =
  'Find out who did it: what it removed from the stream before it was put right is gone, and the compactor reports what the lake misses.';

/** What a stream that is made anew keeps: its replicas, and what else the operator gave it. */
function operatorsSettings({ config }: StreamInfo): Partial<StreamInfo['config']> {
  const { num_replicas, placement, compression, description, metadata } = config;
  return JSON.parse(JSON.stringify({ num_replicas, placement, compression, description, metadata })) as Partial<
    StreamInfo['config']
  >;
}

/** Creates the repair of a stream that was claimed, which `claimed` is. */
export function createStreamRepair(
  manager: JetStreamManager,
  options: OwnerOptions,
  claimed: StreamInfo,
): StreamRepair {
  const { streamName, place, logger } = options;
  let last = claimed;
  let notices: readonly Problem[] = [];
  let nextMendMs = 0;
  return {
    keep(info) {
      last = info;
    },
    async mend(info, claim, seenMs, what) {
      const nowMs = performance.now();
      if (nowMs < nextMendMs || nowMs - seenMs > freshMs) return;
      nextMendMs = nowMs + mendEveryMs;
      const settled = await settleStream(manager, info, { ...claim, place }, options, operatorsSettings(last));
      if (settled === undefined) return;
      last = settled;
      const at = new Date().toISOString();
      const notice: Problem = { code: 'stream_mended', subject: at, what: `at ${at}: ${what}`, todo: noticeTodo };
      notices = [...notices, notice].slice(-newestNotices);
      logger.error({ stream: streamName }, what);
    },
    notices: () => notices,
  };
}
