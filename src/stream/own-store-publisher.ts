import { AppError } from '../runtime/errors.ts';
import { areSameFolders, type FolderIds } from '../runtime/files/folder-id.ts';
import { createStoreCheck } from './store-files.ts';
import type { StreamPublisher } from './stream.ts';

/**
 * A publisher whose acknowledgement also says that the folders are still the service's: a broker whose store was moved
 * or removed goes on acknowledging what no restart will find. Otherwise it throws `publish_unknown`: the broker has the
 * message, and nobody knows whether it will be found. `folders` with no entry for `natsFolder` belong to a service with
 * an external broker, whose store is not looked at.
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
