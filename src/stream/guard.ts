import { jetstreamManager, type StreamInfo } from '@nats-io/jetstream';
import { AppError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { wrapBrokerError } from './broker-errors.ts';
import { findClaim, findKeptClaim, judgeClaim, takenProblem } from './lease.ts';
import { whileConnected, type StreamConnection } from './connection.ts';
import { createLookFailures, hearChanges, judgeStream, type StreamVerdict } from './stream-verdict.ts';
import { eventSubject, streamName as unclaimedName } from './stream.ts';
import { findStream } from './topology.ts';

/** A permit to publish, valid for the stream configuration it was issued for. */
interface Leave {
  readonly stream: string;
  readonly subject: string;
  /** Absent for a stream that no service has claimed. */
  readonly streamId?: string;
  readonly changes: number;
}

/**
 * A check of whether a 200 may rest on the stream: its settings keep what is acknowledged, and it is still this
 * service's. Each process has its own.
 */
export interface StreamGuard {
  /** Issues a permit. Errors: `stream_shut` while the stream is unsafe, gone or another's; `broker_away` if unknown. */
  enter(): Leave;
  /** Reports, after an ack, whether the stream has not changed since the permit. */
  holds(leave: Leave): Promise<boolean>;
  /** Throws `stream_shut` if the stream is another's, whose messages must not be read or purged. */
  assertOwner(info: StreamInfo): Promise<void>;
}

export interface OpenGuard extends StreamGuard, Stoppable {
  problems(): readonly Problem[];
}

interface GuardOptions {
  readonly streamName: string;
  /** File of the data folder's claim; the supervisor keeps it. */
  readonly claimFile: string;
  readonly logger: Logger;
}

/** Pause between looks, by the verdict, ms. */
const lookEveryMs = { open: 2000, shut: 250, unknown: 50 } as const;
/** Pause while all is well and the broker announces changes, ms: the look only catches a lost announcement. */
const lookBesideMs = 5000;

/** The guard of a stream that no service has claimed: tests, and work on a broker of its own. */
export const noGuard: StreamGuard = {
  enter: () => ({ stream: unclaimedName, subject: eventSubject, changes: 0 }),
  holds: () => Promise.resolve(true),
  assertOwner: () => Promise.resolve(),
};

/** Opens the guard; returns after one look. Errors: `broker_away`, `broker_unsafe`. */
export async function openGuard(connection: StreamConnection, options: GuardOptions): Promise<OpenGuard> {
  const { streamName, claimFile, logger } = options;
  const manager = await jetstreamManager(connection.nats).catch((error: unknown) => {
    throw wrapBrokerError(error, 'open the stream');
  });
  const failures = createLookFailures(streamName, logger);
  let verdict: StreamVerdict = { kind: 'unknown' };
  let changes = 0;
  /** Why the broker refuses to show the stream. */
  let refused: Problem | undefined;
  let wake: (() => void) | undefined;

  async function look(): Promise<void> {
    const asOf = changes;
    const info = await whileConnected(connection, 'look at the stream', () => findStream(manager, streamName));
    const seen = await judgeStream(info, streamName, claimFile);
    // A change came meanwhile: what was seen may be older.
    if (asOf === changes) verdict = seen;
  }

  const heard = await hearChanges(connection, streamName, () => {
    changes += 1;
    if (verdict.kind === 'open') verdict = { kind: 'unknown' };
    wake?.();
  });
  await look().catch((error: unknown) => {
    heard.stop();
    throw wrapBrokerError(error, 'look at the stream');
  });
  const loop = startPollLoop(
    async () => {
      await look();
      failures.clear();
      refused = undefined;
    },
    {
      everyMs: () => (verdict.kind === 'open' && heard.heard() ? lookBesideMs : lookEveryMs[verdict.kind]),
      onError: (error) => void (refused = failures.record(error)),
    },
  );
  wake = () => loop.wake();

  return {
    enter() {
      if (verdict.kind === 'shut')
        throw new AppError('stream_shut', verdict.problem.what, { hint: verdict.problem.todo });
      if (verdict.kind === 'unknown')
        throw new AppError('broker_away', 'the stream has changed, its settings are being looked at');
      const { subject, streamId } = verdict;
      return { stream: streamName, subject, streamId, changes };
    },
    async holds(leave) {
      // Without advisories only a look after the ack shows a change.
      const isSeen =
        heard.heard() ||
        (await look().then(
          () => true,
          () => false,
        ));
      return isSeen && leave.changes === changes && verdict.kind === 'open' && verdict.subject === leave.subject;
    },
    async assertOwner({ config }) {
      const own = await findKeptClaim(claimFile);
      const found = findClaim(config.metadata);
      if (own === undefined || found === undefined)
        throw new AppError('stream_shut', `the stream ${streamName} is not claimed by this service yet`);
      if (judgeClaim(found, own) === 'ours') return;
      const problem = takenProblem(streamName, found);
      throw new AppError('stream_shut', problem.what, { hint: problem.todo });
    },
    problems() {
      if (verdict.kind === 'shut') return [verdict.problem];
      // The watch of the connection reports a missing right.
      return refused === undefined || connection.refusal() !== undefined ? [] : [refused];
    },
    async stop() {
      const stopped = loop.stop();
      heard.stop();
      await stopped;
    },
  };
}
