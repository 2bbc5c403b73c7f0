import { jetstreamManager, type JetStreamManager, type StreamInfo } from '@nats-io/jetstream';
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

/** Leave to publish, as of one moment. */
interface Leave {
  readonly stream: string;
  readonly subject: string;
  /** Absent for a stream that no service has claimed. */
  readonly streamId?: string;
  readonly changes: number;
}

/**
 * Knows whether a 200 may rest on the stream: whether its settings keep what is acknowledged, and whether it is still
 * this service's. Each process has its own.
 */
export interface StreamGuard {
  /**
   * Gives leave to publish. Throws `stream_shut` while the stream is unsafe, gone or another's, `broker_away` while
   * that is not known.
   */
  enter(): Leave;
  /** Says, once a publish is acknowledged, whether the stream has not changed since the leave was given. */
  holds(leave: Leave): Promise<boolean>;
  /** Throws `stream_shut` when the stream is another's, whose messages are not to be taken or purged. */
  assertOwner(info: StreamInfo): Promise<void>;
}

/** A guard that looks by itself. */
export interface OpenGuard extends StreamGuard, Stoppable {
  problems(): readonly Problem[];
}

interface GuardOptions {
  readonly streamName: string;
  /** The file of the claim that the service of this data folder holds; its supervisor keeps it. */
  readonly claimFile: string;
  readonly logger: Logger;
}

/** Between looks while all is well, while something is wrong, and while nothing is known, milliseconds. */
const lookEveryMs = { open: 2000, shut: 250, unknown: 50 } as const;
/** While all is well and the broker announces what changes: the look only catches what an announcement has missed. */
const lookBesideMs = 5000;

/** Leave without conditions, for a stream that no service has claimed: tests, and what works on a broker of its own. */
export const noGuard: StreamGuard = {
  enter: () => ({ stream: unclaimedName, subject: eventSubject, changes: 0 }),
  holds: () => Promise.resolve(true),
  assertOwner: () => Promise.resolve(),
};

/** What was seen of the stream, as of its newest change. */
interface Observation {
  verdict(): StreamVerdict;
  /** How many changes there were so far. */
  changes(): number;
  recordChange(): void;
  /** Looks at the stream; what was seen before a change that came meanwhile is not taken over. */
  look(): Promise<void>;
}

function createObservation(
  connection: StreamConnection,
  manager: JetStreamManager,
  { streamName, claimFile }: GuardOptions,
): Observation {
  let verdict: StreamVerdict = { kind: 'unknown' };
  let changes = 0;
  return {
    verdict: () => verdict,
    changes: () => changes,
    recordChange() {
      changes += 1;
      if (verdict.kind === 'open') verdict = { kind: 'unknown' };
    },
    async look() {
      const asOf = changes;
      const info = await whileConnected(connection, 'look at the stream', () => findStream(manager, streamName));
      const seen = await judgeStream(info, streamName, claimFile);
      if (asOf === changes) verdict = seen;
    },
  };
}

/** Throws `stream_shut` unless the stream carries the claim that the data folder keeps. */
async function assertClaimed({ config }: StreamInfo, { streamName, claimFile }: GuardOptions): Promise<void> {
  const own = await findKeptClaim(claimFile);
  const found = findClaim(config.metadata);
  if (own === undefined || found === undefined)
    throw new AppError('stream_shut', `the stream ${streamName} is not claimed by this service yet`);
  if (judgeClaim(found, own) === 'ours') return;
  const problem = takenProblem(streamName, found);
  throw new AppError('stream_shut', problem.what, { hint: problem.todo });
}

/** Opens the guard over a connection; returns when it has looked once. Errors: `broker_away`, `broker_unsafe`. */
export async function openGuard(connection: StreamConnection, options: GuardOptions): Promise<OpenGuard> {
  const { streamName, logger } = options;
  const manager = await jetstreamManager(connection.nats).catch((error: unknown) => {
    throw wrapBrokerError(error, 'open the stream');
  });
  const observation = createObservation(connection, manager, options);
  const failures = createLookFailures(streamName, logger);
  /** What keeps the stream from being looked at, time and again. */
  let refused: Problem | undefined;
  let wake: (() => void) | undefined;
  const heard = await hearChanges(connection, streamName, () => {
    observation.recordChange();
    wake?.();
  });
  await observation.look().catch((error: unknown) => {
    heard.stop();
    throw wrapBrokerError(error, 'look at the stream');
  });
  const loop = startPollLoop(
    async () => {
      await observation.look();
      failures.clear();
      refused = undefined;
    },
    {
      everyMs() {
        const { kind } = observation.verdict();
        return kind === 'open' && heard.heard() ? lookBesideMs : lookEveryMs[kind];
      },
      onError(error) {
        refused = failures.record(error);
      },
    },
  );
  wake = () => loop.wake();

  return {
    enter() {
      const verdict = observation.verdict();
      if (verdict.kind === 'shut')
        throw new AppError('stream_shut', verdict.problem.what, { hint: verdict.problem.todo });
      if (verdict.kind === 'unknown')
        throw new AppError('broker_away', 'the stream has changed, its settings are being looked at');
      const { subject, streamId } = verdict;
      return { stream: streamName, subject, streamId, changes: observation.changes() };
    },
    async holds(leave) {
      // Without advisories only a look after the ack can say it.
      if (!heard.heard() && !(await succeeds(observation.look()))) return false;
      const verdict = observation.verdict();
      return leave.changes === observation.changes() && verdict.kind === 'open' && verdict.subject === leave.subject;
    },
    assertOwner: (info) => assertClaimed(info, options),
    problems() {
      const verdict = observation.verdict();
      if (verdict.kind === 'shut') return [verdict.problem];
      // A right that is missing is reported by whoever watches the connection.
      return refused === undefined || connection.refusal() !== undefined ? [] : [refused];
    },
    async stop() {
      const stopped = loop.stop();
      heard.stop();
      await stopped;
    },
  };
}

function succeeds(work: Promise<void>): Promise<boolean> {
  return work.then(
    () => true,
    () => false,
  );
}
