import type { AccessReader, User } from '../../access/access.ts';
import type { LiveHub, NotServed } from '../../live/live-hub.ts';
import type { RefusalRecord } from '../../refusals/refusal-files.ts';
import type { Arguments } from './arguments.ts';
import { accessDenied, badRequest, lacksPermission, notFound, retryAfterSeconds, type Refusal } from './envelope.ts';
import { parseLimit, single, type AddMethod } from './methods-routes.ts';

/** The imports of apps, as their users see them. */
export interface AppView {
  /** The newest rejected imports of an app, newest first. */
  readonly readRefusals: (idApp: number, most: number) => Promise<readonly RefusalRecord[]>;
  /** Streams events and rejections; absent if this process has no broker. */
  readonly hub?: LiveHub | undefined;
}

/** Rejected imports of one response, by default and at most. */
const [fallbackLimit, mostLimit] = [100, 1000];

const noStream = (detail: string): Refusal => ({ code: 503, detail, retryAfterSeconds });
const unnamed = noStream('Nothing is shown live: the operator has named no broker to the export area');
const refusals: Readonly<Record<NotServed, Refusal>> = {
  away: noStream('Nothing is shown live while the broker is away'),
  denied: noStream('Nothing is shown live: the broker denies the service the subjects of it'),
  stopping: noStream('The service is stopping'),
  full: { code: 429, detail: 'Too many listen already', retryAfterSeconds },
  forbidden: accessDenied,
};

/** Parses the app, which must be of the user's account. */
function parseOwnApp(access: AccessReader, { idAccount, canExport }: User, given: Arguments): number | Refusal {
  if (!canExport) return lacksPermission;
  const text = single(given, 'idApp') ?? '';
  if (!/^[1-9]\d{0,15}$/.test(text)) return badRequest('Argument idApp is expected: the id of one app');
  const idApp = Number(text);
  return access.current().findApp(idApp)?.idAccount === idAccount ? idApp : notFound('The app is not found');
}

/** Adds the methods on the imports of an app: its rejected imports, and everything as it arrives. */
export function addAppRoutes(addMethod: AddMethod, access: AccessReader, { readRefusals, hub }: AppView): void {
  addMethod(['GET'], '/api/app/v1/refusals.json', 'app_refusals', async (user, given) => {
    const idApp = parseOwnApp(access, user, given);
    if (typeof idApp !== 'number') return idApp;
    const limit = parseLimit(given, fallbackLimit, mostLimit);
    return typeof limit === 'number' ? { data: { refusals: await readRefusals(idApp, limit) } } : limit;
  });

  addMethod(['GET'], '/api/app/v1/live', 'app_live', (user, given, { isStillSignedIn }) => {
    const idApp = parseOwnApp(access, user, given);
    if (typeof idApp !== 'number') return idApp;
    if (hub === undefined) return unnamed;
    // A removed user, one with a new secret and one who signed out of the console receive nothing more.
    const isAllowed = (): boolean => {
      const now = access.current().findUser(user.idUser);
      return isStillSignedIn() && now?.secret === user.secret && typeof parseOwnApp(access, now, given) === 'number';
    };
    return {
      async takeOver(response) {
        const notServed = await hub.serve(response, { idApp, idAccount: user.idAccount, isAllowed });
        return notServed && refusals[notServed];
      },
    };
  });
}
