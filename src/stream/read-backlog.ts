import { DeliverPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { wrapErrors } from './broker-errors.ts';
import { findLinesBytes, readLines } from './message-compression.ts';
import { whileConnected, type StreamConnection } from './connection.ts';

/** Messages per request: even the largest stay below the unsent bytes at which the server disconnects a client. */
const messagesAtOnce = 48;

/** Minimum `expires` of the library, ms. */
const minExpiresMs = 1000;

export interface BacklogLimits {
  /** Most bytes of lines. */
  readonly maxBytes: number;
  readonly deadlineMs: number;
}

/**
 * The result of reading the tail. `complete`: every message after the sequence at the call was seen. `purged`: some
 * were purged meanwhile, since the lake has them. `limited`: a limit was reached. `otherStream`: it is another stream.
 */
export type BacklogReadResult = 'complete' | 'purged' | 'limited' | 'otherStream';

/** Passes the lines of each message after a sequence to `onMessage`, in order. Errors: `broker_away`, `broker_refused`. */
export async function readBacklog(
  connection: StreamConnection,
  {
    streamName,
    streamId,
    after,
  }: { readonly streamName: string; readonly streamId?: string | undefined; readonly after: number },
  limits: BacklogLimits,
  onMessage: (lines: Uint8Array) => void,
): Promise<BacklogReadResult> {
  const read = async (): Promise<BacklogReadResult> => {
    const manager = await jetstreamManager(connection.nats);
    const { created, state } = await manager.streams.info(streamName);
    if (streamId !== undefined && streamId !== `${streamName}@${created}`) return 'otherStream';
    if (state.last_seq <= after) return 'complete';
    if (state.first_seq > after + 1) return 'purged';
    const consumer = await jetstream(connection.nats).consumers.get(streamName, {
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: after + 1,
    });
    try {
      let next = after + 1;
      let bytes = 0;
      while (next <= state.last_seq) {
        const leftMs = limits.deadlineMs - performance.now();
        if (leftMs <= 0 || bytes >= limits.maxBytes) return 'limited';
        const requested = Math.min(messagesAtOnce, state.last_seq - next + 1);
        const first = next;
        for await (const message of await consumer.fetch({
          max_messages: requested,
          expires: Math.max(minExpiresMs, Math.ceil(leftMs)),
        })) {
          if (message.seq !== next) return 'purged';
          next += 1;
          const linesBytes = findLinesBytes(() => message.headers);
          const lines = await readLines({ sequence: message.seq, payload: message.data, linesBytes });
          bytes += lines.length;
          onMessage(lines);
        }
        if (next === first) return 'limited';
      }
      return 'complete';
    } finally {
      await consumer.delete().catch(() => undefined);
    }
  };
  const operation = 'scan the stream';
  return await wrapErrors(operation, () => whileConnected(connection, operation, read));
}
