import type { Clock } from '../../runtime/clock.ts';
import { isAppError } from '../../runtime/errors.ts';
import { refuseUrl } from '../../runtime/http/outgoing-post.ts';
import type { OutgoingRules } from '../../runtime/http/outgoing-rules.ts';
import {
  type LastTries,
  type Try,
  addWebhook,
  listWebhooks,
  removeWebhook,
  type Webhook,
  type WebhookPaths,
} from '../../webhooks/webhook-store.ts';
import { quote } from './arguments.ts';
import { badRequest, lacksPermission, notFound } from './envelope.ts';
import { single, type AddMethod } from './methods-routes.ts';

/** Webhooks of an account, at most. */
export const mostWebhooks = 10;
const longestUrl = 2048;

interface WebhookRouteDependencies {
  readonly paths: WebhookPaths;
  readonly rules: OutgoingRules;
  readonly clock: Clock;
  readonly tries: Pick<LastTries, 'find'>;
}

/** Parses the address of a webhook, or returns why it cannot be one. */
export function parseWebhookUrl(text: string | undefined, rules: OutgoingRules): URL | string {
  if (text === undefined || text === '') return 'is expected but not set';
  if (text.length > longestUrl || !URL.canParse(text)) return `is invalid: ${quote(text)} is no address`;
  const url = new URL(text);
  const refusal = refuseUrl(url, rules);
  return refusal === undefined ? url : `is invalid: ${quote(text)}: ${refusal}`;
}

const toSeconds = (ms: number): string => String(Math.floor(ms / 1000));

function describe({ idWebhook, url, createdMs }: Webhook, last?: Try): Record<string, string> {
  return {
    idWebhook,
    url,
    timestampCreated: toSeconds(createdMs),
    ...(last === undefined ? {} : { timestampLastTry: toSeconds(last.atMs) }),
    ...(last?.problem === undefined ? {} : { lastProblem: last.problem }),
  };
}

/** Adds the methods on the webhooks of the account: create, list, delete. */
export function addWebhookRoutes(addMethod: AddMethod, { paths, rules, clock, tries }: WebhookRouteDependencies): void {
  addMethod(['POST'], '/api/webhook/v1/create.json', 'webhook_create', async ({ idAccount, canExport }, given) => {
    if (!canExport) return lacksPermission;
    const url = parseWebhookUrl(single(given, 'url'), rules);
    if (typeof url === 'string') return badRequest(`Argument url ${url}`);
    try {
      const added = await addWebhook(paths, { idAccount, url: url.href }, { nowMs: clock.nowMs(), most: mostWebhooks });
      return { data: { ...describe(added.webhook), secret: added.secret } };
    } catch (error) {
      if (isAppError(error, 'conflict')) return badRequest(`There are ${mostWebhooks} webhooks already`);
      throw error;
    }
  });

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
