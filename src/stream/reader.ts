import { AckPolicy, DeliverPolicy, type ClusterInfo, type JetStreamManager, type StreamInfo } from '@nats-io/jetstream';
import { wrapErrors } from './broker-errors.ts';
import { type StreamConnection, whileConnected } from './connection.ts';
import { noGuard, type StreamGuard } from './guard.ts';
import {
  maxMessageBytes,
  streamIdOf,
  streamName as defaultStreamName,
  type StreamMessage,
  type StreamReader,
  type StreamState,
  type BrokerClock,
} from './stream.ts';
import { nanos } from '@nats-io/transport-node';
import { AppError } from '../runtime/errors.ts';
import { pause } from '../runtime/async/retry.ts';
import { type PullConnection, pullOnce, type PullRequest } from './pull-request.ts';
import { findLinesBytes } from './message-compression.ts';
import { openManager } from './stream-admin.ts';

const minFetchMs = 1000;
/** Messages per request, unless the broker allows fewer. Large messages reach the byte limit first. */
const maxMessages = 1000;
/** Delay after an interrupted request without messages that ended sooner than this, ms. */
const emptyRequestDelayMs = 100;
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
  /** Number of moves. Of concurrent ones, the newest counts; the others fail. */
  let moves = 0;

  async function forget(older: string | undefined): Promise<void> {
    if (older !== undefined) await manager.consumers.delete(streamName, older).catch(() => undefined);
  }

  /** Stops reading. The consumer stays for now: with retention `interest` a stream without one keeps nothing. */
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
        throw new AppError('broker_away', 'superseded by a newer read position');
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
        throw new AppError('stream_gap', `the stream has message ${sequence} instead of ${nextSequence}`, {
          hint: 'Check which client removed messages before the lake had them.',
        });
      nextSequence += 1;
    },
  };
}

/**
 * Creates a cursor in the stream: one ephemeral consumer without acks, on its own connection. Another position, or an
 * interrupted fetch, needs a new consumer. `onArrival` is called for each message and after an interrupted fetch.
 */
function createCursor(
  connection: StreamConnection,
  manager: JetStreamManager,
  streamName: string,
  onArrival: () => void,
) {
  const consumer = createConsumer(manager, streamName, onArrival);
  let pulls: PullConnection | undefined;
  let batch = maxMessages;

  async function openPulls(): Promise<PullConnection> {
    if (pulls?.isOpen() !== true) pulls = await connection.openPulls();
    return pulls;
  }

  return {
    async close(): Promise<void> {
      await consumer.close();
      pulls?.close();
    },
    /** Fetches from `sequence` until `maxBytes`, `waitMs` or an abort. Errors: `stream_gap`, the broker's. */
    async fetch(sequence: number, { maxBytes, waitMs, signal, room }: FetchLimits): Promise<StreamMessage[]> {
      // The library would wait for its timeout.
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
      const { messages, clean, refused, maxMessages: allowed } = pulled;
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
      else if (refused !== undefined && messages.length === 0) throw refused;
      // A broker that ends each request at once is asked again after a delay.
      if (!clean && messages.length === 0 && performance.now() - startedAt < emptyRequestDelayMs)
        await pause(emptyRequestDelayMs, signal);
      return messages;
    },
  };
}

const nanosOfMs = 1_000_000;

/** Returns the age of the leader's last contact with a majority, ms: 0 on one server; undefined without one. */
function findQuorumAgeMs({ replicas: others = [] }: Partial<ClusterInfo> = {}): number | undefined {
  const needed = Math.floor((others.length + 1) / 2);
  if (needed === 0) return 0;
  // A replica without any contact has an age of 0, and is not current.
  const ages = others.filter(({ current, offline }) => current && !offline).map(({ active }) => active / nanosOfMs);
  return ages.toSorted((a, b) => a - b)[needed - 1];
}

/**
 * Returns the broker's time when it checked a stream; undefined if unknown. The check precedes the time by at most
 * `tookMs`. An isolated leader knows the end of the stream as of its last contact with a majority.
 */
export function findBrokerClock(
  { ts, cluster }: Partial<Pick<StreamInfo, 'cluster'>> & { readonly ts?: string },
  tookMs: number,
): BrokerClock | undefined {
  const toMs = Date.parse(ts ?? '');
  const quorumAgeMs = findQuorumAgeMs(cluster);
  if (Number.isNaN(toMs) || quorumAgeMs === undefined) return undefined;
  return { fromMs: Math.floor(toMs - tookMs - quorumAgeMs), toMs };
}

