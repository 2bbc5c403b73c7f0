import type { StreamConnection } from './connection.ts';

const answerMs = 5000;

/** The subscription to the broker's advisories on a stream. */
export interface StreamChanges {
  /** False where the account may not subscribe to the advisories: then only a look at the stream shows its changes. */
  heard(): boolean;
  stop(): void;
}

/**
 * Calls `onChange` whenever the broker says that the stream was created, changed, deleted or restored, or has a new
 * leader, and whenever the connection is lost, since no advisory comes meanwhile. Resolves when the subscription is in
 * force.
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
