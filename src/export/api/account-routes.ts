import type { AccessReader, User } from '../../access/access.ts';
import type { LiveHub, LiveUnavailableReason } from '../../live/live-hub.ts';
import type { FoundRefusals } from '../../refusals/refusal-files.ts';
import type { Arguments } from './arguments.ts';
import {
  accessDenied,
  badRequest,
  lacksPermission,
  notFound,
  retryAfterSeconds,
  type ExportApiError,
} from './envelope.ts';
import { parseId, parseLimit, single, type AddMethod } from './methods-routes.ts';

/** Rejected and live imports of apps, for users of their account. */
export interface AppView {
  readonly readRefusals: (idApp: number, most: number) => Promise<FoundRefusals>;
  /** Streams events and rejections; absent if this process has no broker. */
  readonly hub?: LiveHub | undefined;
}

/** Rejected imports of one response, by default and at most. */
const [fallbackLimit, maxLimit] = [100, 1000];

const noStream = (detail: string): ExportApiError => ({ code: 503, detail, retryAfterSeconds });
const unnamed = noStream('The live view is off: the export area has no broker configured');
const refusals: Readonly<Record<LiveUnavailableReason, ExportApiError>> = {
  away: noStream('The live view is off: the broker is not reachable'),
  denied: noStream('The live view is off: the broker denies access to its subjects'),
  stopping: noStream('The service is stopping'),
  full: { code: 429, detail: 'Too many live listeners', retryAfterSeconds },
  forbidden: accessDenied,
};

function parseOwnApp(access: AccessReader, { idAccount, canExport }: User, given: Arguments): number | ExportApiError {
  if (!canExport) return lacksPermission;
  const idApp = parseId(single(given, 'idApp'));
  if (idApp === undefined) return badRequest('Argument idApp is expected: the id of one app');
  return access.current().findApp(idApp)?.idAccount === idAccount ? idApp : notFound('The app is not found');
}

export function addAppRoutes(addMethod: AddMethod, access: AccessReader, { readRefusals, hub }: AppView): void {
  addMethod(['GET'], '/api/app/v1/refusals.json', 'app_refusals', async (user, given) => {
    const idApp = parseOwnApp(access, user, given);
    if (typeof idApp !== 'number') return idApp;
    const limit = parseLimit(given, fallbackLimit, maxLimit);
    return typeof limit === 'number' ? { data: { ...(await readRefusals(idApp, limit)) } } : limit;
  });

  addMethod(['GET'], '/api/app/v1/live', 'app_live', (user, callArguments, { isStillSignedIn }) => {
    const idApp = parseOwnApp(access, user, callArguments);
    if (typeof idApp !== 'number') return idApp;
    if (hub === undefined) return unnamed;
    // A removed user, one with a new secret and one who signed out of the console receive nothing more.
    const isAllowed = (): boolean => {
      const now = access.current().findUser(user.idUser);
      return (
        isStillSignedIn() && now?.secret === user.secret && typeof parseOwnApp(access, now, callArguments) === 'number'
      );
    };
    return {
      async takeOver(response) {
        const notServed = await hub.serve(response, { idApp, idAccount: user.idAccount, isAllowed });
        return notServed && refusals[notServed];
      },
    };
  });
}
