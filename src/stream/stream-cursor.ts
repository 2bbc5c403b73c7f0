import { AckPolicy, DeliverPolicy, type JetStreamManager } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { pause } from '../runtime/async/retry.ts';
import { whileConnected, type StreamConnection } from './connection.ts';
import { type PullConnection, pullOnce, type PullRequest } from './pull-request.ts';
import type { StreamMessage } from './stream.ts';

const minFetchMs = 1000;
/** Messages per request, unless the broker allows fewer; large messages reach the bytes before. */
const mostMessages = 1000;
/** Shortest time of a request that brings nothing, ms. */
const leastMs = 100;
/** The server drops a consumer without pulls for this long; it is then created again. */
const consumerIdleMs = 300_000;

interface FetchLimits extends Pick<PullRequest, 'maxBytes' | 'signal' | 'room'> {
  readonly waitMs: number;
}

/** Creates the ephemeral consumer of a cursor, not yet on the broker. */
function createConsumer(manager: JetStreamManager, streamName: string, onDrop: () => void) {
  let consumer: string | undefined;
  /** Dropped, but deleted only after the next one was created: see `drop`. */
  let stale: string | undefined;
  let nextSequence = 0;
  /** Of several moves at once, as after one was given up, the newest counts. */
  let moves = 0;

  async function forget(older: string | undefined): Promise<void> {
    // The broker may have dropped it already.
    if (older !== undefined) await manager.consumers.delete(streamName, older).catch(() => undefined);
  }

  /**
   * Reads no longer from the consumer. It stays for now: with retention `interest` a stream without one keeps nothing.
   */
  async function drop(): Promise<void> {
    const older = stale;
    if (consumer === undefined) return;
    onDrop();
    stale = consumer;
    consumer = undefined;
    await forget(older);
  }

  return {
    drop,
    async close(): Promise<void> {
      await drop();
      await forget(stale);
      stale = undefined;
    },
    /** Returns the name of a consumer that delivers from `sequence`. */
    async moveTo(sequence: number): Promise<string> {
      if (consumer !== undefined && nextSequence === sequence) return consumer;
      moves += 1;
      const move = moves;
      await drop();
      const info = await manager.consumers.add(streamName, {
        ack_policy: AckPolicy.None,
        deliver_policy: DeliverPolicy.StartSequence,
        opt_start_seq: sequence,
        inactive_threshold: nanos(consumerIdleMs),
        mem_storage: true,
        num_replicas: 1,
      });
      if (move !== moves) {
        await forget(info.name);
        throw new AppError('broker_away', 'a move in the stream was given up for a newer one');
      }
      nextSequence = sequence;
      consumer = info.name;
      await forget(stale);
      stale = undefined;
      return consumer;
    },
    /** Moves past a message, which must be the next. Error: `stream_gap`. */
    advance({ sequence }: StreamMessage): void {
      if (sequence !== nextSequence)
        throw new AppError('stream_gap', `the stream has message ${sequence} where ${nextSequence} should be`, {
          hint: 'Messages were removed from the stream before the lake had them.',
        });
      nextSequence += 1;
    },
  };
}

/**
 * Creates a cursor in the stream: one ephemeral consumer without acks, and a connection for its messages. The broker's
 * memory of a position is not trusted: another position, or a fetch that was interrupted, needs a new consumer.
 * `onArrival` is called with each message as it comes, and after a fetch was interrupted.
 */
export function createCursor(
  connection: StreamConnection,
  manager: JetStreamManager,
  streamName: string,
  onArrival: () => void,
) {
  const consumer = createConsumer(manager, streamName, onArrival);
  let pulls: PullConnection | undefined;
  let batch = mostMessages;

  async function openPulls(): Promise<PullConnection> {
    if (pulls?.isOpen() !== true) pulls = await connection.openPulls();
    return pulls;
  }

  return {
    async close(): Promise<void> {
      await consumer.close();
      pulls?.close();
    },
    /**
     * Fetches once from `sequence`, at most `maxBytes`, for at most `waitMs` or until the signal aborts. Errors:
     * `stream_gap` unless the messages are contiguous, and what the broker refuses.
     */
    async fetch(sequence: number, { maxBytes, waitMs, signal, room }: FetchLimits): Promise<StreamMessage[]> {
      // The library would wait for its timeout, while the broker is back within moments.
      const from = await whileConnected(connection, 'pull from the stream', () => consumer.moveTo(sequence));
      const startedAt = performance.now();
      const pulled = await pullOnce(await openPulls(), {
        streamName,
        consumer: from,
        batch,
        maxBytes,
        // Integer ms: the server refuses a heartbeat with a fraction of a nanosecond.
        expiresMs: Math.ceil(Math.max(waitMs, minFetchMs)),
        // After its own expiry the fetch is ended only if the broker stays silent.
        cutMs: waitMs < minFetchMs ? waitMs : waitMs + 500,
        signal,
        room,
        onArrival,
      });
      const { messages, clean, refused, mostMessages: allowed } = pulled;
      try {
        for (const message of messages) consumer.advance(message);
      } catch (gap) {
        await consumer.drop();
        throw gap;
      }
      if (!clean) await consumer.drop();
      // The broker may be gone, or only its end of this connection.
      if (!clean && pulls?.isSilent() === true) pulls.close();
      if (allowed !== undefined) batch = allowed;
      // Messages that came before are valid.
      else if (refused !== undefined && messages.length === 0) throw refused;
      // A broker that ends each request at once, for a reason that passes, is asked with a pause.
      if (!clean && messages.length === 0 && performance.now() - startedAt < leastMs) await pause(leastMs, signal);
      return messages;
    },
  };
}
