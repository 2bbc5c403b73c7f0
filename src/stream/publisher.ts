import assert from 'node:assert/strict';
import { jetstream } from '@nats-io/jetstream';
import { errors, RequestError } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { isNobodyThere, isNoRoom, isPublishRefused, wrapBrokerError } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';
import { noGuard, type StreamGuard } from './guard.ts';
import { maxMessageBytes, type PublishAck, type StreamPublisher } from './stream.ts';

/** Says whether the library gave up waiting: the message may have been stored all the same. */
function isNoAnswer(error: unknown): boolean {
  return error instanceof errors.TimeoutError || (error instanceof RequestError && !error.isNoResponders());
}

/** What a publish that failed says: the message is not stored, or that is not known (`publish_unknown`). */
function wrapPublishError(error: unknown, timeoutMs: number): AppError {
  // Before the next, to which it looks like a request without an answer.
  if (isPublishRefused(error)) return wrapBrokerError(error, 'publish');
  if (isNoAnswer(error))
    return new AppError('publish_unknown', `publish: no answer within ${Math.round(timeoutMs)} ms`, { cause: error });
  if (isNoRoom(error))
    return new AppError('stream_full', `publish: the stream is full: ${error.message} (${error.code})`, {
      cause: error,
    });
  if (isNobodyThere(error))
    return new AppError('broker_away', 'publish: nobody takes messages for the stream at the moment', { cause: error });
  return wrapBrokerError(error, 'publish');
}

/** A publisher that can be asked whether it is at work. */
export interface OpenPublisher extends StreamPublisher {
  /** Says whether a message was sent and has no answer yet. */
  isPublishing(): boolean;
}

/**
 * Opens the way into the stream over a connection, which stays the caller's to close. Acks are those of JetStream: the
 * message is fsynced. A connection lost while a publish waits ends the wait at once with `publish_unknown`; so does a
 * change of the stream between the leave of the guard and the ack, since what was stored may then not be kept.
 */
export function openPublisher(connection: StreamConnection, guard: StreamGuard = noGuard): OpenPublisher {
  const js = jetstream(connection.nats);
  let pending = 0;

  async function publish(payload: Uint8Array, timeoutMs: number): Promise<PublishAck> {
    assert(payload.length > 0 && payload.length <= maxMessageBytes, `message of ${payload.length} bytes`);
    // The library would keep the message and send it once it is connected again, long after the caller was refused.
    if (!connection.isConnected()) throw new AppError('broker_away', 'publish: not connected to the broker');
    const leave = guard.enter();

    let forget: (() => void) | undefined;
    const lost = new Promise<never>((_, reject) => {
      forget = connection.onDisconnect(() =>
        reject(new AppError('publish_unknown', 'publish: the connection was lost before the answer')),
      );
    });
    pending += 1;
    try {
      const ack = await Promise.race([js.publish(leave.subject, payload, { timeout: timeoutMs }), lost]);
      assert.equal(ack.stream, leave.stream, 'another stream has taken the event subject');
      if (!(await Promise.race([guard.holds(leave), lost])))
        throw new AppError('publish_unknown', 'publish: the stream was changed before the answer');
      return { stream: ack.stream, sequence: ack.seq };
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      throw wrapPublishError(error, timeoutMs);
    } finally {
      pending -= 1;
      forget?.();
    }
  }

  return {
    publish,
    isPublishing: () => pending > 0,
    ping: (timeoutMs) => connection.ping(timeoutMs),
    close: async () => undefined,
  };
}
