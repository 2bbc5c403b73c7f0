import { createHash } from 'node:crypto';
import type { AccessReader, User } from '../../access/access.ts';
import type { LinkHolders } from '../../reports/download-routes.ts';
import type { LinkHolder } from '../../reports/signed-links.ts';

/**
 * The holder of the links that a user is given. Its mark is a hash of the user's secret, so that a new secret ends
 * them.
 */
export function holderOf({ idUser, secret }: User): LinkHolder {
  return { idUser, mark: createHash('sha256').update(`links of ${idUser}\n${secret}`).digest('hex') };
}

/** The users as the downloads see them. */
export function createLinkHolders(access: AccessReader): LinkHolders {
  return {
    findMark(idUser) {
      const user = access.current().findUser(idUser);
      return user === undefined ? undefined : holderOf(user).mark;
    },
    mayLackUsers: () => access.mayLackUsers(),
    onChange: (listener) => access.onChange(listener),
  };
}
