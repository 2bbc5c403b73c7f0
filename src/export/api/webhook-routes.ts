import { defined } from '../../runtime/files/checksummed-json.ts';
import type { Clock } from '../../runtime/clock.ts';
import { withFormerNames } from '../../runtime/former-names.ts';
import { isAppError } from '../../runtime/errors.ts';
import { validateUrl } from '../../runtime/http/post-untrusted.ts';
import type { EgressPolicy } from '../../runtime/http/egress-policy.ts';
import { readDeliveryLog, type SentMessage } from '../../webhooks/delivery-log.ts';
import {
  addWebhook,
  maxWebhooks,
  openWebhooks,
  removeWebhook,
  rotationHours,
  type Webhook,
  type WebhookPaths,
} from '../../webhooks/webhook-store.ts';
import { quote, type Arguments } from './arguments.ts';
import { badRequest, lacksPermission, notFound } from './envelope.ts';
import { parseCount, single, type AddMethod, type MethodResult } from './methods-routes.ts';

/** Methods of users on the messages of their account's webhooks; undefined without that webhook. */
interface WebhookMethods {
  test(idAccount: number, idWebhook: string): Promise<SentMessage | undefined>;
  deliveries(idAccount: number, idWebhook: string): Promise<readonly SentMessage[] | undefined>;
  /** `gone`: what the message reports no longer exists. */
  resend(
    idAccount: number,
    idWebhook: string,
    idMessage: string,
  ): Promise<SentMessage | 'unknown' | 'gone' | undefined>;
  rotate(
    idAccount: number,
    idWebhook: string,
    hours: number,
  ): Promise<{ readonly webhook: Webhook; readonly secret: string } | undefined>;
}

interface WebhookRouteDependencies {
  readonly paths: WebhookPaths;
  readonly rules: EgressPolicy;
  readonly clock: Clock;
  readonly webhooks: WebhookMethods;
}

const maxUrlLength = 2048;

/** Parses the address of a webhook, or returns why it cannot be one. */
export function parseWebhookUrl(text: string | undefined, rules: EgressPolicy): URL | string {
  if (text === undefined || text === '') return 'is expected but not set';
  if (text.length > maxUrlLength || !URL.canParse(text)) return `is invalid: ${quote(text)} is not a URL`;
  const url = new URL(text);
  const refusal = validateUrl(url, rules);
  return refusal === undefined ? url : `is invalid: ${quote(text)}: ${refusal}`;
}

const toSeconds = (ms: number): string => String(Math.floor(ms / 1000));

/** Renders a webhook without its secrets. `last`: its message with the newest attempt. */
export function describeWebhook(
  { idWebhook, url, createdMs, formerSecret }: Webhook,
  nowMs: number,
  last?: SentMessage,
): Record<string, string> {
  const formerEndsMs = formerSecret !== undefined && nowMs < formerSecret.untilMs ? formerSecret.untilMs : undefined;
  return withFormerNames('webhook', {
    idWebhook,
    url,
    timestampCreated: toSeconds(createdMs),
    ...(formerEndsMs === undefined ? {} : { timestampFormerSecretEnds: toSeconds(formerEndsMs) }),
    ...(last === undefined ? {} : { timestampLastAttempt: toSeconds(last.atMs) }),
    ...defined({ lastError: last?.problem }),
  });
}

/** Renders a message with its last attempt. */
export function describeDelivery(sent: SentMessage): Readonly<Record<string, unknown>> {
  const { idMessage, type, subject, attempts, atMs, status, problem } = sent;
  return {
    idMessage,
    type,
    ...(subject === '' ? {} : { subject }),
    isDelivered: problem === undefined,
    ...defined({ responseCode: status, error: problem }),
    attempts,
    timestampLastAttempt: toSeconds(atMs),
  };
}

const missing = notFound('The webhook is not found');

/** Explains why a message cannot be sent again. */
export const resendRefusals = {
  unknown: 'The message is not in the last deliveries of the webhook',
  gone: 'The message cannot be sent again: its export has expired, its notice no longer exists, or its schedule runs again',
} as const;

const toResult = (sent: SentMessage | undefined): MethodResult =>
  sent === undefined ? missing : { data: describeDelivery(sent) };

const idOf = (given: Arguments): string => single(given, 'idWebhook') ?? '';

export function addWebhookRoutes(
  addMethod: AddMethod,
  { paths, rules, clock, webhooks }: WebhookRouteDependencies,
): void {
  addMethod(['POST'], '/api/webhook/v1/create.json', 'webhook_create', async ({ idAccount, canExport }, given) => {
    if (!canExport) return lacksPermission;
    const url = parseWebhookUrl(single(given, 'url'), rules);
    if (typeof url === 'string') return badRequest(`Argument url ${url}`);
    const nowMs = clock.nowMs();
    try {
      const added = await addWebhook(paths, { idAccount, url: url.href, createdMs: nowMs });
      return { data: { ...describeWebhook(added.webhook, nowMs), secret: added.secret } };
    } catch (error) {
      if (isAppError(error, 'conflict')) return badRequest(`The account already has ${maxWebhooks} webhooks`);
      throw error;
    }
  });

  addMethod(['GET'], '/api/webhook/v1/list.json', 'webhook_list', async ({ idAccount }) => {
    const { known, damaged } = await openWebhooks(paths).list(idAccount);
    const lasts = await Promise.all(known.map(async (webhook) => (await readDeliveryLog(paths, webhook))[0]));
    const listed = known.map((webhook, index) => describeWebhook(webhook, clock.nowMs(), lasts[index]));
    return { data: { webhooks: listed, ...(damaged.length === 0 ? {} : { damaged }) } };
  });

  addMethod(['POST'], '/api/webhook/v1/delete.json', 'webhook_delete', async ({ idAccount }, given) =>
    (await removeWebhook(paths, idAccount, idOf(given))) ? { data: { idWebhook: idOf(given) } } : missing,
  );

  addMethod(['GET'], '/api/webhook/v1/deliveries.json', 'webhook_deliveries', async ({ idAccount }, given) => {
    const deliveries = await webhooks.deliveries(idAccount, idOf(given));
    return deliveries === undefined ? missing : { data: { deliveries: deliveries.map(describeDelivery) } };
  });

  addMethod(['POST'], '/api/webhook/v1/test.json', 'webhook_test', async ({ idAccount }, given) =>
    toResult(await webhooks.test(idAccount, idOf(given))),
  );

  addMethod(['POST'], '/api/webhook/v1/resend.json', 'webhook_resend', async ({ idAccount }, given) => {
    const sent = await webhooks.resend(idAccount, idOf(given), single(given, 'idMessage') ?? '');
    return sent === 'unknown' || sent === 'gone' ? notFound(resendRefusals[sent]) : toResult(sent);
  });

  addMethod(['POST'], '/api/webhook/v1/rotate.json', 'webhook_rotate', async ({ idAccount, canExport }, given) => {
    if (!canExport) return lacksPermission;
    const hours = parseCount(given, 'hours', rotationHours.fallback, rotationHours.most);
    if (hours === undefined) return badRequest(`Argument hours must be from 0 to ${rotationHours.most}`);
    const rotated = await webhooks.rotate(idAccount, idOf(given), hours);
    if (rotated === undefined) return missing;
    return { data: { ...describeWebhook(rotated.webhook, clock.nowMs()), secret: rotated.secret } };
  });
}
