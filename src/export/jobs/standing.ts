import type { AccessReader } from '../../access/access.ts';

/**
 * How the user stands who ordered a request. `removed`: the request is to end. `unknown`: the access data that would
 * say so is damaged or gone, and the request waits.
 */
export type Standing = 'live' | 'removed' | 'unknown';

/** Finds how a user stands now. */
export function standingOf(access: AccessReader, idUser: string): Standing {
  if (access.current().findUser(idUser) !== undefined) return 'live';
  return access.mayLackUsers() ? 'unknown' : 'removed';
}
