import type { IncomingMessage } from 'node:http';
import type { AccessReader, App } from '../access/access.ts';
import type { Refusal } from './refusal.ts';

/** The refusal of a request whose app, or token, is none. */
export const tokenRefusal: Refusal = {
  reason: 'token',
  detail: 'the token does not suit the app named by idApp',
};

/**
 * The app that a request is for, when its token suits it. Neither says which of the two was wrong. `idApp` as the query
 * has it.
 */
export function findApp(access: AccessReader, idApp: unknown, { headers }: IncomingMessage): App | Refusal {
  const token = headers.authorization;
  const isNamed = typeof idApp === 'string' && /^[1-9]\d{0,15}$/.test(idApp) && token !== undefined && token !== '';
  const app = isNamed ? access.current().findAppByToken(Number(idApp), token) : undefined;
  // A client that is told that its token is wrong drops its events.
  if (app === undefined && isNamed && access.mayLackApps())
    return { reason: 'unavailable', detail: 'not stored: the access data of the service cannot be read' };
  return app ?? tokenRefusal;
}
