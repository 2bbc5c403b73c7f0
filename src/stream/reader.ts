import { jetstreamManager, type StreamInfo, type ClusterInfo } from '@nats-io/jetstream';
import { wrapBrokerError } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';
import { noGuard, type StreamGuard } from './guard.ts';
import { createCursor } from './stream-cursor.ts';
import {
  maxMessageBytes,
  streamIdOf,
  streamName as unclaimedName,
  type StreamMessage,
  type StreamReader,
  type StreamState,
  type BrokerClock,
} from './stream.ts';

const nanosOfMs = 1_000_000;

/** Returns how long ago the leader of a stream heard a majority, ms: 0 on one server; undefined if it has not. */
function findQuorumAgeMs({ replicas: others = [] }: Partial<ClusterInfo> = {}): number | undefined {
  const needed = Math.floor((others.length + 1) / 2);
  if (needed === 0) return 0;
  // One that was never heard has an age of 0, and is not current.
  const ages = others.filter(({ current, offline }) => current && !offline).map(({ active }) => active / nanosOfMs);
  return ages.toSorted((a, b) => a - b)[needed - 1];
}

/**
 * Returns what the broker's clock showed when it checked a stream; undefined if unknown. It checks its clock after the
 * stream, within the `tookMs` of the request. A leader that is isolated still leads for some seconds, as far as it
 * knows, while another takes messages: it knows the end of the stream as of its last contact with a majority.
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

/** Creates a function that returns pieces of a memory, and new memory once that is used up. */
function createRoom(into: Uint8Array = Buffer.alloc(0)): (bytes: number) => Uint8Array {
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

async function edge<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw wrapBrokerError(error, doing);
  }
}

interface ReaderOptions {
  /** [That of a stream that no service has claimed] */
  readonly streamName?: string;
  /** Checks the owner of the stream at each read of its state; readers that do not purge need none. */
  readonly guard?: StreamGuard;
}

/** Opens the stream for reading over a connection, which the caller closes. Error: `broker_away`. */
export async function openReader(
  connection: StreamConnection,
  { streamName = unclaimedName, guard = noGuard }: ReaderOptions = {},
): Promise<StreamReader> {
  const manager = await edge('open the stream', () => jetstreamManager(connection.nats));
  let arrivals = 0;
  const onArrival = (): void => void (arrivals += 1);
  const cursor = createCursor(connection, manager, streamName, onArrival);
  const forget = connection.onDisconnect(onArrival);

  async function pull(afterSequence: number, limits: PullLimits): Promise<StreamMessage[]> {
    const deadline = performance.now() + limits.waitMs;
    const pulled: StreamMessage[] = [];
    const room = createRoom(limits.into);
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
      edge('read the state of the stream', async () => {
        const askedAt = performance.now();
        const info = await manager.streams.info(streamName);
        const state = toState(streamName, info, askedAt);
        await guard.assertOwner(info);
        return state;
      }),
    assertOwner: () =>
      edge('see whose the stream is', async () => guard.assertOwner(await manager.streams.info(streamName))),
    findMessage: (sequence) =>
      edge('read a message', async () => {
        const message = await manager.streams.getMessage(streamName, { seq: sequence });
        return message === null
          ? undefined
          : { sequence: message.seq, payload: message.data, storedAtMs: message.time.getTime() };
      }),
    pull: (afterSequence, limits) => edge('pull from the stream', () => pull(afterSequence, limits)),
    purgeBelow: (sequence) =>
      edge('purge the stream', async () => {
        await manager.streams.purge(streamName, { seq: sequence });
      }),
    arrivals: () => arrivals,
    close() {
      forget();
      return cursor.close();
    },
  };
}
