import { jetstream } from '@nats-io/jetstream';
import type { Stoppable } from '../runtime/lifecycle.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { findRefusal, wrapBrokerError } from './broker-errors.ts';
import { claimedSubject, findKeptClaim } from './lease.ts';
import type { StreamConnection } from './connection.ts';

interface ProbedStream {
  readonly streamName: string;
  /** The file of the claim that the service of this data folder holds: it names the subject. */
  readonly claimFile: string;
}

/** What a probe waits for, and how often it tries. */
interface PublishProbeOptions {
  /**
   * Says whether a message of the same connection has no answer yet. Nothing is tried then: the broker names the
   * subject that it refuses, not the message, so that a message it has stored could be taken for the refused one.
   */
  readonly isPublishing: () => boolean;
  /** Milliseconds. */
  readonly everyMs?: number;
}

const defaultEveryMs = 5000;
const answerMs = 2000;
/** No stream has this name: blanks are not allowed in one. */
const noStream = 'no stream';

/**
 * Throws `broker_refused` when the broker does not let this user publish events. Tried by a message that asks for
 * another stream than the one it reaches: the broker looks at the user's rights first, then refuses the message, and
 * stores nothing.
 */
export async function assertMayPublish(
  connection: StreamConnection,
  { streamName, claimFile }: ProbedStream,
): Promise<void> {
  const claim = await findKeptClaim(claimFile).catch(() => undefined);
  if (claim === undefined || !connection.isConnected()) return;
  try {
    await jetstream(connection.nats).publish(claimedSubject(streamName, claim.token), '', {
      timeout: answerMs,
      expect: { streamName: noStream },
    });
  } catch (error) {
    // Any other answer says nothing of rights. What else may be wrong is reported by the guard and the pings.
    if (findRefusal(error) !== undefined) throw wrapBrokerError(error, `publish to the stream ${streamName}`);
  }
}

/**
 * Tries every few seconds whether the broker lets this process publish: an idle service must know it before its
 * first client. The connection keeps what it is refused, and its ping reports it.
 */
export function startPublishProbe(
  connection: StreamConnection,
  stream: ProbedStream,
  { isPublishing, everyMs = defaultEveryMs }: PublishProbeOptions,
): Stoppable {
  const loop = startPollLoop(
    async () => {
      if (!isPublishing()) await assertMayPublish(connection, stream);
    },
    // The connection keeps what it is refused.
    { everyMs, onError: () => undefined },
  );
  // Not waited for: the answer may be that of a stalled broker.
  return { stop: async () => void loop.stop() };
}
