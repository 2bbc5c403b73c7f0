import type { IncomingMessage } from 'node:http';
import type { AccessReader, AccessView, App } from '../access/access.ts';
import type { Refusal } from './refusal.ts';

export const tokenRefusal: Refusal = {
  reason: 'token',
  detail: 'the token is not valid for the app named by idApp',
};

/** Describes a missing app or token; a wrong one is not distinguished from the other. */
function findMissingPart(idApp: unknown, token: string | undefined): string | undefined {
  if (idApp === undefined) return 'idApp is missing: add it to the address, as in ?idApp=1';
  if (token === undefined || token === '') return "the header Authorization is missing: it must be the app's token";
  const [scheme] = /^(?:Bearer|Basic|Token)(?= )/i.exec(token) ?? [];
  return scheme && `the header Authorization must be the app's token without '${scheme}'`;
}

/** Describes a token that is not of the app. It says of which app it is, and nothing about the app that `idApp` names. */
function describeToken(view: AccessView, idApp: unknown, token: string): string {
  const owner = view.nameAppOfToken(token);
  if (owner === undefined) return tokenRefusal.detail;
  return owner === 'none'
    ? 'the token in the header Authorization is of no app: it is wrong or was revoked'
    : `the token in the header Authorization is of app ${owner}, not of app ${String(idApp)}: check idApp`;
}

/** Returns the app whose token matches; a refusal does not say whether there is an app `idApp`, which is unchecked. */
export function findApp(access: AccessReader, idApp: unknown, { headers }: IncomingMessage): App | Refusal {
  const token = headers.authorization;
  const isNamed = typeof idApp === 'string' && /^[1-9]\d{0,15}$/.test(idApp) && token !== undefined && token !== '';
  const view = access.current();
  const app = isNamed ? view.findAppByToken(Number(idApp), token) : undefined;
  // A client that learns that its token is wrong drops its events.
  if (app === undefined && isNamed && access.mayMissApps())
    return { reason: 'unavailable', detail: 'not stored: the access data of the service cannot be read' };
  if (app !== undefined) return app;
  const missing = findMissingPart(idApp, token);
  return { ...tokenRefusal, detail: missing ?? describeToken(view, idApp, token ?? '') };
}
