import type { StreamConnection } from './connection.ts';

const answerMs = 5000;

/** Hears of every change of a stream as the broker makes it. */
export interface StreamChanges {
  /** False where the account may not hear the broker's advisories: then one has to look. */
  heard(): boolean;
  stop(): void;
}

/**
 * Calls `onChange` whenever the broker says that the stream was created, changed, deleted or restored, or has a new
 * leader, and whenever the connection is lost, in which time nothing is heard. Resolves when the broker is listening
 * for us.
 *
 * nats-server queues the advisory of a change behind the acks of the messages stored before it, and ahead of those of
 * the messages stored after it, in one queue: so an ack that comes before the advisory is of a message stored before
 * the change.
 */
export async function hearChanges(
  connection: StreamConnection,
  streamName: string,
  onChange: () => void,
): Promise<StreamChanges> {
  let heard = true;
  const subscription = connection.nats.subscribe(`$JS.EVENT.ADVISORY.STREAM.*.${streamName}`, {
    callback(error, message) {
      if (error !== null) heard = false;
      // A backup of the stream changes nothing in it.
      else if (message.subject.startsWith('$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_')) return;
      onChange();
    },
  });
  const forget = connection.onDisconnect(onChange);
  await connection.ping(answerMs);
  return {
    heard: () => heard && !subscription.isClosed(),
    stop() {
      forget();
      subscription.unsubscribe();
    },
  };
}
