import { jetstream } from '@nats-io/jetstream';
import type { Stoppable } from '../runtime/lifecycle.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { findDenial, wrapBrokerError } from './broker-errors.ts';
import { claimedSubject, findKeptClaim } from './claim.ts';
import type { StreamConnection } from './connection.ts';

interface ProbedStream {
  readonly streamName: string;
  readonly claimFile: string;
}

interface PublishProbeOptions {
  /** Reports whether a message awaits its response. The probe then waits: the broker names only the subject. */
  readonly isPublishing: () => boolean;
  readonly everyMs?: number;
}

const defaultEveryMs = 5000;
const answerMs = 2000;
/** An impossible name: it has a blank. */
const noStream = 'no stream';

/** Throws `broker_refused` if this user may not publish. The message has an impossible stream name: it is not stored. */
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
    // Any other answer says nothing of rights; the guard and the pings report other errors.
    if (findDenial(error) !== undefined) throw wrapBrokerError(error, `publish to the stream ${streamName}`);
  }
}

/** Probes every few seconds: an idle service must detect a missing permission before its first client does. */
export function startPublishProbe(
  connection: StreamConnection,
  stream: ProbedStream,
  { isPublishing, everyMs = defaultEveryMs }: PublishProbeOptions,
): Stoppable {
  const loop = startPollLoop(
    async () => {
      if (!isPublishing()) await assertMayPublish(connection, stream);
    },
    { everyMs, onError: () => undefined },
  );
  // Not awaited: a stalled broker may not answer.
  return { stop: async () => void loop.stop() };
}
