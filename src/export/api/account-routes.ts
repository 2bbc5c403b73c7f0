import type { AccessReader, User } from '../../access/access.ts';
import type { LiveHub, LiveUnavailableReason } from '../../live/live-hub.ts';
import type { FoundRefusals } from '../../refusals/refusal-files.ts';
import { withFormerNames } from '../../runtime/former-names.ts';
import type { Clock } from '../../runtime/clock.ts';
import { isAppError } from '../../runtime/errors.ts';
import { validateUrl } from '../../runtime/http/post-untrusted.ts';
import type { EgressPolicy } from '../../runtime/http/egress-policy.ts';
import {
  addWebhook,
  listWebhooks,
  removeWebhook,
  type LastAttempts,
  type DeliveryAttempt,
  type Webhook,
  type WebhookPaths,
} from '../../webhooks/webhook-store.ts';
import { quote, type Arguments } from './arguments.ts';
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

export const maxWebhooks = 10;
const maxUrlLength = 2048;

interface WebhookRouteDependencies {
  readonly paths: WebhookPaths;
  readonly rules: EgressPolicy;
  readonly clock: Clock;
  readonly tries: Pick<LastAttempts, 'find'>;
}

/** Parses the address of a webhook, or returns why it cannot be one. */
export function parseWebhookUrl(text: string | undefined, rules: EgressPolicy): URL | string {
  if (text === undefined || text === '') return 'is expected but not set';
  if (text.length > maxUrlLength || !URL.canParse(text)) return `is invalid: ${quote(text)} is not a URL`;
  const url = new URL(text);
  const refusal = validateUrl(url, rules);
  return refusal === undefined ? url : `is invalid: ${quote(text)}: ${refusal}`;
}

const toSeconds = (ms: number): string => String(Math.floor(ms / 1000));

function describe({ idWebhook, url, createdMs }: Webhook, last?: DeliveryAttempt): Record<string, string> {
  return withFormerNames('webhook', {
    idWebhook,
    url,
    timestampCreated: toSeconds(createdMs),
    ...(last === undefined ? {} : { timestampLastAttempt: toSeconds(last.atMs) }),
    ...(last?.problem === undefined ? {} : { lastError: last.problem }),
  });
}

export function addWebhookRoutes(addMethod: AddMethod, { paths, rules, clock, tries }: WebhookRouteDependencies): void {
  addMethod(
    ['POST'],
    '/api/webhook/v1/create.json',
    'webhook_create',
    async ({ idAccount, canExport }, callArguments) => {
      if (!canExport) return lacksPermission;
      const url = parseWebhookUrl(single(callArguments, 'url'), rules);
      if (typeof url === 'string') return badRequest(`Argument url ${url}`);
      try {
        const added = await addWebhook(
          paths,
          { idAccount, url: url.href },
          { nowMs: clock.nowMs(), most: maxWebhooks },
        );
        return { data: { ...describe(added.webhook), secret: added.secret } };
      } catch (error) {
        if (isAppError(error, 'conflict')) return badRequest(`The account already has ${maxWebhooks} webhooks`);
        throw error;
      }
    },
  );

  addMethod(['GET'], '/api/webhook/v1/list.json', 'webhook_list', async ({ idAccount }) => {
    const { known, damaged } = await listWebhooks(paths, idAccount);
    const webhooks = known.map((webhook) => describe(webhook, tries.find(webhook.idWebhook)));
    return { data: { webhooks, ...(damaged.length === 0 ? {} : { damaged }) } };
  });

  addMethod(['POST'], '/api/webhook/v1/delete.json', 'webhook_delete', async ({ idAccount }, given) => {
    const idWebhook = single(given, 'idWebhook') ?? '';
    return (await removeWebhook(paths, idAccount, idWebhook))
      ? { data: { idWebhook } }
      : notFound('The webhook is not found');
  });
}
