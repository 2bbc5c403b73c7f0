import type { ServerResponse } from 'node:http';
import type { LinkHolder } from './signed-links.ts';

/** The downloads under way, each with the holder of its link: one may take hours, and ends when its holder does. */
export interface OpenDownloads {
  /** Adds a download; it is forgotten when its answer is over. */
  add(holder: LinkHolder, response: ServerResponse): void;
  /**
   * Cuts off the downloads of the holders that `isGone` names. The client sees its connection break: no file looks
   * whole.
   */
  endWhere(isGone: (holder: LinkHolder) => boolean): void;
}

/** Creates the list of one server. */
export function createOpenDownloads(): OpenDownloads {
  const open = new Map<ServerResponse, LinkHolder>();
  return {
    add(holder, response) {
      // Its client has gone already: there will be no close event to remove it by.
      if (response.destroyed) return;
      open.set(response, holder);
      response.once('close', () => open.delete(response));
    },
    endWhere(isGone) {
      for (const [response, holder] of open) if (isGone(holder)) response.destroy();
    },
  };
}
