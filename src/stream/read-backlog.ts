import { DeliverPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream';
import { wrapErrors } from './broker-errors.ts';
import { whileConnected, type StreamConnection } from './connection.ts';

/** Messages per request: even the largest stay below the unsent bytes at which the server disconnects a client. */
const messagesAtOnce = 48;

/** Minimum `expires` of the library, ms. */
const minExpiresMs = 1000;

export interface BacklogLimits {
  readonly maxBytes: number;
  readonly deadlineMs: number;
}

/**
 * The result of reading the tail. `whole`: every message after the sequence at the call was seen. `moved`: some were
 * purged meanwhile, since the lake has them. `cut`: a limit was reached. `other`: it is another stream.
 */
export type BacklogReadResult = 'whole' | 'moved' | 'cut' | 'other';

/** Passes each message after a sequence to `see`, in order. Errors: `broker_away`, `broker_refused`. */
export async function readBacklog(
  connection: StreamConnection,
  {
    streamName,
    streamId,
    after,
  }: { readonly streamName: string; readonly streamId?: string | undefined; readonly after: number },
  limits: BacklogLimits,
  see: (payload: Uint8Array) => void,
): Promise<BacklogReadResult> {
  const read = async (): Promise<BacklogReadResult> => {
    const manager = await jetstreamManager(connection.nats);
    const { created, state } = await manager.streams.info(streamName);
    if (streamId !== undefined && streamId !== `${streamName}@${created}`) return 'other';
    if (state.last_seq <= after) return 'whole';
    if (state.first_seq > after + 1) return 'moved';
    const consumer = await jetstream(connection.nats).consumers.get(streamName, {
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: after + 1,
    });
    try {
      let next = after + 1;
      let bytes = 0;
      while (next <= state.last_seq) {
        const leftMs = limits.deadlineMs - performance.now();
        if (leftMs <= 0 || bytes >= limits.maxBytes) return 'cut';
        const asked = Math.min(messagesAtOnce, state.last_seq - next + 1);
        const before = next;
        for await (const message of await consumer.fetch({
          max_messages: asked,
          expires: Math.max(minExpiresMs, Math.ceil(leftMs)),
        })) {
          if (message.seq !== next) return 'moved';
          next += 1;
          bytes += message.data.length;
          see(message.data);
        }
        if (next === before) return 'cut';
      }
      return 'whole';
    } finally {
      await consumer.delete().catch(() => undefined);
    }
  };
  const doing = 'scan the stream';
  return await wrapErrors(doing, () => whileConnected(connection, doing, read));
}
