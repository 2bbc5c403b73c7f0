import { AckPolicy, DeliverPolicy, type JetStreamManager } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { pause } from '../runtime/async/retry.ts';
import { whileConnected, type StreamConnection } from './connection.ts';
import { type PullConnection, pullOnce, type PullRequest } from './pull-request.ts';
import type { StreamMessage } from './stream.ts';

const minFetchMs = 1000;
/** Messages of a request, unless the broker allows fewer: its bytes are reached before, where messages are large. */
const mostMessages = 1000;
/** A request that brings nothing takes so long at least, milliseconds. */
const leastMs = 100;
/** The server forgets a consumer that nobody pulls from for so long; it is then created again. */
const consumerIdleMs = 300_000;

interface FetchLimits extends Pick<PullRequest, 'maxBytes' | 'signal' | 'room'> {
  readonly waitMs: number;
}

/** A place in the stream from which messages are fetched one batch after the other. */
interface StreamCursor {
  /**
   * Fetches once from `sequence`, at most `maxBytes`, for at most `waitMs` or until the signal aborts; payloads are read
   * into what `room` gives. Throws `stream_gap` unless what comes is contiguous, and what the broker refuses.
   */
  fetch(sequence: number, limits: FetchLimits): Promise<StreamMessage[]>;
  close(): Promise<void>;
}

/** The consumer that is read from, and the sequence that it delivers next. */
interface Consumer {
  /** Its name, of one that delivers from `sequence` on. */
  moveTo(sequence: number): Promise<string>;
  /** Sees that a message is the next. Throws `stream_gap`. */
  advance(message: StreamMessage): void;
  /** Reads no longer from it. */
  drop(): Promise<void>;
  close(): Promise<void>;
}

function createConsumer(manager: JetStreamManager, streamName: string, onDrop: () => void): Consumer {
  let consumer: string | undefined;
  /** No longer read from; deleted when the next is there, so that the stream never is without one: see `drop`. */
  let stale: string | undefined;
  let nextSequence = 0;
  /** Of several moves at once, as when one was given up, the newest counts. */
  let moves = 0;

  async function forget(older: string | undefined): Promise<void> {
    // One that the broker has forgotten is deleted already.
    if (older !== undefined) await manager.consumers.delete(streamName, older).catch(() => undefined);
  }

  /**
   * It stays for now: were the stream's retention changed to `interest`, only messages that a consumer waits for would
   * be kept.
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
    async close() {
      await drop();
      await forget(stale);
      stale = undefined;
    },
    async moveTo(sequence) {
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
    advance({ sequence }) {
      if (sequence !== nextSequence)
        throw new AppError('stream_gap', `the stream has message ${sequence} where ${nextSequence} should be`, {
          hint: 'Messages were removed from the stream before the lake had them.',
        });
      nextSequence += 1;
    },
  };
}

/**
 * Creates a cursor: it keeps one ephemeral consumer without acks, and a connection that its messages come over. The
 * broker's own memory of a position is not trusted: when the caller asks for another position, or a fetch was cut off, a
 * new consumer is made. `onArrival` is called with each message as it comes, and when a fetch was cut off.
 */
export function createCursor(
  connection: StreamConnection,
  manager: JetStreamManager,
  streamName: string,
  onArrival: () => void,
): StreamCursor {
  const consumer = createConsumer(manager, streamName, onArrival);
  let pulls: PullConnection | undefined;
  let batch = mostMessages;

  async function openPulls(): Promise<PullConnection> {
    if (pulls?.isOpen() !== true) pulls = await connection.openPulls();
    return pulls;
  }

  return {
    async close() {
      await consumer.close();
      pulls?.close();
    },
    async fetch(sequence, { maxBytes, waitMs, signal, room }) {
      // The library would wait for its timeout, while the broker is back within moments.
      const from = await whileConnected(connection, 'pull from the stream', () => consumer.moveTo(sequence));
      const startedAt = performance.now();
      const {
        messages,
        clean,
        refused,
        mostMessages: allowed,
      } = await pullOnce(await openPulls(), {
        streamName,
        consumer: from,
        batch,
        maxBytes,
        // Whole milliseconds: the server refuses a heartbeat with a fraction of a nanosecond.
        expiresMs: Math.ceil(Math.max(waitMs, minFetchMs)),
        // Past its own expiry the fetch is cut off only when the broker stays silent.
        cutMs: waitMs < minFetchMs ? waitMs : waitMs + 500,
        signal,
        room,
        onArrival,
      });
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
      // What came before is good.
      else if (refused !== undefined && messages.length === 0) throw refused;
      // A broker that ends each request at once, for a reason that passes, is not asked without a pause.
      if (!clean && messages.length === 0 && performance.now() - startedAt < leastMs) await pause(leastMs, signal);
      return messages;
    },
  };
}