/** Most bytes per request: at 64 MB waiting to be sent, the server cuts a client off as too slow. */
const maxFetchBytes = 16 * 1024 * 1024;
/** Space for one message of the largest size, with its subject, reply and headers. */
const minFetchBytes = maxMessageBytes + 16 * 1024;

type PullLimits = Parameters<StreamReader['pull']>[1];

/** Creates an allocator of pieces of `into`. It returns new memory if a piece does not fit. */
function createAllocator(into: Uint8Array = Buffer.alloc(0)): (bytes: number) => Uint8Array {
  let used = 0;
  return (bytes) => {
    if (used + bytes > into.length) return Buffer.allocUnsafeSlow(bytes);
    used += bytes;
    return into.subarray(used - bytes, used);
  };
}

function toState(streamName: string, info: StreamInfo, askedAt: number): StreamState {
  const { created, state, config } = info;
  return {
    id: streamIdOf(streamName, created),
    firstSequence: state.first_seq,
    lastSequence: state.last_seq,
    messages: state.messages,
    bytes: state.bytes,
    maxBytes: config.max_bytes > 0 ? config.max_bytes : undefined,
    clock: findBrokerClock(info, performance.now() - askedAt),
  };
}

interface ReaderOptions {
  /** [TRIBUTARY_EVENTS] */
  readonly streamName?: string;
  /** Checks the owner of the stream at each read of its state; readers that do not purge need none. */
  readonly guard?: StreamGuard;
}

/** Opens the stream for reading over a connection, which the caller closes. Error: `broker_away`. */
export async function openReader(
  connection: StreamConnection,
  { streamName = defaultStreamName, guard = noGuard }: ReaderOptions = {},
): Promise<StreamReader> {
  const manager = await openManager(connection);
  let arrivals = 0;
  const onArrival = (): void => void (arrivals += 1);
  const cursor = createCursor(connection, manager, streamName, onArrival);
  const forget = connection.onDisconnect(onArrival);

  async function pull(afterSequence: number, limits: PullLimits): Promise<StreamMessage[]> {
    const deadline = performance.now() + limits.waitMs;
    const pulled: StreamMessage[] = [];
    const room = createAllocator(limits.into);
    let bytes = 0;
    for (;;) {
      const leftMs = deadline - performance.now();
      const leftBytes = limits.maxBytes - bytes;
      const enough = leftMs <= 0 || (leftBytes < minFetchBytes && pulled.length > 0);
      if (enough || limits.signal?.aborted === true) return pulled;
      const messages = await cursor.fetch(afterSequence + pulled.length + 1, {
        maxBytes: Math.max(Math.min(leftBytes, maxFetchBytes), minFetchBytes),
        waitMs: leftMs,
        signal: limits.signal,
        room,
      });
      for (const message of messages) {
        pulled.push(message);
        bytes += message.payload.length;
      }
      // Not connected: the caller decides whether to retry.
      if (messages.length === 0 && !connection.isConnected()) return pulled;
    }
  }

  return {
    state: () =>
      wrapErrors('read the state of the stream', async () => {
        const askedAt = performance.now();
        const info = await manager.streams.info(streamName);
        const state = toState(streamName, info, askedAt);
        await guard.assertOwner(info);
        return state;
      }),
    assertOwner: () =>
      wrapErrors('check the owner of the stream', async () =>
        guard.assertOwner(await manager.streams.info(streamName)),
      ),
    findMessage: (sequence) =>
      wrapErrors('read a message', async () => {
        const message = await manager.streams.getMessage(streamName, { seq: sequence });
        if (message === null) return undefined;
        const linesBytes = findLinesBytes(() => message.header);
        return { sequence: message.seq, payload: message.data, linesBytes, storedAtMs: message.time.getTime() };
      }),
    pull: (afterSequence, limits) => wrapErrors('pull from the stream', () => pull(afterSequence, limits)),
    purgeBelow: (sequence) =>
      wrapErrors('purge the stream', async () => {
        await manager.streams.purge(streamName, { seq: sequence });
      }),
    arrivals: () => arrivals,
    close() {
      forget();
      return cursor.close();
    },
  };
}
