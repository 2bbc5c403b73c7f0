import { jetstreamManager, type StreamInfo } from '@nats-io/jetstream';
import { AppError, describeError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { pause } from '../runtime/async/retry.ts';
import { describeRefused, wrapBrokerError } from './broker-errors.ts';
import { claimedSubject, findClaim, findKeptClaim, judgeClaim, takenProblem } from './lease.ts';
import { whileConnected, type StreamConnection } from './connection.ts';
import { hearChanges } from './stream-changes.ts';
import { describeDeviations, findDeviations, type Deviation } from './stream-settings.ts';
import { eventSubject, streamName as unclaimedName } from './stream.ts';
import { findStream } from './topology.ts';

/** Leave to publish, as of one moment. */
export interface Leave {
  readonly stream: string;
  readonly subject: string;
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

export interface GuardOptions {
  readonly streamName: string;
  /** The file of the claim that the service of this data folder holds; its supervisor keeps it. */
  readonly claimFile: string;
  readonly logger: Logger;
}

/** Between looks while all is well, while something is wrong, and while nothing is known, milliseconds. */
const lookEveryMs = { open: 2000, shut: 250, unknown: 50 } as const;

type State =
  | { readonly kind: 'open'; readonly subject: string }
  | { readonly kind: 'shut'; readonly problem: Problem }
  | { readonly kind: 'unknown' };

/** What is told while the stream is not there. */
export function missingProblem(streamName: string): Problem {
  return {
    code: 'stream_missing',
    what: `the stream ${streamName} is gone from the broker: no event is taken`,
    todo: 'Nothing, if it passes: the service makes it anew. Otherwise see that its account may create streams.',
  };
}

/** The problem of a data folder without its claim on the stream. */
export function claimMissingProblem(claimFile: string): Problem {
  return {
    code: 'claim_missing',
    what: `${claimFile} is gone or damaged: no event is taken`,
    todo: 'Start the service again.',
  };
}

/** What is told while the stream has settings under which acknowledged events can be lost. */
export function unsafeProblem(streamName: string, deviations: readonly Deviation[]): Problem {
  return {
    code: 'stream_unsafe',
    what: `the stream ${streamName} would lose acknowledged events, no event is taken: ${describeDeviations(deviations)}`,
    todo: 'Nothing, if it passes: the service puts it right. Otherwise set it back, or give the account of the service leave to update streams.',
  };
}

/** Leave without conditions, for a stream that no service has claimed: tests, and what works on a broker of its own. */
export const noGuard: StreamGuard = {
  enter: () => ({ stream: unclaimedName, subject: eventSubject, changes: 0 }),
  holds: () => Promise.resolve(true),
  assertOwner: () => Promise.resolve(),
};

/** Opens the guard over a connection; returns when it has looked once. Errors: `broker_away`, `broker_unsafe`. */
export async function openGuard(
  connection: StreamConnection,
  { streamName, claimFile, logger }: GuardOptions,
): Promise<OpenGuard> {
  const manager = await jetstreamManager(connection.nats).catch((error: unknown) => {
    throw wrapBrokerError(error, 'open the stream');
  });
  let state: State = { kind: 'unknown' };
  let changes = 0;
  /** What keeps the stream from being looked at, time and again. */
  let refused: Problem | undefined;
  const stopping = new AbortController();
  let waiting = new AbortController();
  const wake = (): void => waiting.abort();
  const heard = await hearChanges(connection, streamName, () => {
    changes += 1;
    if (state.kind === 'open') state = { kind: 'unknown' };
    wake();
  });

  async function judge(info: StreamInfo | undefined): Promise<State> {
    if (info === undefined) return { kind: 'shut', problem: missingProblem(streamName) };
    const own = await findKeptClaim(claimFile);
    if (own === undefined) return { kind: 'shut', problem: claimMissingProblem(claimFile) };
    const found = findClaim(info.config.metadata);
    const verdict = judgeClaim(found, own);
    if (found !== undefined && (verdict === 'taken' || verdict === 'foreign'))
      return { kind: 'shut', problem: takenProblem(streamName, found) };
    const subject = claimedSubject(streamName, own.token);
    const vital = findDeviations(info.config, { subject, maxBytes: 0 }).filter((deviation) => deviation.vital);
    // Not yet claimed again: the owner is about to do so.
    if (vital.length > 0 || verdict !== 'ours') return { kind: 'shut', problem: unsafeProblem(streamName, vital) };
    return { kind: 'open', subject };
  }

  /** Looks until what was seen is of after the newest change. */
  async function look(): Promise<void> {
    const asOf = changes;
    const seen = await judge(
      await whileConnected(connection, 'look at the stream', () => findStream(manager, streamName)),
    );
    if (asOf === changes) state = seen;
  }

  async function run(): Promise<void> {
    let failing = false;
    while (!stopping.signal.aborted) {
      try {
        await look();
        failing = false;
        refused = undefined;
      } catch (error) {
        // One failure alone is no finding: JetStream comes up a moment after its server.
        refused = failing ? describeRefused(error, `look at the stream ${streamName}`) : undefined;
        // Once: it is looked again at once, and the pings report a broker that is away.
        if (!failing) logger.warn({ error: describeError(error) }, 'the stream cannot be looked at, will retry');
        failing = true;
      }
      await pause(lookEveryMs[state.kind], waiting.signal);
      waiting = new AbortController();
    }
  }

  await look().catch((error: unknown) => {
    heard.stop();
    throw wrapBrokerError(error, 'look at the stream');
  });
  const running = run();

  return {
    enter() {
      if (state.kind === 'shut') throw new AppError('stream_shut', state.problem.what, { hint: state.problem.todo });
      if (state.kind === 'unknown')
        throw new AppError('broker_away', 'the stream has changed, its settings are being looked at');
      return { stream: streamName, subject: state.subject, changes };
    },
    async holds(leave) {
      if (!heard.heard()) {
        // Without advisories only a look after the ack can say it.
        const seen = await look().then(
          () => true,
          () => false,
        );
        if (!seen) return false;
      }
      return leave.changes === changes && state.kind === 'open' && state.subject === leave.subject;
    },
    async assertOwner({ config }) {
      const own = await findKeptClaim(claimFile);
      const found = findClaim(config.metadata);
      if (own === undefined || found === undefined)
        throw new AppError('stream_shut', `the stream ${streamName} is not claimed by this service yet`);
      const verdict = judgeClaim(found, own);
      if (verdict === 'ours') return;
      const problem = takenProblem(streamName, found);
      throw new AppError('stream_shut', problem.what, { hint: problem.todo });
    },
    problems() {
      if (state.kind === 'shut') return [state.problem];
      // A right that is missing is told by whoever watches the connection.
      return refused === undefined || connection.refusal() !== undefined ? [] : [refused];
    },
    async stop() {
      stopping.abort();
      wake();
      heard.stop();
      await running;
    },
  };
}
