import assert from 'node:assert/strict';
import { AppError } from '../runtime/errors.ts';
import { openAckInbox } from './ack-inbox.ts';
import type { StreamConnection } from './connection.ts';
import { noGuard, type StreamGuard } from './guard.ts';
import { maxMessageBytes, type StreamPublisher } from './stream.ts';
import { areSameFolders, type FolderIds } from '../runtime/files/folder-id.ts';
import { createStoreCheck } from './store-files.ts';

interface OpenPublisher extends StreamPublisher {
  /** Reports whether a message has no response yet. */
  isPublishing(): boolean;
}

/**
 * Opens a publisher over a connection, which the caller closes. An ack means that the message is fsynced. A lost
 * connection ends the wait at once with `publish_unknown`; so does a change of the stream between the permit and the
 * ack, since the stored message may not be kept.
 */
export function openPublisher(connection: StreamConnection, guard: StreamGuard = noGuard): OpenPublisher {
  const inbox = openAckInbox(connection);
  return {
    async publish(payload, timeoutMs) {
      assert(payload.length > 0 && payload.length <= maxMessageBytes, `message of ${payload.length} bytes`);
      // The library would keep the message and send it after the reconnect, long after the client was refused.
      if (!connection.isConnected()) throw new AppError('broker_away', 'publish: not connected to the broker');
      const leave = guard.enter();
      const ack = await inbox.publish(leave.subject, payload, timeoutMs);
      assert.equal(ack.stream, leave.stream, 'another stream has taken the event subject');
      if (!(await guard.holds(leave)))
        throw new AppError('publish_unknown', 'publish: the stream was changed before the answer');
      return { ...ack, streamId: leave.streamId };
    },
    isPublishing: () => inbox.waiting() > 0,
    ping: (timeoutMs) => connection.ping(timeoutMs),
    close: async () => inbox.close(),
  };
}

/**
 * Returns a publisher whose ack also means that the folders are still the service's: a broker whose store was moved or
 * removed keeps acknowledging what no restart finds. Otherwise it throws `publish_unknown`. `folders` without
 * `natsFolder` belong to a service with an external broker, whose store is not checked.
 */
export function publishToOwnFolders(
  publisher: StreamPublisher,
  folders: FolderIds,
  natsFolder: string,
): StreamPublisher {
  const store = folders[natsFolder] === undefined ? undefined : createStoreCheck(natsFolder);
  return {
    ...publisher,
    async publish(payload, timeoutMs) {
      const ack = await publisher.publish(payload, timeoutMs);
      const isOurs = areSameFolders(folders) && (store === undefined || (await store.isKept().catch(() => false)));
      if (!isOurs)
        throw new AppError(
          'publish_unknown',
          'publish: the folders of the service, or files in them, were taken from under it',
        );
      return ack;
    },
  };
}
