import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import { AppError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { wrapErrors } from './broker-errors.ts';
import { findClaim, findKeptClaim, compareClaims, streamTakenProblem } from './claim.ts';
import { whileConnected, type StreamConnection } from './connection.ts';
import { evaluateStream, openStreamWatch, type PublishGate } from './publish-gate.ts';
import { eventSubject, streamName as defaultStreamName } from './stream.ts';
import { findStream, openManager } from './stream-admin.ts';

/** A permit to publish, valid for the stream configuration it was issued for. */
interface PublishPermit {
  readonly stream: string;
  readonly subject: string;
  readonly streamId?: string;
  /** Copies of the stream. */
  readonly copies: number;
  readonly changes: number;
}

/** The check of whether a 200 may depend on the stream: safe settings, and this service's claim. One per process. */
export interface StreamGuard {
  /** Issues a permit. Errors: `stream_shut` while the stream is unsafe, gone or another's; `broker_away` if unknown. */
  acquirePermit(): PublishPermit;
  /** Reports, after an ack, whether the stream has not changed since the permit. */
  isPermitValid(publishPermit: PublishPermit): Promise<boolean>;
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

const checkIntervalsMs = { open: 2000, shut: 250, unknown: 50 } as const;
/** Delay while all is well and the broker announces changes, ms: the check only catches a lost announcement. */
const backgroundCheckMs = 5000;

/** The guard of a stream that no service has claimed: tests, and brokers of single commands. */
export const noGuard: StreamGuard = {
  acquirePermit: () => ({ stream: defaultStreamName, subject: eventSubject, copies: 1, changes: 0 }),
  isPermitValid: () => Promise.resolve(true),
  assertOwner: () => Promise.resolve(),
};

/** Creates the observation of the stream, as of its newest change. */
function createObservation(
  connection: StreamConnection,
  manager: JetStreamManager,
  { streamName, claimFile }: GuardOptions,
) {
  let verdict: PublishGate = { kind: 'unknown' };
  let changes = 0;
  return {
    verdict: () => verdict,
    changes: () => changes,
    recordChange: (): void => {
      changes += 1;
      if (verdict.kind === 'open') verdict = { kind: 'unknown' };
    },
    /** Reads the stream; ignores a result from before a concurrent change. */
    check: async (): Promise<void> => {
      const asOf = changes;
      const info = await whileConnected(connection, 'inspect the stream', () => findStream(manager, streamName));
      const seen = await evaluateStream(info, streamName, claimFile);
      if (asOf === changes) verdict = seen;
    },
  };
}

async function assertClaimed({ config }: StreamInfo, { streamName, claimFile }: GuardOptions): Promise<void> {
  const found = findClaim(config.metadata);
  const own = await findKeptClaim(claimFile, found);
  if (own === undefined || found === undefined)
    throw new AppError('stream_shut', `the stream ${streamName} is not claimed by this service yet`);
  if (compareClaims(found, own) === 'ours') return;
  const problem = streamTakenProblem(streamName, found);
  throw new AppError('stream_shut', problem.message, { hint: problem.action });
}

/** Opens the guard; returns after one check. Errors: `broker_away`, `broker_unsafe`. */
export async function openGuard(connection: StreamConnection, options: GuardOptions): Promise<OpenGuard> {
  const { streamName } = options;
  const manager = await openManager(connection);
  const seen = createObservation(connection, manager, options);
  const watch = await openStreamWatch(connection, options, seen.recordChange);
  await wrapErrors('inspect the stream', seen.check).catch(async (error: unknown) => {
    await watch.stop();
    throw error;
  });
  watch.start(seen.check, () => {
    const { kind } = seen.verdict();
    return kind === 'open' && watch.isSubscribed() ? backgroundCheckMs : checkIntervalsMs[kind];
  });

  return {
    acquirePermit() {
      const verdict = seen.verdict();
      if (verdict.kind === 'shut')
        throw new AppError('stream_shut', verdict.problem.message, { hint: verdict.problem.action });
      if (verdict.kind === 'unknown')
        throw new AppError('broker_away', 'the stream has changed, its settings are being verified');
      const { subject, streamId, copies } = verdict;
      return { stream: streamName, subject, streamId, copies, changes: seen.changes() };
    },
    async isPermitValid(publishPermit) {
      // Without advisories only a check after the ack shows a change.
      const isSeen =
        watch.isSubscribed() ||
        (await seen.check().then(
          () => true,
          () => false,
        ));
      const verdict = seen.verdict();
      return (
        isSeen &&
        publishPermit.changes === seen.changes() &&
        verdict.kind === 'open' &&
        verdict.subject === publishPermit.subject
      );
    },
    assertOwner: (info) => assertClaimed(info, options),
    problems() {
      const verdict = seen.verdict();
      if (verdict.kind === 'shut') return [verdict.problem];
      // The watch of the connection reports a missing right.
      const refused = watch.refused();
      return refused === undefined || connection.refusal() !== undefined ? [] : [refused];
    },
    stop: () => watch.stop(),
  };
}
