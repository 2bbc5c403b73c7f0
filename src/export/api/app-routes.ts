import type { AccessReader, User } from '../../access/access.ts';
import type { LiveHub, NotServed } from '../../live/live-hub.ts';
import type { RefusalRecord } from '../../refusals/refusal-files.ts';
import type { Arguments } from './arguments.ts';
import { accessDenied, badRequest, type Refusal } from './envelope.ts';
import { single, type AddMethod } from './methods-routes.ts';

/** What the users of an account may look at of what comes in for its apps. */
export interface AppView {
  /** The app's newest refusals, newest first. */
  readonly readRefusals: (idApp: number, most: number) => Promise<readonly RefusalRecord[]>;
  /** Shows events and refusals as they arrive; absent where no broker is named to this process. */
  readonly hub?: LiveHub | undefined;
}

/** Refusals of one answer. */
const fallbackLimit = 100;
const mostLimit = 1000;

const unavailable = (detail: string): Refusal => ({ code: 503, detail, retryAfterSeconds: 5 });
const unnamed = unavailable('Nothing is shown live: the operator has named no broker to the export area');

/** What those are answered who are not served. */
const refusals: Readonly<Record<NotServed, Refusal>> = {
  away: unavailable('Nothing is shown live while the broker is away'),
  denied: unavailable('Nothing is shown live: the broker denies the service the subjects of it'),
  stopping: unavailable('The service is stopping'),
  full: { code: 429, detail: 'Too many listen already', retryAfterSeconds: 5 },
  forbidden: accessDenied,
};

/** The app that the arguments name, of the user's account; all others look the same. */
function findOwnApp(access: AccessReader, { idAccount, canExport }: User, given: Arguments): number | Refusal {
  if (!canExport) return badRequest('The account lacks export permissions');
  const text = single(given, 'idApp') ?? '';
  const idApp = /^[1-9]\d{0,15}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(idApp)) return badRequest('Argument idApp is expected: the id of one app');
  return access.current().findApp(idApp)?.idAccount === idAccount
    ? idApp
    : { code: 404, detail: 'The app is not found' };
}

/** Adds the methods by which a user sees what comes in for an app: its refusals, and everything as it arrives. */
export function addAppRoutes(addMethod: AddMethod, access: AccessReader, { readRefusals, hub }: AppView): void {
  addMethod(['GET'], '/api/app/v1/refusals.json', 'app_refusals', async (user, given) => {
    const idApp = findOwnApp(access, user, given);
    if (typeof idApp !== 'number') return idApp;
    const limit = given.has('limit') ? (single(given, 'limit') ?? '') : String(fallbackLimit);
    if (!/^[1-9]\d{0,3}$/.test(limit) || Number(limit) > mostLimit)
      return badRequest(`Argument limit must be from 1 to ${mostLimit}`);
    return { data: { refusals: await readRefusals(idApp, Number(limit)) } };
  });

  addMethod(['GET'], '/api/app/v1/live', 'app_live', (user, given, { isStillSignedIn }) => {
    const idApp = findOwnApp(access, user, given);
    if (typeof idApp !== 'number') return idApp;
    if (hub === undefined) return unnamed;
    // Whoever was removed, got a new secret, or has signed out of the console, sees nothing more.
    const isAllowed = (): boolean => {
      const now = access.current().findUser(user.idUser);
      return isStillSignedIn() && now?.secret === user.secret && typeof findOwnApp(access, now, given) === 'number';
    };
    return {
      async takeOver(response) {
        const notServed = await hub.serve(response, { idApp, idAccount: user.idAccount, isAllowed });
        return notServed && refusals[notServed];
      },
    };
  });
}
